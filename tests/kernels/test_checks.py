"""Checks: an error says what was given, what is accepted and what to do; a copy is never silent."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from firstlight.errors import BadInput, UnsupportedInput
from firstlight.kernels.checks import (
    CopiedInput,
    prepared,
    require_block,
    require_dtype,
    require_pattern,
    require_same_device,
    require_same_dtype,
    require_shape,
)
from firstlight.kernels.matrix import BlockSparseMatrix

ZEROS = torch.zeros(3, 16, 16)
CROW = torch.tensor([0, 2, 3], dtype=torch.int32)
COL = torch.tensor([0, 1, 1], dtype=torch.int32)


def made_of(
    values: Tensor = ZEROS, crow: Tensor = CROW, col: Tensor = COL, shape: tuple[int, ...] = (32, 32)
) -> BlockSparseMatrix:
    return BlockSparseMatrix.from_parts(values, crow, col, shape)  # type: ignore[arg-type]


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def test_good_parts_are_taken_as_they_are() -> None:
    matrix = made_of()
    assert matrix.values is ZEROS
    assert matrix.pattern.crow is CROW
    assert matrix.pattern.col is COL


@pytest.mark.parametrize(
    ("crow", "col", "message"),
    [
        (ints(0, 2, 3), ints(0, 1, 2), r"col holds 2 at entry 2, in block row 1; block columns 0 to 1 are accepted"),
        (ints(0, 2, 3), ints(-1, 1, 1), r"col holds -1 at entry 0, in block row 0; block columns 0 to 1"),
        (ints(0, 2, 3), ints(1, 0, 1), r"block row 0 stores block column 1 before 0; ascending .* allow_unsorted=True"),
        (ints(0, 2, 3), ints(1, 1, 1), r"block row 0 stores block column 1 more than once; .*allow_duplicates=True"),
        (ints(0, 0, 3), ints(1, 0, 1), r"block row 1 stores block column 1 more than once"),
        (ints(0, 3, 2), ints(0, 1, 1), r"crow falls from 3 to 2 at block row 1; .* running sum"),
        (ints(0, 2, 2), ints(0, 1, 1), r"crow ends with 2 and there are 3 stored blocks"),
        (ints(1, 2, 3), ints(0, 1, 1), r"crow starts with 1; it has to start with 0"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_row_and_column(crow: Tensor, col: Tensor, message: str) -> None:
    with pytest.raises(UnsupportedInput, match=message):
        made_of(crow=crow, col=col)
    with pytest.raises(UnsupportedInput, match=message):
        made_of(crow=crow.long(), col=col.long())


def test_one_column_in_neighbouring_rows_is_no_duplicate() -> None:
    require_pattern(ints(0, 1, 2), ints(1, 1), 2)
    require_pattern(ints(0, 2, 3), ints(0, 1, 0), 2)


def test_empty_patterns_are_good() -> None:
    require_pattern(ints(0, 0, 0), ints(), 2)
    with pytest.raises(UnsupportedInput, match="crow ends with 1 and there are 0 stored blocks"):
        require_pattern(ints(0, 0, 1), ints(), 2)


def test_each_allowance_allows_its_own_fault_alone() -> None:
    require_pattern(ints(0, 2), ints(1, 0), 2, allow_unsorted=True)
    require_pattern(ints(0, 3), ints(0, 1, 1), 2, allow_duplicates=True)
    require_pattern(ints(0, 3), ints(1, 0, 1), 2, allow_unsorted=True, allow_duplicates=True)
    with pytest.raises(UnsupportedInput, match="more than once"):
        require_pattern(ints(0, 2), ints(1, 1), 2, allow_unsorted=True)
    with pytest.raises(UnsupportedInput, match="block column 1 before 0"):
        require_pattern(ints(0, 3), ints(1, 1, 0), 2, allow_duplicates=True)


def test_validate_false_looks_at_no_index() -> None:
    matrix = BlockSparseMatrix.from_parts(ZEROS, CROW, ints(0, 99, 1), (32, 32), validate=False)
    assert matrix.nnz_blocks == 3
    with pytest.raises(UnsupportedInput, match="values has shape"):
        BlockSparseMatrix.from_parts(ZEROS[0], CROW, COL, (32, 32), validate=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": torch.zeros(3, 16, 32)}, r"values has shape \[3, 16, 32\]; \[stored blocks, block, block\]"),
        ({"values": torch.zeros(3, 48, 48)}, r"block is 48; 16, 32, 64 and 128 are accepted"),
        ({"values": torch.zeros(2, 16, 16)}, r"col has shape \[3\]; \[2\] is accepted"),
        ({"values": torch.zeros(3, 16, 16, dtype=torch.int8)}, r"values is int8; accepted are float16, bfloat16"),
        ({"crow": ints(0, 3)}, r"crow has shape \[2\]; \[3\] is accepted"),
        ({"crow": torch.tensor([0, 2, 3], dtype=torch.int16)}, r"crow is int16; accepted are int32, int64"),
        ({"col": torch.tensor([0, 1, 1])}, r"crow is int32 and col int64; one dtype is accepted"),
        ({"col": ints(0, 1, 1).float()}, r"col is float32; accepted are int32, int64"),
        ({"col": COL.to("meta")}, r"values is on cpu and col on meta; one device is accepted"),
        ({"shape": (32, 0)}, r"the matrix has 0 columns; whole numbers of 1 or more are accepted"),
        ({"shape": (-1, 32)}, r"the matrix has -1 rows"),
        ({"shape": (32,)}, r"shape is \(32,\); \(rows, columns\) is accepted"),
        ({"shape": (33, 32)}, r"crow has shape \[3\]; \[4\] is accepted"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedInput, match=message):
        made_of(**given)  # type: ignore[arg-type]


def test_numbers_beyond_the_edge_of_the_matrix_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match="non-zero numbers beyond row 29 of the matrix"):
        made_of(values=torch.ones(3, 16, 16), shape=(30, 32))
    with pytest.raises(UnsupportedInput, match="non-zero numbers beyond column 24 of the matrix"):
        made_of(values=torch.full((3, 16, 16), torch.nan), shape=(32, 25))
    inside = torch.ones(3, 16, 16)
    inside[2, 14:] = 0
    assert made_of(values=inside, shape=(30, 32)).shape == (30, 32)


def test_every_refusal_is_bad_input_and_a_value_error() -> None:
    assert issubclass(UnsupportedInput, BadInput)
    assert issubclass(UnsupportedInput, ValueError)
    assert UnsupportedInput.exit_code == 2


@pytest.mark.parametrize("block", [0, 8, 24, 256, True, 16.5, "16", None])
def test_other_blocks_are_refused(block: object) -> None:
    with pytest.raises(UnsupportedInput, match="16, 32, 64 and 128 are accepted"):
        require_block(block)


def test_single_checks_name_the_tensor() -> None:
    with pytest.raises(
        UnsupportedInput, match=r"x is float16; accepted are float32\. Convert it.*x\.to\(torch\.float32\)"
    ):
        require_dtype(torch.zeros(1).half(), "x", (torch.float32,))
    with pytest.raises(UnsupportedInput, match=r"x has shape \[2, 3\]; \[any, 4\] is accepted"):
        require_shape(torch.zeros(2, 3), "x", (None, 4))
    with pytest.raises(UnsupportedInput, match=r"w is on cpu and x on meta; .*x\.to\('cpu'\)"):
        require_same_device(torch.zeros(1), "w", torch.zeros(1, device="meta"), "x")
    with pytest.raises(UnsupportedInput, match=r"w is float32 and x float64; .*x\.to\(torch\.float32\)"):
        require_same_dtype(torch.zeros(1), "w", torch.zeros(1).double(), "x")


def test_a_tensor_that_lies_well_is_not_copied() -> None:
    x = torch.zeros(8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prepared(x, "x") is x


@pytest.mark.parametrize(
    ("awkward", "reason"),
    [
        (torch.arange(64.0).view(8, 8).T, "it is not contiguous"),
        (torch.arange(8.0).expand(8, 8), "it is not contiguous"),
        (torch.arange(128.0).view(8, 16)[:, ::2], "it is not contiguous"),
        (torch.arange(65.0)[1:].view(8, 8), "its first element is not at a multiple of 16 bytes"),
    ],
)
def test_a_tensor_that_lies_badly_is_copied_with_one_warning_that_names_it(awkward: Tensor, reason: str) -> None:
    with pytest.warns(CopiedInput, match=f"x is copied on every call because {reason}"):
        copy = prepared(awkward, "x")
    assert torch.equal(copy, awkward)
    assert copy.is_contiguous()
    assert copy.data_ptr() % 16 == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared(awkward, "x")
    with pytest.warns(CopiedInput, match="bias is copied"):
        prepared(awkward, "bias")


def test_a_gradient_flows_through_the_copy() -> None:
    x = torch.ones(4, 8, requires_grad=True)
    with pytest.warns(CopiedInput):
        prepared(x.T, "x").sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None

"""The matrix: what it says of itself, its transpose, and that torch's machinery can carry it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, explain_choice, matmul
from firstlight.kernels.schedule import schedule_of


def ragged() -> BlockSparseMatrix:
    mask = torch.tensor([[True, False, True], [False, True, False]])
    return BlockSparseMatrix.from_mask(mask, block=16, values=torch.randn(30, 40))


def test_a_matrix_says_what_it_is() -> None:
    matrix = ragged()
    assert (matrix.shape, matrix.block, matrix.nnz_blocks, matrix.density) == ((30, 40), 16, 3, 0.5)
    assert (matrix.dtype, matrix.device, matrix.requires_grad) == (torch.float32, torch.device("cpu"), False)
    assert repr(matrix) == "BlockSparseMatrix([30, 40], block=16, blocks=3, density=0.5, torch.float32, device='cpu')"
    assert repr(matrix.T.requires_grad_()).endswith("device='cpu', transposed, requires_grad)")


def test_the_transpose_shares_values_and_pattern() -> None:
    matrix = ragged()
    turned = matrix.T
    assert turned.shape == (40, 30)
    assert turned.is_transposed
    assert turned.values is matrix.values
    assert turned.pattern is matrix.pattern
    assert torch.equal(turned.to_dense(), matrix.to_dense().T)
    assert turned.T.index is matrix.index


def test_each_direction_has_its_index() -> None:
    matrix = ragged()
    assert matrix.index is matrix.pattern.forward
    assert matrix.index_t is matrix.pattern.transposed
    assert matrix.T.index is matrix.index_t
    assert matrix.T.index_t is matrix.index
    assert matrix.schedule is schedule_of(matrix.index)
    assert matrix.T.schedule is schedule_of(matrix.index_t)


def test_dtype_and_device_change_together_or_alone() -> None:
    matrix = ragged().T
    half = matrix.to(dtype=torch.float16)
    assert (half.dtype, half.shape, half.is_transposed) == (torch.float16, (40, 30), True)
    assert half.pattern is matrix.pattern
    there = matrix.to(device="meta", dtype=torch.bfloat16)
    assert there.device.type == there.pattern.crow.device.type == there.pattern.col.device.type == "meta"
    assert matrix.to().values is matrix.values
    with pytest.raises(UnsupportedInput, match="values is int32; accepted are float16"):
        matrix.to(dtype=torch.int32)


def test_indices_moved_in_inference_mode_still_count_changes() -> None:
    matrix = ragged()
    with torch.inference_mode():
        moved = matrix.to(device="meta")
    assert not moved.pattern.crow.is_inference()


def test_gradients_are_asked_for_and_left_behind() -> None:
    matrix = ragged().requires_grad_()
    assert matrix.requires_grad
    assert not matrix.detach().requires_grad
    assert matrix.detach().values.data_ptr() == matrix.values.data_ptr()
    matrix.to_dense().sum().backward()  # type: ignore[no-untyped-call]
    assert matrix.values.grad is not None
    assert not matrix.requires_grad_(requires_grad=False).requires_grad


def test_other_values_take_the_place_of_the_first() -> None:
    matrix = ragged().T
    doubled = matrix.with_values(matrix.values * 2)
    assert torch.equal(doubled.to_dense(), 2 * matrix.to_dense())
    with pytest.raises(UnsupportedInput, match=r"values has shape \[2, 16, 16\]; \[3, 16, 16\] is accepted"):
        matrix.with_values(torch.zeros(2, 16, 16))


def test_copies_and_pickles_are_the_same_matrix() -> None:
    matrix = ragged().T
    assert matrix.schedule.order.shape == (3,)
    for other in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert other.values is not matrix.values
        assert torch.equal(other.to_dense(), matrix.to_dense())


def test_the_at_sign_is_matmul() -> None:
    matrix, x = ragged(), torch.randn(40, 3)
    assert torch.equal(matrix @ x, matmul(matrix, x))


def test_a_compiled_function_reads_a_matrix_without_a_graph_break() -> None:
    matrix = ragged()

    def described(given: BlockSparseMatrix, x: Tensor) -> Tensor:
        other = BlockSparseMatrix(given.values * 2, given.pattern).T
        entries = given.index.columns.sum() + 10 * other.index.columns.sum()
        return x * given.values.sum() + other.to_dense().sum() + entries + given.density * given.shape[0]

    compiled = torch.compile(described, fullgraph=True, backend="aot_eager")
    for _ in range(2):  # before the transposed index was ever built, and after
        assert torch.allclose(compiled(matrix, torch.ones(2)), described(matrix, torch.ones(2)))
        torch._dynamo.reset()


def test_gradients_flow_through_a_compiled_function() -> None:
    matrix = ragged().requires_grad_()
    compiled = torch.compile(lambda given: given.to_dense().square().sum(), fullgraph=True, backend="aot_eager")
    compiled(matrix).backward()
    assert matrix.values.grad is not None
    assert torch.allclose(matrix.values.grad, 2 * matrix.values)


@pytest.mark.parametrize("wrong", [(2, 16, 16), (4, 16, 16), (3, 32, 32), (3, 8, 32), (3, 256), (3, 16, 16, 1)])
def test_values_that_do_not_fit_the_pattern_are_refused_at_construction(wrong: tuple[int, ...]) -> None:
    matrix = ragged()
    with pytest.raises(
        UnsupportedInput, match=r"values has shape .*; \[3, 16, 16\] is accepted, as the pattern stores 3"
    ):
        BlockSparseMatrix(torch.randn(wrong), matrix.pattern)


def test_values_of_another_kind_or_device_are_refused_at_construction() -> None:
    matrix = ragged()
    with pytest.raises(UnsupportedInput, match="values is int64"):
        BlockSparseMatrix(matrix.values.long(), matrix.pattern)
    with pytest.raises(UnsupportedInput, match="the pattern is on cpu and values on meta"):
        BlockSparseMatrix(matrix.values.to("meta"), matrix.pattern)


@pytest.mark.parametrize("backend", ["reference", "dense", "auto"])
def test_values_replaced_resized_or_freed_later_are_refused_at_the_call(backend: str) -> None:
    matrix, x = ragged(), torch.randn(40, 5)
    given = matrix.values
    for wrong in (given[:2], given.repeat(2, 1, 1), given.view(12, 8, 8)):
        matrix.values = given
        for _ in range(2):
            matmul(matrix, x, backend=backend)  # it is prepared now
        matrix.values = wrong.contiguous()
        with pytest.raises(UnsupportedInput, match="values has shape"):
            matmul(matrix, x, backend=backend)
    matrix.values = given.clone()
    matmul(matrix, x, backend=backend)
    matrix.values.resize_(2, 16, 16)
    with pytest.raises(UnsupportedInput, match="values has shape"):
        matmul(matrix, x, backend=backend)
    matrix.values = given.clone()
    matmul(matrix, x, backend=backend)
    matrix.values.untyped_storage().resize_(0)  # as FSDP frees what it has gathered
    with pytest.raises(UnsupportedInput, match="no memory behind it"):
        matmul(matrix, x, backend=backend)


def test_the_operator_refuses_them_too() -> None:
    matrix, x = ragged(), torch.randn(5, 40)
    with pytest.raises(UnsupportedInput, match="values has shape"):
        torch.ops.firstlight.bsr_multiply(
            matrix.values[:2].contiguous(), matrix.pattern.crow, matrix.pattern.col, x, None, None, 30, 40, 16,
            False, "tokens", "auto", 1.0, False, "none", 0.0, "added",  # noqa: FBT003
        )  # fmt: skip


def test_a_choice_is_explained_for_x_itself() -> None:
    matrix = ragged()
    assert explain_choice(matrix, torch.randn(2, 7, 40)) == explain_choice(matrix, 14)
    assert explain_choice(matrix, torch.randn(2, 40, 7), layout="columns") == explain_choice(
        matrix, 14, layout="columns"
    )
    with pytest.raises(
        UnsupportedInput, match=r"n is a tensor of shape \[7, 30\]; x of shape \[\.\.\., 40\] is accepted"
    ):
        explain_choice(matrix, torch.randn(7, 30))
    for wrong in (7.5, "many", -1, True):
        with pytest.raises(UnsupportedInput, match="a number of tokens"):
            explain_choice(matrix, wrong)  # type: ignore[arg-type]

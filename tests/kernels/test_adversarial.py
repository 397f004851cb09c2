"""The adversarial cases on the processor; the same ones run on a GPU in gpu/test_adversarial_gpu.py.

number -> test: 1-7, 9, 12-15, 21, 22, 26, 28, 29 -> test_case_by_...; 8 -> test_a_bad_pattern...;
10 -> test_memory_...; 23 -> test_a_hundred_runs...; 25 -> test_inference_mode... here, test_ops.py (compile) and
test_functions.py (autocast); 30 -> test_pairs. 11, 24 and the streams of 25 need a GPU. 16-20 are attention's; 27 and
the rest of 28 are the sm90 kernels'.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

from firstlight.kernels import BlockSparseMatrix, CopiedInput, UnsupportedInput, checks, linear, matmul
from tests.kernels.cases import CASES, NOT_FOR_DENSE, PAIRS, Finish, Where, name_of, pair, repeatable, scattered

BACKENDS = ("reference", "dense")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_case_by_the_reference(case: Callable[[Where], None]) -> None:
    case(Where("cpu", "reference", torch.float16))


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_FOR_DENSE], ids=name_of)
def test_case_by_the_dense_copy(case: Callable[[Where], None]) -> None:
    case(Where("cpu", "dense", torch.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("block", "dtype", "operation", "finish"), PAIRS)
def test_pairs(block: int, dtype: torch.dtype, operation: str, finish: Finish, backend: str) -> None:
    pair(Where("cpu", backend, dtype), block=block, operation=operation, finish=finish)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hundred_runs_give_the_same_bits(backend: str) -> None:
    repeatable(Where("cpu", backend, torch.float32))


@pytest.mark.parametrize(
    ("crow", "col", "said"),
    [
        ([0, 2, 3], [0, 2, 1], "block columns 0 to 1 are accepted"),
        ([0, 2, 3], [0, -1, 1], "col holds -1 at entry 1"),
        ([0, 2, 1], [0, 1, 1], "crow falls from 2 to 1"),
        ([0, 2, 2], [0, 1, 1], "crow ends with 2 and there are 3 stored blocks"),
        ([0, 2, 3], [1, 0, 1], "ascending block columns are accepted"),
    ],
)
def test_a_bad_pattern_is_refused_with_what_to_do(crow: list[int], col: list[int], said: str) -> None:
    with pytest.raises(UnsupportedInput, match=said):
        BlockSparseMatrix.from_parts(torch.zeros(3, 32, 32), torch.tensor(crow), torch.tensor(col), (64, 64))


def test_memory_order_is_put_right_with_one_warning_that_names_the_tensor() -> None:
    where = Where("cpu", "reference", torch.float32)
    w = where.matrix(scattered(3, 4))
    x = where.randn(128, 20, seed=1)
    plain = linear(x.mT.contiguous(), w, backend="reference")
    room = torch.zeros(20 * 128 + 1)
    room[1:] = x.mT.reshape(-1)
    pitched = torch.zeros(20, 131)
    pitched[:, :128] = x.mT
    for view in (x.mT, room[1:].view(20, 128), pitched[:, :128]):
        checks._WARNED.clear()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.equal(linear(view, w, backend="reference"), plain)
            linear(view, w, backend="reference")
        assert len(seen) == 1
        assert all(issubclass(item.category, CopiedInput) and str(item.message).startswith("x ") for item in seen)
    checks._WARNED.clear()
    expanded = x[:, :1].expand(128, 20)
    with pytest.warns(CopiedInput, match="x is copied on every call because it is not contiguous"):
        found = matmul(where.matrix(scattered(3, 4)), expanded, backend="dense")
    assert torch.equal(found, matmul(w, expanded.contiguous(), backend="dense"))


def test_the_output_is_not_copied_and_says_so() -> None:
    where = Where("cpu", "reference", torch.float32)
    w, x = where.matrix(scattered(3, 4)), where.randn(128, 8)
    with pytest.raises(UnsupportedInput, match="never copied"):
        matmul(w, x, out=torch.empty(8, 96).mT)
    out = torch.full((96, 8), float("nan"))
    assert matmul(w, x, out=out) is out
    assert torch.equal(out, matmul(w, x))
    with pytest.raises(UnsupportedInput, match="shares its memory with x"):
        matmul(where.matrix(torch.ones(4, 4, dtype=torch.bool)), x, out=x)
    assert torch.equal(matmul(w, x, c=out, beta=1.0, out=out.clone()), matmul(w, x, c=out, beta=1.0))


def test_inference_mode_and_weights_made_in_it() -> None:
    where = Where("cpu", "auto", torch.float32)
    w, x = where.matrix(scattered(3, 4)), where.randn(9, 128)
    plain = linear(x, w)
    with torch.inference_mode():
        assert torch.equal(linear(x, w), plain)
        inside = where.matrix(scattered(3, 4))
        assert torch.equal(linear(x, inside), plain)
        assert torch.equal(linear(x, inside), plain)

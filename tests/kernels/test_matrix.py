"""The matrix: what it says of itself, its transpose, and that torch's machinery can carry it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, matmul
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

"""The dense backend: right, and its copy of the matrix is never old; kept ones: test_kept_copies.py."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from firstlight.kernels import dense, reference
from firstlight.kernels.index import Index
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout
from tests.kernels.products import Case, bound, cases, computed, poisoned, wanted


@settings(max_examples=200, deadline=None)
@given(cases())
def test_products_are_right_in_every_element(case: Case) -> None:
    out = computed(case, dense)
    # the product is rounded once more before a second summand or an activation
    assert bool(((out.double() - wanted(case)).abs() <= 3 * bound(case)).all())


@settings(max_examples=20, deadline=None)
@given(cases())
def test_products_repeat_bit_for_bit(case: Case) -> None:
    assert torch.equal(computed(case, dense), computed(case, dense))


@pytest.mark.parametrize("shape", [(64, 96), (50, 61)])
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_sampled_products_are_those_of_the_reference(
    shape: tuple[int, int], layout: Layout, dtype: torch.dtype
) -> None:
    matrix = BlockSparseMatrix.random(*shape, block=16, density=0.5, dtype=dtype)
    a, b = torch.randn(shape[0], 7).to(dtype), torch.randn(shape[1], 7).to(dtype)
    if layout is Layout.TOKENS:
        a, b = a.T.contiguous(), b.T.contiguous()
    ours, theirs = (poisoned(tuple(matrix.values.shape), dtype) for _ in range(2))
    dense.sample(matrix.pattern.forward, a, b, ours, layout=layout, alpha=0.5)
    reference.sample(matrix.pattern.forward, a, b, theirs, layout=layout, alpha=0.5)
    assert torch.allclose(ours, theirs, rtol=2e-3, atol=1e-3)


def test_sampled_products_sum_over_a_batch_and_keep_the_edge_zero() -> None:
    matrix = BlockSparseMatrix.random(40, 30, block=16, density=0.8)
    a, b = torch.randn(3, 40, 7), torch.randn(3, 30, 7)
    ours, theirs = (poisoned(tuple(matrix.values.shape), torch.float32) for _ in range(2))
    dense.sample(matrix.pattern.forward, a, b, ours, layout=Layout.COLUMNS, alpha=1.0)
    reference.sample(matrix.pattern.forward, a, b, theirs, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert torch.equal(ours == 0, theirs == 0)


def test_sampling_through_the_transposed_index_fills_the_same_blocks() -> None:
    matrix = BlockSparseMatrix.random(40, 60, block=16, density=0.6)
    a, b = torch.randn(40, 5), torch.randn(60, 5)
    straight, turned = (poisoned(tuple(matrix.values.shape), torch.float32) for _ in range(2))
    dense.sample(matrix.pattern.forward, a, b, straight, layout=Layout.COLUMNS, alpha=1.0)
    dense.sample(matrix.pattern.transposed, b, a, turned, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.allclose(straight, turned, atol=1e-5)


def matrix_of_ones() -> BlockSparseMatrix:
    return BlockSparseMatrix.from_dense(torch.ones(32, 48), block=16)


def test_a_kept_copy_is_made_once_and_shared_by_both_directions() -> None:
    matrix = matrix_of_ones().keep_dense()
    first = dense.dense_copy(matrix.index, matrix.values)
    assert dense.dense_copy(matrix.index, matrix.values) is first
    assert dense.dense_copy(matrix.T.index, matrix.values).data_ptr() == first.data_ptr()
    assert torch.equal(dense.dense_copy(matrix.T.index, matrix.values), matrix.to_dense().T)


def test_values_changed_in_place_are_seen() -> None:
    matrix = matrix_of_ones()
    assert float(dense.dense_copy(matrix.index, matrix.values).sum()) == 32 * 48
    matrix.values.mul_(2)
    assert float(dense.dense_copy(matrix.index, matrix.values).sum()) == 2 * 32 * 48


def test_a_step_of_an_optimizer_is_seen() -> None:
    matrix = matrix_of_ones()
    parameter = torch.nn.Parameter(matrix.values)
    assert float(dense.dense_copy(matrix.index, parameter).sum()) == 32 * 48
    parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD([parameter], lr=1.0).step()
    assert float(dense.dense_copy(matrix.index, parameter).abs().sum()) == 0


def test_values_exchanged_under_a_parameter_are_seen() -> None:
    matrix = matrix_of_ones()
    parameter = torch.nn.Parameter(matrix.values)
    assert float(dense.dense_copy(matrix.index, parameter).sum()) == 32 * 48
    parameter.data = torch.zeros_like(parameter)
    assert float(dense.dense_copy(matrix.index, parameter).sum()) == 0


def test_a_change_that_torch_does_not_count_is_seen() -> None:
    matrix = matrix_of_ones()
    dense.dense_copy(matrix.index, matrix.values)
    matrix.values.data.zero_()
    assert float(dense.dense_copy(matrix.index, matrix.values).sum()) == 0


def test_indices_changed_in_place_are_seen() -> None:
    values = torch.ones(1, 16, 16)
    matrix = BlockSparseMatrix.from_parts(values, torch.tensor([0, 1]), torch.tensor([0]), (16, 32))
    assert float(dense.dense_copy(matrix.index, values)[:, :16].sum()) == 256
    matrix.pattern.col[0] = 1
    assert float(dense.dense_copy(matrix.index, values)[:, :16].sum()) == 0


def test_two_patterns_around_the_same_values_have_a_copy_each() -> None:
    values, crow = torch.ones(1, 16, 16), torch.tensor([0, 1])
    left = BlockSparseMatrix.from_parts(values, crow, torch.tensor([0]), (16, 32))
    right = BlockSparseMatrix.from_parts(values, crow, torch.tensor([1]), (16, 32))
    for matrix in (left, right, left):
        assert torch.equal(dense.dense_copy(matrix.index, values), matrix.to_dense())


def test_the_copy_goes_with_the_values() -> None:
    matrix = matrix_of_ones().keep_dense()
    seen = weakref.ref(dense.dense_copy(matrix.index, matrix.values).untyped_storage())
    matrix = matrix.with_values(torch.zeros_like(matrix.values))  # the pattern lives on
    gc.collect()
    assert len(matrix.pattern.dense_copies) == 0
    assert seen() is None


def test_values_made_in_inference_mode_are_never_stale() -> None:
    matrix = matrix_of_ones()
    with torch.inference_mode():
        values = torch.ones_like(matrix.values)
        assert float(dense.dense_copy(matrix.index, values).sum()) == 32 * 48
        values.zero_()
        assert float(dense.dense_copy(matrix.index, values).sum()) == 0
        out = poisoned((32, 2), torch.float32)
        dense.multiply(matrix.index, values, torch.ones(48, 2), out, layout=Layout.COLUMNS, epilogue=PLAIN)
        assert float(out.sum()) == 0


def test_a_copy_kept_in_inference_mode_serves_later_calls() -> None:
    matrix = matrix_of_ones()
    with torch.inference_mode():
        copy = dense.dense_copy(matrix.index, matrix.keep_dense().values)
    assert not copy.is_inference()
    assert dense.dense_copy(matrix.index, matrix.values) is copy


def test_tensors_that_require_gradients_are_taken() -> None:
    matrix = BlockSparseMatrix.random(20, 30, block=16, density=1.0).requires_grad_()
    x, bias = torch.randn(4, 30, requires_grad=True), torch.randn(20, requires_grad=True)
    out = poisoned((4, 20), torch.float32)
    epilogue = Epilogue(bias=bias, activation=Activation.SILU)
    dense.multiply(matrix.index, matrix.values, x, out, layout=Layout.TOKENS, epilogue=epilogue)
    assert not out.requires_grad
    assert torch.allclose(out, torch.nn.functional.silu(x @ matrix.to_dense().T + bias), atol=1e-5)


def by_hand(*, blocks_transposed: bool) -> tuple[Index, Tensor]:
    index = Index(
        torch.tensor([0, 1, 3]), torch.tensor([0, 0, 0]), torch.tensor([1, 0, 2]), 32, 16, 16, blocks_transposed
    )
    return index, torch.randn(3, 16, 16)


@pytest.mark.parametrize("blocks_transposed", [False, True])
def test_an_index_made_by_hand_is_followed_with_its_duplicates(blocks_transposed: object) -> None:
    index, values = by_hand(blocks_transposed=bool(blocks_transposed))
    parts = values.mT if blocks_transposed else values
    assert torch.equal(dense.dense_copy(index, values), torch.cat([parts[1], parts[0] + parts[2]]))


@pytest.mark.parametrize("epilogue", [PLAIN, Epilogue(alpha=0.5, bias=torch.ones(40))])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_autocast_does_not_lower_the_precision_of_the_sums(epilogue: Epilogue, batch: tuple[int, ...]) -> None:
    matrix = BlockSparseMatrix.random(40, 60, block=16, density=0.7)
    case = Case(matrix, torch.randn(*batch, 60, 5), Layout.COLUMNS, epilogue)
    product = computed(case, dense)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(computed(case, dense), product)

"""The reference backend against float64 and the rules: skipped, not multiplied by zero; every element written."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from firstlight.kernels import reference
from firstlight.kernels.index import Index
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout
from tests.kernels.products import Case, bound, cases, computed, poisoned, wanted


@settings(max_examples=200, deadline=None)
@given(cases())
def test_products_are_right_in_every_element(case: Case) -> None:
    out = computed(case, reference)
    assert bool(((out.double() - wanted(case)).abs() <= bound(case)).all())


@settings(max_examples=20, deadline=None)
@given(cases())
def test_products_repeat_bit_for_bit(case: Case) -> None:
    assert torch.equal(computed(case, reference), computed(case, reference))


def test_exact_products_of_half_precision_inputs_are_float64() -> None:
    matrix = BlockSparseMatrix.random(40, 60, block=16, density=0.5, dtype=torch.float16)
    x = torch.randn(60, 5).half()
    out = poisoned((40, 5), torch.float64)
    reference.multiply_exact(matrix.index, matrix.values, x, out, layout=Layout.COLUMNS, epilogue=PLAIN)
    assert torch.allclose(out, matrix.to_dense().double() @ x.double(), rtol=1e-14, atol=1e-14)


def test_rows_without_blocks_still_get_addend_bias_and_activation() -> None:
    matrix = BlockSparseMatrix.from_dense(torch.zeros(20, 20), block=16)
    addend, bias = torch.randn(20, 3), torch.randn(20)
    epilogue = Epilogue(beta=2.0, addend=addend, bias=bias, activation=Activation.RELU)
    case = Case(matrix, torch.randn(20, 3), Layout.COLUMNS, epilogue)
    assert torch.equal(computed(case, reference), torch.relu(2 * addend + bias[:, None]))


def test_an_addend_with_beta_zero_is_not_read() -> None:
    matrix = BlockSparseMatrix.from_dense(torch.eye(16), block=16)
    epilogue = Epilogue(beta=0.0, addend=torch.full((16, 2), torch.nan))
    case = Case(matrix, torch.ones(16, 2), Layout.COLUMNS, epilogue)
    assert torch.equal(computed(case, reference), torch.ones(16, 2))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_in_unused_columns_do_not_reach_the_output(bad: float) -> None:
    weight = torch.zeros(32, 48)
    weight[:16, :16], weight[16:, 32:] = 1.0, 1.0
    matrix = BlockSparseMatrix.from_dense(weight, block=16)
    x = torch.ones(48, 4)
    x[16:32] = bad
    assert torch.equal(computed(Case(matrix, x, Layout.COLUMNS, PLAIN), reference), torch.full((32, 4), 16.0))
    x[0, 0] = bad  # used by the first block row alone
    out = computed(Case(matrix, x, Layout.COLUMNS, PLAIN), reference)
    assert not bool(out[:16, 0].isfinite().any())
    assert bool(out[16:].isfinite().all())


def test_half_precision_sums_in_float32_and_rounds_once() -> None:
    weight = torch.full((16, 64), 2.0**8, dtype=torch.float16)
    x = torch.full((64, 1), 2.0**7, dtype=torch.float16)
    x[32:] = -(2.0**7)  # the sum of half of the products is 2^20: beyond float16
    matrix = BlockSparseMatrix.from_dense(weight, block=16)
    assert computed(Case(matrix, x, Layout.COLUMNS, PLAIN), reference).tolist() == [[0.0]] * 16
    x[32:] = 2.0**7
    assert computed(Case(matrix, x, Layout.COLUMNS, PLAIN), reference).isinf().all()


def test_the_output_may_be_float32_for_half_precision_inputs() -> None:
    matrix = BlockSparseMatrix.random(32, 32, block=16, density=1.0, dtype=torch.bfloat16)
    case = Case(matrix, torch.randn(32, 4).bfloat16(), Layout.COLUMNS, PLAIN)
    assert torch.allclose(computed(case, reference, torch.float32).double(), wanted(case), rtol=1e-5, atol=1e-4)


def test_an_unsorted_matrix_gives_the_product_of_the_sorted_one() -> None:
    values = torch.randn(3, 16, 16, dtype=torch.float64)
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (32, 32), allow_unsorted=True)
    x = torch.randn(32, 4, dtype=torch.float64)
    for given_matrix in (matrix, matrix.T):
        case = Case(given_matrix, x, Layout.COLUMNS, PLAIN)
        assert torch.allclose(computed(case, reference), wanted(case), rtol=1e-13)


def test_blocks_stored_twice_count_twice() -> None:
    values = torch.randn(3, 16, 16, dtype=torch.float64)
    crow, col = torch.tensor([0, 3]), torch.tensor([0, 1, 1])
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (16, 32), allow_duplicates=True)
    for given_matrix, rows in ((matrix, 32), (matrix.T, 16)):
        case = Case(given_matrix, torch.randn(rows, 4, dtype=torch.float64), Layout.COLUMNS, PLAIN)
        assert torch.allclose(computed(case, reference), wanted(case), rtol=1e-13)


def sampled_by_hand(matrix: BlockSparseMatrix, product: Tensor) -> Tensor:
    rows, cols = matrix.pattern.shape
    padded = torch.zeros(matrix.pattern.block_rows * matrix.block, matrix.pattern.block_cols * matrix.block).double()
    padded[:rows, :cols] = product
    places = zip(matrix.pattern.rows_of_entries.tolist(), matrix.pattern.col.tolist(), strict=True)
    size = matrix.block
    blocks = [padded[row * size : (row + 1) * size, col * size : (col + 1) * size] for row, col in places]
    return torch.stack(blocks) if blocks else torch.zeros(0, size, size).double()


@pytest.mark.parametrize("shape", [(64, 96), (50, 61), (16, 16)])
@pytest.mark.parametrize("layout", list(Layout))
def test_sampled_products_are_right_in_every_element(shape: tuple[int, int], layout: Layout) -> None:
    matrix = BlockSparseMatrix.random(*shape, block=16, density=0.5, dtype=torch.float64)
    a, b = torch.randn(shape[0], 7, dtype=torch.float64), torch.randn(shape[1], 7, dtype=torch.float64)
    out = poisoned(tuple(matrix.values.shape), torch.float64)
    given_a, given_b = (a, b) if layout is Layout.COLUMNS else (a.T.contiguous(), b.T.contiguous())
    reference.sample(matrix.pattern.forward, given_a, given_b, out, layout=layout, alpha=-2.0)
    assert torch.allclose(out, sampled_by_hand(matrix, -2 * a @ b.T), rtol=1e-13)


def test_sampled_products_sum_over_a_batch() -> None:
    matrix = BlockSparseMatrix.random(40, 30, block=16, density=0.8, dtype=torch.float64)
    a, b = torch.randn(3, 40, 7, dtype=torch.float64), torch.randn(3, 30, 7, dtype=torch.float64)
    out = poisoned(tuple(matrix.values.shape), torch.float64)
    reference.sample(matrix.pattern.forward, a, b, out, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.allclose(out, sampled_by_hand(matrix, torch.einsum("brn,bcn->rc", a, b)), rtol=1e-12)


def test_sampled_products_in_portions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = BlockSparseMatrix.random(64, 64, block=16, density=1.0)
    a, b = torch.randn(64, 8), torch.randn(64, 8)
    whole, portions = (poisoned(tuple(matrix.values.shape), torch.float32) for _ in range(2))
    reference.sample(matrix.index, a, b, whole, layout=Layout.COLUMNS, alpha=1.0)
    monkeypatch.setattr(reference, "SAMPLE_ELEMENTS", 16 * 8 * 3)
    reference.sample(matrix.index, a, b, portions, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.allclose(whole, portions)


def test_the_unused_part_of_sampled_edge_blocks_is_zero_also_beside_nan() -> None:
    matrix = BlockSparseMatrix.from_dense(torch.ones(17, 18), block=16)
    a, b = torch.full((17, 3), torch.nan), torch.ones(18, 3)
    out = poisoned((4, 16, 16), torch.float32)
    reference.sample(matrix.index, a, b, out, layout=Layout.COLUMNS, alpha=1.0)
    assert int(out.isnan().sum()) == 17 * 18
    assert int((out == 0).sum()) == 4 * 256 - 17 * 18


def test_sampling_through_the_transposed_index_fills_the_same_blocks() -> None:
    matrix = BlockSparseMatrix.random(40, 60, block=16, density=0.6, dtype=torch.float64)
    a, b = torch.randn(40, 5, dtype=torch.float64), torch.randn(60, 5, dtype=torch.float64)
    straight, turned = (poisoned(tuple(matrix.values.shape), torch.float64) for _ in range(2))
    reference.sample(matrix.pattern.forward, a, b, straight, layout=Layout.COLUMNS, alpha=1.0)
    reference.sample(matrix.pattern.transposed, b, a, turned, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.allclose(straight, turned, rtol=1e-13)


def test_an_index_made_by_hand_with_permuted_blocks_is_followed() -> None:
    values = torch.randn(2, 16, 16)
    index = Index(
        torch.tensor([0, 1, 2]), torch.tensor([0, 0]), torch.tensor([1, 0]), 32, 16, 16, blocks_transposed=False
    )
    out = poisoned((32, 4), torch.float32)
    x = torch.randn(16, 4)
    reference.multiply(index, values, x, out, layout=Layout.COLUMNS, epilogue=PLAIN)
    assert torch.allclose(out, torch.cat([values[1], values[0]]) @ x, atol=1e-5)


def test_autocast_does_not_lower_the_precision_of_the_sums() -> None:
    matrix = BlockSparseMatrix.random(40, 60, block=16, density=0.7)
    case = Case(matrix, torch.randn(60, 5), Layout.COLUMNS, PLAIN)
    a, b = torch.randn(40, 5), torch.randn(60, 5)
    plain, cast = (poisoned(tuple(matrix.values.shape), torch.float32) for _ in range(2))
    product = computed(case, reference)
    reference.sample(matrix.index, a, b, plain, layout=Layout.COLUMNS, alpha=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(computed(case, reference), product)
        reference.sample(matrix.index, a, b, cast, layout=Layout.COLUMNS, alpha=1.0)
    assert torch.equal(plain, cast)

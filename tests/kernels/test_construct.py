"""Ways to make a matrix: the same numbers come back, and gradients find their way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.matrix import BlockSparseMatrix
from tests.kernels.patterns import masks

BLOCKS = (16, 32, 64, 128)


def expanded(mask: Tensor, block: int, shape: tuple[int, int]) -> Tensor:
    return mask.repeat_interleave(block, 0).repeat_interleave(block, 1)[: shape[0], : shape[1]]


@settings(max_examples=50)
@given(masks(5), st.integers(0, 15), st.integers(0, 15))
def test_a_dense_tensor_comes_back_from_its_blocks(mask: Tensor, fewer_rows: int, fewer_cols: int) -> None:
    shape = (mask.shape[0] * 16 - fewer_rows, mask.shape[1] * 16 - fewer_cols)
    dense = torch.rand(shape).add(0.5) * expanded(mask, 16, shape)
    matrix = BlockSparseMatrix.from_dense(dense, block=16)
    assert torch.equal(matrix.to_dense(), dense)
    assert matrix.nnz_blocks == int(mask.sum())
    assert matrix.pattern.col.dtype == torch.int32
    BlockSparseMatrix.from_parts(matrix.values, matrix.pattern.crow, matrix.pattern.col, shape)  # a valid pattern


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_block_and_dtype_comes_back(block: int, dtype: torch.dtype) -> None:
    dense = torch.zeros(block * 2 + 3, block * 3, dtype=dtype)
    dense[0, 0] = 1
    dense[block * 2 + 2, block * 2] = -2
    matrix = BlockSparseMatrix.from_dense(dense, block=block)
    assert (matrix.nnz_blocks, matrix.block, matrix.dtype, matrix.shape) == (2, block, dtype, dense.shape)
    assert torch.equal(matrix.to_dense(), dense)


def test_the_unused_part_of_the_last_blocks_is_zero() -> None:
    matrix = BlockSparseMatrix.from_dense(torch.ones(17, 20), block=16)
    assert matrix.nnz_blocks == 4
    assert float(matrix.values.sum()) == 17 * 20
    drawn = BlockSparseMatrix.random(17, 20, block=16, density=1.0)
    assert int((drawn.values != 0).sum()) == 17 * 20


def test_a_block_of_nan_is_stored_and_one_of_negative_zero_is_not() -> None:
    dense = torch.zeros(32, 32)
    dense[0, 0], dense[20, 20] = torch.nan, -0.0
    matrix = BlockSparseMatrix.from_dense(dense, block=16)
    assert matrix.pattern.col.tolist() == [0]


def test_a_matrix_of_zeros_has_no_blocks() -> None:
    matrix = BlockSparseMatrix.from_dense(torch.zeros(40, 50), block=32)
    assert (matrix.nnz_blocks, matrix.density) == (0, 0.0)
    assert matrix.values.shape == (0, 32, 32)
    assert torch.equal(matrix.to_dense(), torch.zeros(40, 50))
    assert torch.equal(matrix.T.to_dense(), torch.zeros(50, 40))


def test_a_dense_tensor_in_any_memory_order_is_taken() -> None:
    dense = torch.randn(48, 32)
    assert torch.equal(BlockSparseMatrix.from_dense(dense.T, block=16).to_dense(), dense.T)
    assert torch.equal(BlockSparseMatrix.from_dense(dense[::2, 1:], block=16).to_dense(), dense[::2, 1:])


def test_a_mask_stores_zero_blocks_too() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    dense = torch.zeros(30, 32)
    dense[29, 31] = 5
    matrix = BlockSparseMatrix.from_mask(mask, block=16, values=dense)
    assert (matrix.nnz_blocks, matrix.shape) == (3, (30, 32))
    assert torch.equal(matrix.to_dense(), dense)


def test_a_mask_leaves_out_what_it_does_not_keep() -> None:
    mask = torch.tensor([[True, False], [False, True]])
    matrix = BlockSparseMatrix.from_mask(mask, block=16, values=torch.ones(32, 32))
    assert torch.equal(matrix.to_dense(), expanded(mask, 16, (32, 32)).float())


def test_a_mask_alone_gives_zeros_to_fill() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    matrix = BlockSparseMatrix.from_mask(mask, block=32, dtype=torch.bfloat16, shape=(50, 60))
    assert (matrix.shape, matrix.dtype, matrix.nnz_blocks) == ((50, 60), torch.bfloat16, 3)
    assert BlockSparseMatrix.from_mask(mask, block=32).shape == (64, 64)


def test_a_mask_takes_stored_blocks() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    values = torch.randn(3, 16, 16)
    matrix = BlockSparseMatrix.from_mask(mask, block=16, values=values)
    assert matrix.values is values
    with pytest.raises(UnsupportedInput, match=r"values has shape \[3, 16, 16\]; \[2, 16, 16\] is accepted"):
        BlockSparseMatrix.from_mask(torch.eye(2, dtype=torch.bool), block=16, values=values)


def test_a_mask_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match=r"mask has shape \[2, 2\]; \[3, 2\] is accepted"):
        BlockSparseMatrix.from_mask(torch.ones(2, 2, dtype=torch.bool), block=16, values=torch.ones(33, 32))
    with pytest.raises(UnsupportedInput, match="mask is float32; accepted are bool"):
        BlockSparseMatrix.from_mask(torch.ones(2, 2), block=16)


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(BLOCKS), st.floats(0, 1))
def test_a_random_matrix_has_the_asked_number_of_distinct_blocks(
    rows: int, cols: int, block: int, density: float
) -> None:
    matrix = BlockSparseMatrix.random(rows, cols, block=block, density=density)
    blocks = -(-rows // block) * -(-cols // block)
    assert matrix.nnz_blocks == round(density * blocks)
    assert matrix.density == matrix.nnz_blocks / blocks
    BlockSparseMatrix.from_parts(matrix.values, matrix.pattern.crow, matrix.pattern.col, (rows, cols))


def test_a_random_matrix_repeats_with_its_generator() -> None:
    made = [
        BlockSparseMatrix.random(64, 64, block=16, density=0.4, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    ]
    assert torch.equal(made[0].to_dense(), made[1].to_dense())
    with pytest.raises(UnsupportedInput, match=r"density is 1\.5; 0 to 1 is accepted"):
        BlockSparseMatrix.random(64, 64, block=16, density=1.5)


@pytest.mark.parametrize("tensor", [torch.ones(4), torch.ones(2, 2, 2), torch.ones(2, 2).int(), torch.ones(0, 4)])
def test_what_is_no_matrix_of_numbers_is_refused(tensor: Tensor) -> None:
    with pytest.raises(UnsupportedInput):
        BlockSparseMatrix.from_dense(tensor, block=16)


def test_a_sparse_tensor_is_sent_to_its_own_door() -> None:
    with pytest.raises(UnsupportedInput, match=r"layout torch\.sparse_coo; .* from_torch_bsr"):
        BlockSparseMatrix.from_dense(torch.eye(16).to_sparse(), block=16)


def test_gradients_flow_from_the_blocks_to_the_dense_tensor() -> None:
    dense = torch.randn(20, 18, dtype=torch.float64, requires_grad=True)

    def through_blocks(given: Tensor) -> Tensor:
        return BlockSparseMatrix.from_dense(given, block=16).values

    assert torch.autograd.gradcheck(through_blocks, (dense,))


def unsorted_parts() -> tuple[Tensor, Tensor]:
    return torch.tensor([0, 3, 4]), torch.tensor([2, 0, 2, 1])


def test_an_unsorted_matrix_is_put_in_order_bit_for_bit() -> None:
    values = torch.randn(4, 16, 16)
    crow, col = torch.tensor([0, 3, 4], dtype=torch.int32), torch.tensor([1, 2, 0, 1], dtype=torch.int32)
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (32, 48), allow_unsorted=True)
    ordered = matrix.canonicalize()
    assert ordered.pattern.col.tolist() == [0, 1, 2, 1]
    assert ordered.pattern.col.dtype == torch.int32
    assert torch.equal(ordered.values, values[[2, 0, 1, 3]])
    assert torch.equal(ordered.to_dense(), matrix.to_dense())
    assert ordered.canonicalize() is ordered


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_blocks_stored_twice_are_summed(dtype: torch.dtype) -> None:
    values = torch.randn(4, 16, 16, dtype=dtype)
    crow, col = unsorted_parts()
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (32, 48), allow_unsorted=True, allow_duplicates=True)
    wanted = torch.zeros(32, 48, dtype=dtype)
    wanted[:16, 32:] = values[0] + values[2]
    wanted[:16, :16], wanted[16:, 16:32] = values[1], values[3]
    assert torch.equal(matrix.to_dense(), wanted)
    assert torch.equal(matrix.T.to_dense(), wanted.T)
    once = matrix.canonicalize()
    assert (once.nnz_blocks, once.pattern.distinct, once.pattern.col.dtype) == (3, True, torch.int64)
    assert torch.equal(once.to_dense(), wanted)


def test_a_transpose_becomes_a_matrix_of_its_own() -> None:
    matrix = BlockSparseMatrix.random(50, 70, block=16, density=0.5)
    own = matrix.T.canonicalize()
    assert not own.is_transposed
    assert torch.equal(own.to_dense(), matrix.to_dense().T)
    BlockSparseMatrix.from_parts(own.values, own.pattern.crow, own.pattern.col, own.shape)


def test_gradients_flow_through_putting_in_order() -> None:
    crow, col = unsorted_parts()
    values = torch.randn(4, 16, 16, dtype=torch.float64, requires_grad=True)

    def ordered(given: Tensor) -> Tensor:
        matrix = BlockSparseMatrix.from_parts(given, crow, col, (32, 48), allow_unsorted=True, allow_duplicates=True)
        return matrix.T.canonicalize().to_dense()

    assert torch.autograd.gradcheck(ordered, (values,), fast_mode=True)


def test_a_matrix_made_in_inference_mode_can_be_trained_by_other_values() -> None:
    with torch.inference_mode():
        made = BlockSparseMatrix.from_dense(torch.ones(32, 32), block=16)
        given = BlockSparseMatrix.from_parts(
            torch.ones(4, 16, 16), made.pattern.crow + 0, made.pattern.col + 0, (32, 32)
        )
    for matrix in (made, given):
        assert not matrix.pattern.crow.is_inference()
        assert not matrix.pattern.col.is_inference()
        values = torch.ones(4, 16, 16, requires_grad=True)
        matrix.with_values(values).to_dense().sum().backward()  # type: ignore[no-untyped-call]
        assert values.grad is not None


def test_a_matrix_of_more_than_two_to_the_31_elements_has_its_parts() -> None:
    blocks = 2**31 // 128**2 + 1
    values = torch.empty(blocks, 128, 128, dtype=torch.float16, device="meta")
    crow = torch.empty(blocks + 1, dtype=torch.int32, device="meta")
    col = torch.empty(blocks, dtype=torch.int32, device="meta")
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (blocks * 128, 128), validate=False)
    assert matrix.values.numel() > 2**31
    assert matrix.to_dense().shape == (blocks * 128, 128)
    assert matrix.T.index.row_starts.shape == (2,)
    assert matrix.schedule.segments(8).bound == blocks + (blocks - 1) // 8


def test_places_beyond_two_to_the_31_are_told_apart() -> None:
    # two blocks whose row * block_cols + column differs by 2^32 exactly: 32-bit arithmetic takes them for one
    last_row, block_cols = 2**16, 2**16
    crow = torch.cat([torch.zeros(1), torch.ones(last_row), torch.full((1,), 2.0)]).int()
    col = torch.zeros(2, dtype=torch.int32)
    shape = ((last_row + 1) * 16, block_cols * 16)
    matrix = BlockSparseMatrix.from_parts(torch.ones(2, 16, 16), crow, col, shape)
    assert matrix.nnz_blocks == 2
    assert matrix.T.canonicalize().nnz_blocks == 2

"""Conversions: the same matrix in torch's, SciPy's and stk's forms, and in blocks of another size."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.convert import drop_zero_blocks, from_block_coo, from_scipy_bsr, from_stk, reblock
from firstlight.kernels.matrix import BlockSparseMatrix

BLOCKS = (16, 32, 64, 128)


def checked(matrix: BlockSparseMatrix) -> BlockSparseMatrix:
    """The matrix, after its indices passed the checks of from_parts."""
    pattern = matrix.pattern
    BlockSparseMatrix.from_parts(matrix.values, pattern.crow, pattern.col, pattern.shape)
    return matrix


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_torch_bsr_tensor_is_taken_without_a_copy_and_given_back(block: int, dtype: torch.dtype) -> None:
    dense = BlockSparseMatrix.random(2 * block, 3 * block, block=block, density=0.5, dtype=dtype).to_dense()
    theirs = dense.to_sparse_bsr((block, block))
    matrix = BlockSparseMatrix.from_torch_bsr(theirs)
    assert matrix.values.data_ptr() == theirs.values().data_ptr()
    assert torch.equal(matrix.to_dense(), dense)
    back = matrix.to_torch_bsr()
    assert back.layout == torch.sparse_bsr
    assert back.values().data_ptr() == theirs.values().data_ptr()
    assert torch.equal(back.to_dense(), dense)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_index_dtype_of_a_torch_bsr_tensor_stays(dtype: torch.dtype) -> None:
    theirs = torch.sparse_bsr_tensor(
        torch.tensor([0, 1, 2], dtype=dtype), torch.tensor([1, 0], dtype=dtype), torch.ones(2, 16, 16), (32, 32)
    )
    matrix = BlockSparseMatrix.from_torch_bsr(theirs)
    assert matrix.pattern.col.dtype == dtype
    assert matrix.to_torch_bsr().col_indices().dtype == dtype
    assert reblock(matrix, 32).pattern.crow.dtype == dtype
    assert drop_zero_blocks(matrix).pattern.crow.dtype == dtype


@pytest.mark.parametrize(
    ("theirs", "ours"), [((64, 32), 32), ((64, 32), 16), ((8, 8), 16), ((8, 4), 32), ((96, 48), 16)]
)
def test_torch_bsr_blocks_of_other_sizes_are_split_and_joined(theirs: tuple[int, int], ours: int) -> None:
    dense = torch.randn(192, 192) * (torch.rand(192, 192) < 0.0005)
    bsr = dense.to_sparse_bsr(theirs)
    with pytest.raises(UnsupportedInput, match=f"the blocks are {theirs[0]} x {theirs[1]}; 16, 32, 64 and 128 square"):
        BlockSparseMatrix.from_torch_bsr(bsr)
    matrix = checked(BlockSparseMatrix.from_torch_bsr(bsr, block=ours))
    assert matrix.block == ours
    assert torch.equal(matrix.to_dense(), dense)


def test_a_transposed_matrix_becomes_a_torch_bsr_tensor() -> None:
    matrix = BlockSparseMatrix.random(64, 96, block=32, density=0.5)
    assert torch.equal(matrix.T.to_torch_bsr().to_dense(), matrix.to_dense().T)


def test_what_torch_bsr_cannot_hold_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match=r"the matrix is \[30, 32\] with block 16; .* multiples of the block"):
        BlockSparseMatrix.from_dense(torch.ones(30, 32), block=16).to_torch_bsr()
    with pytest.raises(UnsupportedInput, match=r"layout torch\.strided; torch\.sparse_bsr is accepted"):
        BlockSparseMatrix.from_torch_bsr(torch.ones(16, 16))
    batch = torch.ones(2, 16, 16).to_sparse_bsr((16, 16))
    with pytest.raises(UnsupportedInput, match="two dimensions are accepted"):
        BlockSparseMatrix.from_torch_bsr(batch)


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(BLOCKS, 2)))
@pytest.mark.parametrize("shape", [(256, 384), (250, 131)])
def test_blocks_of_another_size_hold_the_same_matrix(before: int, after: int, shape: tuple[int, int]) -> None:
    matrix = BlockSparseMatrix.random(*shape, block=before, density=0.4)
    other = checked(reblock(matrix, after))
    assert other.block == after
    assert torch.equal(other.to_dense(), matrix.to_dense())
    assert torch.equal(reblock(matrix.T, after).to_dense(), matrix.to_dense().T)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.floats(0, 1))
def test_splitting_and_joining_again_gives_the_same_pattern(rows: int, cols: int, density: float) -> None:
    matrix = BlockSparseMatrix.random(rows, cols, block=64, density=density)
    back = reblock(reblock(matrix, 16), 64)
    assert torch.equal(back.pattern.crow, matrix.pattern.crow)
    assert torch.equal(back.pattern.col, matrix.pattern.col)
    assert torch.equal(back.values, matrix.values)


def test_splitting_keeps_zero_pieces_until_they_are_dropped() -> None:
    dense = torch.zeros(128, 128)
    dense[5, 5] = 1
    pieces = reblock(BlockSparseMatrix.from_dense(dense, block=128), 32)
    assert pieces.nnz_blocks == 16
    fewer = checked(drop_zero_blocks(pieces))
    assert fewer.nnz_blocks == 1
    assert torch.equal(fewer.to_dense(), dense)
    assert torch.equal(drop_zero_blocks(pieces.T).to_dense(), dense.T)


def test_the_same_size_is_the_same_matrix() -> None:
    matrix = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    assert reblock(matrix, 16) is matrix
    with pytest.raises(UnsupportedInput, match="block is 20"):
        reblock(matrix, 20)


@pytest.mark.parametrize("block", [16, 64])
def test_gradients_flow_through_another_block_size(block: int) -> None:
    matrix = BlockSparseMatrix.random(40, 70, block=32, density=0.7, dtype=torch.float64)
    values = matrix.values.detach().requires_grad_()

    def dense_of(given: Tensor) -> Tensor:
        return reblock(matrix.with_values(given), block).to_dense()

    assert torch.autograd.gradcheck(dense_of, (values,), fast_mode=True)


def test_duplicates_are_summed_by_another_block_size() -> None:
    values = torch.randn(3, 16, 16)
    crow, col = torch.tensor([0, 3]), torch.tensor([0, 1, 1])
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (16, 32), allow_duplicates=True)
    assert torch.equal(reblock(matrix, 32).to_dense(), matrix.to_dense())


def test_blocks_with_their_places_are_sorted() -> None:
    values = torch.randn(3, 16, 16)
    matrix = checked(from_block_coo(values, torch.tensor([1, 0, 1]), torch.tensor([2, 0, 1]), (32, 48)))
    assert matrix.pattern.crow.tolist() == [0, 1, 3]
    assert matrix.pattern.col.tolist() == [0, 1, 2]
    assert torch.equal(matrix.values, values[[1, 2, 0]])


def test_blocks_with_places_out_of_range_or_stored_twice_are_refused() -> None:
    values = torch.zeros(2, 16, 16)
    with pytest.raises(UnsupportedInput, match="rows holds 0 to 2; block rows 0 to 1 are accepted"):
        from_block_coo(values, torch.tensor([0, 2]), torch.tensor([0, 0]), (32, 32))
    with pytest.raises(UnsupportedInput, match="block row 1 stores block column 0 more than once"):
        from_block_coo(values, torch.tensor([1, 1]), torch.tensor([0, 0]), (32, 32))


def test_scipy_parts_are_copied() -> None:
    dense = torch.zeros(64, 32)
    dense[40, 20] = 3
    bsr = dense.to_sparse_bsr((32, 16))
    theirs = SimpleNamespace(  # what scipy.sparse.bsr_array offers
        data=bsr.values().numpy(),
        indices=bsr.col_indices().int().numpy(),
        indptr=bsr.crow_indices().int().numpy(),
        shape=(64, 32),
        has_sorted_indices=True,
    )
    matrix = checked(from_scipy_bsr(theirs, block=16))
    assert torch.equal(matrix.to_dense(), dense)
    assert matrix.values.data_ptr() != bsr.values().data_ptr()


def scipy_matrix(values: Tensor, col: list[int], crow: list[int], shape: tuple[int, int]) -> SimpleNamespace:
    """What scipy.sparse.bsr_array offers."""
    col_array, crow_array = (torch.tensor(part, dtype=torch.int32).numpy() for part in (col, crow))
    return SimpleNamespace(data=values.numpy(), indices=col_array, indptr=crow_array, shape=shape)


@pytest.mark.parametrize("block", [None, 16, 64])
def test_scipy_blocks_stored_twice_are_summed_in_any_order(block: int | None) -> None:
    values = torch.randn(4, 32, 32)
    theirs = scipy_matrix(values, [1, 0, 1, 1], [0, 3, 4], (64, 64))
    matrix = checked(from_scipy_bsr(theirs, block=block))
    zeros = torch.zeros(32, 32)
    dense = torch.cat([torch.cat([values[1], values[0] + values[2]], 1), torch.cat([zeros, values[3]], 1)])
    assert torch.equal(matrix.to_dense(), dense)
    assert matrix.pattern.distinct


def test_a_scipy_column_outside_of_the_matrix_is_refused() -> None:
    theirs = scipy_matrix(torch.randn(2, 32, 32), [0, 2], [0, 1, 2], (64, 64))
    for block in (None, 16):
        with pytest.raises(UnsupportedInput, match="col holds 2 at entry 1, in block row 1"):
            from_scipy_bsr(theirs, block=block)


def unchecked_bsr(crow: list[int], col: list[int], shape: tuple[int, int], *, width: int = 32) -> Tensor:
    values = torch.randn(len(col), 32, width)
    return torch.sparse_bsr_tensor(crow, col, values, size=shape, check_invariants=False)


@pytest.mark.parametrize("block", [None, 16, 64])
@pytest.mark.parametrize(
    ("crow", "col", "message"),
    [
        ([0, 2, 3], [0, 0, 1], "block row 0 stores block column 0 more than once"),
        ([0, 2, 3], [0, 2, 1], "col holds 2 at entry 1, in block row 0"),
        ([0, 2, 3], [0, -1, 1], "col holds -1 at entry 1, in block row 0"),
        ([0, 2, 2], [0, 1, 1], "crow ends with 2 and there are 3 stored blocks"),
        ([0, 1, 2, 3], [0, 1, 1], r"crow has shape \[4\]"),
    ],
)
def test_a_wrong_torch_bsr_tensor_is_refused_at_every_block_size(
    block: int | None, crow: list[int], col: list[int], message: str
) -> None:
    with pytest.raises(UnsupportedInput, match=message):
        BlockSparseMatrix.from_torch_bsr(unchecked_bsr(crow, col, (64, 64)), block=block)


def test_numbers_beyond_the_shape_are_refused_at_another_block_size() -> None:
    for shape in ((60, 64), (64, 60)):
        with pytest.raises(UnsupportedInput, match="hold non-zero numbers beyond the shape"):
            BlockSparseMatrix.from_torch_bsr(unchecked_bsr([0, 1, 2], [0, 3], shape, width=16), block=16)


def test_unsorted_torch_bsr_blocks_are_sorted_by_another_block_size() -> None:
    bsr = unchecked_bsr([0, 2, 3], [1, 0, 1], (64, 64))
    matrix = checked(BlockSparseMatrix.from_torch_bsr(bsr, block=16))
    first, second, third = bsr.values()
    dense = torch.cat([torch.cat([second, first], 1), torch.cat([torch.zeros(32, 32), third], 1)])
    assert torch.equal(matrix.to_dense(), dense)


def test_an_stk_matrix_is_taken_around_its_values() -> None:
    data = torch.randn(2, 128, 128, dtype=torch.float16)
    theirs = SimpleNamespace(  # what stk.Matrix offers; its column indices are 16-bit
        size=lambda: torch.Size((256, 128)),
        data=data,
        offsets=torch.tensor([0, 1, 2], dtype=torch.int32),
        column_indices=torch.tensor([0, 0], dtype=torch.int16),
    )
    matrix = from_stk(theirs)
    assert matrix.values is data
    assert torch.equal(matrix.to_dense(), data.view(256, 128))


def test_gradients_flow_from_the_dense_tensor_to_the_values() -> None:
    matrix = BlockSparseMatrix.random(30, 40, block=16, density=0.6, dtype=torch.float64)
    values = matrix.values.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda given: matrix.with_values(given).T.to_dense(), (values,), fast_mode=True)
    inside = matrix.with_values(torch.ones_like(values)).to_dense()
    matrix.with_values(values).to_dense().sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert float(values.grad.sum()) == float(inside.sum())  # the unused part of edge blocks gets no gradient

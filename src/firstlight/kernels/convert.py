"""Between block-sparse matrices and dense tensors, torch's and SciPy's BSR, stk's matrices, and other block sizes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import require_block, require_dtype, require_pattern, require_shape, require_size
from firstlight.kernels.construct import STRICT, Allowed, from_parts, pattern_from_places, summed, with_index_dtype
from firstlight.kernels.index import Index
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.pattern import BLOCKS, Pattern, rows_of_entries


def to_dense(matrix: BlockSparseMatrix) -> Tensor:
    """[rows, cols] with zeros where no block is stored; gradients flow to the values."""
    pattern = matrix.pattern
    dense = scatter(pattern.forward, matrix.values, rows=pattern.rows_of_entries, distinct=pattern.distinct)
    return dense.mT.contiguous() if matrix.is_transposed else dense


def scatter(index: Index, values: Tensor, *, rows: Tensor, distinct: bool) -> Tensor:
    """The dense tensor of stored blocks as they are (entry e is block e); blocks at one place are summed."""
    block = index.block
    if not distinct:
        places = rows.to(torch.int64) * index.block_cols + index.columns
        flat = summed(values, places, index.block_rows * index.block_cols)
        dense = flat.view(index.block_rows, index.block_cols, block, block).permute(0, 2, 1, 3)
        return dense.reshape(index.block_rows * block, index.block_cols * block)[
            : index.rows, : index.cols
        ].contiguous()
    dense = values.new_zeros(index.block_rows * block, index.block_cols * block)
    blocked = dense.view(index.block_rows, block, index.block_cols, block).permute(0, 2, 1, 3)
    blocked.index_put_((rows, index.columns), values)
    return dense[: index.rows, : index.cols].contiguous()


def from_torch_bsr(tensor: Tensor, *, block: int | None = None) -> BlockSparseMatrix:
    """The blocks of a torch.sparse_bsr tensor, without a copy where its blocks are square and of an accepted size.

    block: splits or joins the blocks into this size. No gradient flows to the torch tensor.
    """
    if tensor.layout != torch.sparse_bsr:
        raise UnsupportedInput(
            f"the tensor has layout {tensor.layout}; torch.sparse_bsr is accepted. Use from_dense for a dense tensor, "
            f"or pass tensor.to_sparse_bsr((64, 64))."
        )
    if tensor.dim() != 2:
        raise UnsupportedInput(
            f"the tensor has shape {list(tensor.shape)}; two dimensions are accepted. Convert each matrix of the batch."
        )
    values, crow, col = tensor.values().detach(), tensor.crow_indices(), tensor.col_indices()
    shape = (tensor.shape[0], tensor.shape[1])
    return _from_rectangular(values, crow, col, shape, block=block, allowed=STRICT)


def _from_rectangular(
    values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int], *, block: int | None, allowed: Allowed
) -> BlockSparseMatrix:
    height, width = values.shape[-2:]
    if block is None or (height, width) == (block, block):
        if height != width or height not in BLOCKS:
            raise UnsupportedInput(
                f"the blocks are {height} x {width}; 16, 32, 64 and 128 square are accepted. Pass block= to split or "
                f"join them, e.g. block=16."
            )
        return from_parts(values, crow, col, shape, allowed=allowed)
    require_block(block)
    require_shape(crow, "crow", (-(-shape[0] // height) + 1,))
    require_shape(col, "col", (values.shape[0],))
    # the pieces are put in order, so the blocks need not be
    require_pattern(crow, col, -(-shape[1] // width), allow_unsorted=True, allow_duplicates=allowed.duplicates)
    rows, cols = rows_of_entries(crow, col).to(torch.int64), col.to(torch.int64)
    _require_inside(values, rows, cols, shape)
    pieces = _Pieces(values, rows, cols).split(math.gcd(height, width, block))
    return pieces.joined(shape, block, distinct=not allowed.duplicates, index_dtype=col.dtype)


def _require_inside(values: Tensor, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
    """Raises on a non-zero number beyond the shape, as checks.require_zero_padding does for square blocks."""
    height, width = values.shape[-2:]
    if shape[0] % height == 0 and shape[1] % width == 0:
        return
    below = rows[:, None] * height + torch.arange(height, device=rows.device) >= shape[0]
    right = cols[:, None] * width + torch.arange(width, device=cols.device) >= shape[1]
    if bool(((below[:, :, None] | right[:, None, :]) & (values != 0)).any()):
        raise UnsupportedInput(
            f"blocks of {height} x {width} hold non-zero numbers beyond the shape {list(shape)}; zeros are accepted "
            f"there. Zero them, or pass the larger shape."
        )


def to_torch_bsr(matrix: BlockSparseMatrix) -> Tensor:
    """A torch.sparse_bsr tensor around the same values; of a transpose or an unsorted pattern around a sorted copy."""
    rows, cols = matrix.shape
    if rows % matrix.block or cols % matrix.block:
        raise UnsupportedInput(
            f"the matrix is [{rows}, {cols}] with block {matrix.block}; torch.sparse_bsr takes multiples of the block. "
            f"Re-block with firstlight.kernels.convert.reblock, or use to_dense()."
        )
    own = matrix.canonicalize()
    parts = (own.pattern.crow, own.pattern.col, own.values)
    return torch.sparse_bsr_tensor(*parts, size=own.shape, check_invariants=False)


def from_block_coo(values: Tensor, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> BlockSparseMatrix:
    """Blocks in any order with their block row and block column, e.g. rows [1, 0], cols [0, 2]; copied in order."""
    entries = values.shape[0]
    require_shape(rows, "rows", (entries,))
    require_shape(cols, "cols", (entries,))
    order = torch.argsort(rows, stable=True)
    edges = torch.arange(-(-shape[0] // values.shape[-1]) + 1, dtype=rows.dtype, device=rows.device)
    crow = torch.searchsorted(rows[order], edges)
    if entries and not (int(rows.min()) >= 0 and int(rows.max()) < edges.shape[0] - 1):
        raise UnsupportedInput(
            f"rows holds {int(rows.min())} to {int(rows.max())}; block rows 0 to {edges.shape[0] - 2} are accepted. "
            f"Correct rows, or pass the shape they were made for."
        )
    crow, col = crow.to(torch.int32), cols[order].to(torch.int32)
    return from_parts(values[order], crow, col, shape, allowed=Allowed(unsorted=True)).canonicalize()


def from_scipy_bsr(matrix: Any, *, block: int | None = None) -> BlockSparseMatrix:
    """A scipy.sparse.bsr_array or bsr_matrix on the CPU; the numbers are copied. block: as for from_torch_bsr.

    Blocks in any order are taken, and those stored twice are summed, which is what they mean to SciPy.
    """
    values, col, crow = (torch.tensor(part) for part in (matrix.data, matrix.indices, matrix.indptr))
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    allowed = Allowed(unsorted=True, duplicates=True)
    return _from_rectangular(values, crow, col, shape, block=block, allowed=allowed).canonicalize()


def from_stk(matrix: Any) -> BlockSparseMatrix:
    """An stk.Matrix around its own values; its 16-bit column indices become 32-bit."""
    rows, cols = (int(size) for size in matrix.size())
    crow, col = matrix.offsets.to(torch.int32), matrix.column_indices.to(torch.int32)
    return from_parts(matrix.data, crow, col, (rows, cols))


def reblock(matrix: BlockSparseMatrix, block: int) -> BlockSparseMatrix:
    """The same matrix in blocks of another size; gradients flow to its values.

    Splitting keeps pieces that are zero (drop_zero_blocks removes them); joining fills with zeros.
    """
    require_block(block)
    if block == matrix.block:
        return matrix
    pattern = matrix.pattern
    pieces = _Pieces(matrix.values, pattern.rows_of_entries.to(torch.int64), pattern.col.to(torch.int64))
    made = pieces.split(min(block, matrix.block)).joined(
        pattern.shape, block, distinct=pattern.distinct, index_dtype=pattern.col.dtype
    )
    return made.T if matrix.is_transposed else made


def drop_zero_blocks(matrix: BlockSparseMatrix) -> BlockSparseMatrix:
    """The matrix without the stored blocks that hold zeros only; gradients flow to its values."""
    pattern = matrix.pattern
    kept = (matrix.values.detach() != 0).flatten(1).any(1).nonzero().flatten()
    with torch.inference_mode(mode=False):
        rows, cols = pattern.rows_of_entries[kept], pattern.col[kept]
        fewer = with_index_dtype(pattern_from_places(rows, cols, pattern.shape, pattern.block), pattern.col.dtype)
        fewer = Pattern(fewer.crow, fewer.col, fewer.shape, fewer.block, distinct=pattern.distinct)
    return BlockSparseMatrix(matrix.values[kept], fewer, is_transposed=matrix.is_transposed)


class _Pieces:
    """Blocks with their places, on the way to another block size."""

    def __init__(self, values: Tensor, rows: Tensor, cols: Tensor) -> None:
        self.values, self.rows, self.cols = values, rows, cols

    def split(self, unit: int) -> _Pieces:
        """Square pieces of `unit` rows, which divides height and width of the blocks."""
        height, width = self.values.shape[1] // unit, self.values.shape[2] // unit
        if height == width == 1:
            return self
        tiles = self.values.reshape(-1, height, unit, width, unit).permute(0, 1, 3, 2, 4)
        down = torch.arange(height, device=self.rows.device)[None, :, None]
        right = torch.arange(width, device=self.rows.device)[None, None, :]
        rows = (self.rows[:, None, None] * height + down).expand(-1, height, width)
        cols = (self.cols[:, None, None] * width + right).expand(-1, height, width)
        return _Pieces(tiles.reshape(-1, unit, unit), rows.reshape(-1), cols.reshape(-1))

    def joined(
        self, shape: tuple[int, int], block: int, *, distinct: bool, index_dtype: torch.dtype
    ) -> BlockSparseMatrix:
        """The matrix in blocks of `block`, which the pieces divide; pieces beyond the shape are left out."""
        require_size(*shape)
        require_dtype(self.values, "values")
        unit = self.values.shape[1]
        inside = ((self.rows * unit < shape[0]) & (self.cols * unit < shape[1])).nonzero().flatten()
        values, rows, cols = self.values[inside], self.rows[inside], self.cols[inside]
        factor = block // unit
        block_cols = -(-shape[1] // block)
        places = torch.div(rows, factor, rounding_mode="floor") * block_cols
        places += torch.div(cols, factor, rounding_mode="floor")
        present, target = torch.unique(places, return_inverse=True)
        pieces_each = factor * factor
        slot = target * pieces_each + (rows % factor) * factor + cols % factor
        if distinct:
            stored = values.new_zeros(present.shape[0] * pieces_each, unit, unit).index_put((slot,), values)
        else:
            stored = summed(values, slot, present.shape[0] * pieces_each)
        stored = stored.view(-1, factor, factor, unit, unit).permute(0, 1, 3, 2, 4).reshape(-1, block, block)
        with torch.inference_mode(mode=False):
            at_rows = torch.div(present, block_cols, rounding_mode="floor")
            pattern = pattern_from_places(at_rows, present % block_cols, shape, block)
            return BlockSparseMatrix(stored, with_index_dtype(pattern, index_dtype))

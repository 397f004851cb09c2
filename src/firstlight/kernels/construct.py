"""Ways to make a block-sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import (
    require_block,
    require_dtype,
    require_parts,
    require_pattern,
    require_same_device,
    require_shape,
    require_size,
    require_tensor,
    require_zero_padding,
)
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.pattern import Pattern, rows_of_entries


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which patterns from_parts takes beyond sorted, distinct and checked ones."""

    unsorted: bool = False
    duplicates: bool = False
    unchecked: bool = False


STRICT = Allowed()


def from_parts(
    values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int], *, allowed: Allowed = STRICT
) -> BlockSparseMatrix:
    """A matrix around these very tensors, e.g. values [3, 64, 64], crow [0, 2, 3], col [0, 1, 1], shape (128, 128)."""
    require_parts(values, crow, col, shape)
    rows, cols = int(shape[0]), int(shape[1])
    if not allowed.unchecked:
        block_cols = -(-cols // values.shape[1])
        require_pattern(crow, col, block_cols, allow_unsorted=allowed.unsorted, allow_duplicates=allowed.duplicates)
        require_zero_padding(values, crow, col, (rows, cols))
    pattern = Pattern(_ordinary(crow), _ordinary(col), (rows, cols), values.shape[1], distinct=not allowed.duplicates)
    return BlockSparseMatrix(values, pattern)


def _ordinary(index: Tensor) -> Tensor:
    """The tensor, or a copy of one made in inference mode: those neither count changes nor serve a backward pass."""
    if not index.is_inference():
        return index.contiguous()
    with torch.inference_mode(mode=False):
        return index.clone(memory_format=torch.contiguous_format)


def from_dense(dense: Tensor, *, block: int) -> BlockSparseMatrix:
    """Stores the blocks that hold a non-zero number (NaN is one); gradients flow to `dense`."""
    _require_matrix(dense, "dense")
    require_block(block)
    blocked = blocks_of(dense, block)
    return _from_blocked(blocked, (blocked.detach() != 0).any(3).any(2), tuple_of(dense), block)


def from_mask(
    mask: Tensor,
    *,
    block: int,
    values: Tensor | None = None,
    shape: tuple[int, int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> BlockSparseMatrix:
    """Stores the blocks where the mask is True; see BlockSparseMatrix.from_mask."""
    require_block(block)
    require_tensor(mask, "mask")
    require_dtype(mask, "mask", (torch.bool,))
    require_shape(mask, "mask", (None, None))
    if values is not None:
        require_tensor(values, "values")
        require_dtype(values, "values")
        require_same_device(values, "values", mask, "mask")
    if shape is None:
        shape = tuple_of(values) if values is not None and values.dim() == 2 else tuple_of(mask, block)
    require_size(*shape)
    require_shape(mask, "mask", (-(-shape[0] // block), -(-shape[1] // block)))
    if values is not None and values.dim() == 2:
        require_shape(values, "values", shape)
        return _from_blocked(blocks_of(values, block), mask, shape, block)
    pattern = pattern_from_mask(mask, shape, block)
    if values is None:
        values = torch.zeros(pattern.entries, block, block, dtype=dtype, device=mask.device)
        require_dtype(values, "values")
    require_shape(values, "values", (pattern.entries, block, block))
    require_zero_padding(values, pattern.crow, pattern.col, shape)
    return BlockSparseMatrix(values, pattern)


def random(
    rows: int,
    cols: int,
    *,
    block: int,
    density: float,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> BlockSparseMatrix:
    """Normal random values in round(density * blocks) blocks at random places, e.g. 1638 of 16384 at density 0.1."""
    require_block(block)
    require_size(rows, cols)
    if not 0.0 <= density <= 1.0:
        raise UnsupportedInput(f"density is {density}; 0 to 1 is accepted.")
    block_rows, block_cols = -(-rows // block), -(-cols // block)
    places = block_rows * block_cols
    draw = generator.device if generator is not None else device
    chosen = torch.randperm(places, device=draw, generator=generator)[: round(density * places)]
    mask = torch.zeros(places, dtype=torch.bool, device=device)
    mask[chosen.to(device)] = True
    pattern = pattern_from_mask(mask.view(block_rows, block_cols), (rows, cols), block)
    values = torch.empty(pattern.entries, block, block, dtype=dtype, device=draw)
    require_dtype(values, "values")
    values = values.normal_(generator=generator).to(device)
    return BlockSparseMatrix(zero_padding(values, pattern), pattern)


def pattern_from_mask(mask: Tensor, shape: tuple[int, int], block: int) -> Pattern:
    """The pattern of a [block rows, block columns] mask, with int32 indices; the host waits for their number."""
    with torch.inference_mode(mode=False):
        rows, cols = mask.nonzero(as_tuple=True)
        return pattern_from_places(rows, cols, shape, block)


def pattern_from_places(rows: Tensor, cols: Tensor, shape: tuple[int, int], block: int) -> Pattern:
    """The pattern of blocks at (rows, cols), which are in row-major order and distinct."""
    edges = torch.arange(-(-shape[0] // block) + 1, dtype=rows.dtype, device=rows.device)
    crow = torch.searchsorted(rows.contiguous(), edges, out_int32=True)
    return Pattern(crow, cols.to(torch.int32), shape, block)


def zero_padding(values: Tensor, pattern: Pattern) -> Tensor:
    """The values with zeros where an edge block reaches beyond the matrix; itself where none does."""
    block, (rows, cols) = pattern.block, pattern.shape
    if rows % block == 0 and cols % block == 0:
        return values
    inside = torch.arange(block, device=values.device)
    row_ends = rows - pattern.rows_of_entries.to(torch.int64) * block
    col_ends = cols - pattern.col.to(torch.int64) * block
    used = (inside < row_ends[:, None])[:, :, None] & (inside < col_ends[:, None])[:, None, :]
    return torch.where(used, values, torch.zeros((), dtype=values.dtype, device=values.device))


def blocks_of(dense: Tensor, block: int) -> Tensor:
    """[block rows, block columns, block, block] of a [rows, cols] tensor; a view where the block divides both."""
    missing = (-dense.shape[1] % block, -dense.shape[0] % block)
    padded = functional.pad(dense, (0, missing[0], 0, missing[1])) if any(missing) else dense
    block_rows, block_cols = padded.shape[0] // block, padded.shape[1] // block
    return padded.reshape(block_rows, block, block_cols, block).permute(0, 2, 1, 3)


def _from_blocked(blocked: Tensor, mask: Tensor, shape: tuple[int, int], block: int) -> BlockSparseMatrix:
    pattern = pattern_from_mask(mask, shape, block)
    return BlockSparseMatrix(blocked[pattern.rows_of_entries, pattern.col], pattern)


def canonicalize(matrix: BlockSparseMatrix) -> BlockSparseMatrix:
    """Ascending block columns, each stored once; a transpose becomes a matrix of its own. The host waits."""
    index = matrix.index
    values = matrix.values if index.blocks is None else matrix.values[index.blocks]
    values = values.mT.contiguous() if index.blocks_transposed else values
    places = rows_of_entries(index.row_starts, index.columns).to(torch.int64) * index.block_cols + index.columns
    in_order = bool((places[1:] > places[:-1]).all())
    if in_order and matrix.pattern.distinct and not matrix.is_transposed:
        return matrix
    shape = (index.rows, index.cols)
    if in_order:
        with torch.inference_mode(mode=False):
            own = Pattern(index.row_starts.clone(), index.columns.clone(), shape, index.block)
        return BlockSparseMatrix(values.clone() if values is matrix.values else values, own)
    distinct, target = torch.unique(places, return_inverse=True)
    with torch.inference_mode(mode=False):
        rows = torch.div(distinct, index.block_cols, rounding_mode="floor")
        pattern = pattern_from_places(rows, distinct % index.block_cols, shape, index.block)
        pattern = with_index_dtype(pattern, index.columns.dtype)
    if distinct.shape[0] == places.shape[0]:
        return BlockSparseMatrix(values[torch.argsort(target)], pattern)
    return BlockSparseMatrix(summed(values, target, distinct.shape[0]), pattern)


def summed(values: Tensor, target: Tensor, count: int) -> Tensor:
    """[count, ...]: the values that go to each target, added in their order in float32 or float64."""
    precision = torch.float64 if values.dtype == torch.float64 else torch.float32
    total = torch.zeros(count, *values.shape[1:], dtype=precision, device=values.device)
    # index_put with accumulate sorts on the GPU and adds in one order; index_add adds in the order of arrival
    return total.index_put((target,), values.to(precision), accumulate=True).to(values.dtype)


def with_index_dtype(pattern: Pattern, dtype: torch.dtype) -> Pattern:
    """The same pattern with int32 or int64 indices."""
    if pattern.col.dtype == dtype:
        return pattern
    crow, col = pattern.crow.to(dtype), pattern.col.to(dtype)
    return Pattern(crow, col, pattern.shape, pattern.block, distinct=pattern.distinct)


def tuple_of(tensor: Tensor, unit: int = 1) -> tuple[int, int]:
    """The shape of a two-dimensional tensor in elements, e.g. (256, 128) of a [4, 2] mask at unit 64."""
    return tensor.shape[0] * unit, tensor.shape[1] * unit


def _require_matrix(tensor: Tensor, name: str) -> None:
    require_tensor(tensor, name)
    if tensor.layout != torch.strided:
        raise UnsupportedInput(
            f"{name} has layout {tensor.layout}; torch.strided is accepted. For torch.sparse_bsr use from_torch_bsr, "
            f"else pass {name}.to_dense()."
        )
    require_shape(tensor, name, (None, None))
    require_dtype(tensor, name)
    require_size(*tensor.shape)

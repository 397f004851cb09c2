"""out = W @ dense for small blocks: several block rows per program, walking the union of their columns.

What limits small blocks is the dense operand's way from L2 to shared memory: a dense element loaded for a stored block
of height h gives 2 h flops, h flops per byte, and 9 TB/s (H200) times 16 is 0.19 of the tensor cores' rate. So G block
rows share each dense tile: h becomes G * block, and the price is multiplying blocks that are not stored by zero. With
density d and random columns the union holds u = 1 - (1 - d)^G of the columns; of the work done d / u is useful:

    block 16, d 0.1: G 4 (64 rows)  u 0.34, useful 0.29    G 8 (128 rows) u 0.57, useful 0.18
    block 16, d 0.3: G 4            u 0.76, useful 0.39    G 8            u 0.94, useful 0.32
    block 32, d 0.1: G 2 (64 rows)  u 0.19, useful 0.53    G 4 (128 rows) u 0.34, useful 0.29
    block 32, d 0.3: G 2            u 0.51, useful 0.59    G 4            u 0.76, useful 0.39

times what a product with blocks of that height reaches (64 rows 0.46 to 0.53, 128 rows 0.64 to 0.75 of cuBLAS). Before
the product the stored blocks are packed into tiles [G * block, 64] that cover 64 / block union columns each, zeros
where a row has no block: u * rows * cols elements written and read once, by the model 2 to 4 % of the time, and the
inner loop then loads a plain tile. A zero times NaN or infinity is NaN, which a skipped block must not give: a tile
with any number that is not finite is computed again, block by block.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

from firstlight.kernels.triton_backend.epilogue import finished
from firstlight.kernels.triton_backend.places import own_tile, tile_places
from firstlight.kernels.triton_backend.rows import walked


@triton.jit
def pack_groups(stored, packed, members, group_starts, groups, how: tl.constexpr):
    """One packed tile [height, bk] of step `program`; steps past the last one of the last group are nobody's."""
    step = tl.program_id(0)
    if step >= tl.load(group_starts + groups):
        return
    down, across = tl.arange(0, how.height)[:, None], tl.arange(0, how.bk)[None, :]
    # members: [step, union column in the step, block row in the group]
    at = tl.cast(step, tl.int64) * how.members + (across // how.block) * (how.height // how.block) + down // how.block
    block = tl.load(members + at)
    row, col = down % how.block, across % how.block
    inside = col * how.block + row if how.blocks_transposed else row * how.block + col
    tile = tl.load(stored + tl.cast(block, tl.int64) * (how.block * how.block) + inside, mask=block >= 0, other=0.0)
    tl.store(packed + tl.cast(step, tl.int64) * (how.height * how.bk) + down * how.bk + across, tile)


@triton.jit
def packed_tile(tiles, data, step, how: tl.constexpr):
    """[height, bk] of the packed blocks."""
    if how.block_tiles:
        w = tiles.load([step * how.height, 0])
    else:
        down, across = tl.arange(0, how.height)[:, None], tl.arange(0, how.bk)[None, :]
        w = tl.load(data.packed + tl.cast(step, tl.int64) * (how.height * how.bk) + down * how.bk + across)
    return w


@triton.jit
def union_rows(lists, step, end, how: tl.constexpr):
    """Row of the dense operand for each of the bk elements of a step; read one step ahead of its use."""
    k = tl.arange(0, how.bk)
    column = tl.load(lists.group_columns + step * (how.bk // how.block) + k // how.block, mask=step < end, other=0)
    return column * how.block + k % how.block


@triton.jit
def gathered_tile(data, place, rows, sizes, how: tl.constexpr):
    """[bk, bn] of the dense operand: these rows, bn tokens from place[1] on, of batch place[0]."""
    batch, first = place
    local = tl.arange(0, how.bn)
    inside, inside_k = first + local < sizes.n, rows < sizes.cols
    if how.dense_by_token:
        block: tl.constexpr = how.block
        rows = tl.max_contiguous(tl.multiple_of(rows, block), block)
        if how.wide:
            local = local.to(tl.int64)
        base = data.dense + tl.cast(first, tl.int64) * sizes.cols
        at = local[:, None] * sizes.cols + rows[None, :]
        x = tl.load(base + at, mask=inside[:, None] & inside_k[None, :], other=0.0).T
    else:
        base = data.gathered + tl.cast(batch, tl.int64) * sizes.cols * sizes.pitch + first
        at = rows.to(tl.int64)[:, None] * sizes.pitch + local[None, :]
        x = tl.load(base + at, mask=inside_k[:, None] & inside[None, :], other=0.0)
    return x


@triton.jit
def walked_union(packed_tiles, lists, data, span, place, sizes, how: tl.constexpr):
    """The sum over steps span[0] to span[1] of packed tile times gathered rows."""
    begin, end = span
    height: tl.constexpr = how.height
    bn: tl.constexpr = how.bn
    acc = tl.zeros((height, bn), tl.float32)
    rows = union_rows(lists, begin, end, how)
    for step in range(begin, end):
        w = packed_tile(packed_tiles, data, step, how)
        x = gathered_tile(data, place, rows, sizes, how)
        acc = tl.dot(w, x, acc, input_precision=how.precision)
        rows = union_rows(lists, step + 1, end, how)
    return acc


@triton.jit
def strictly(group, tile, lists, data, sizes, how: tl.constexpr, strict: tl.constexpr):
    """The tile of a group, block row by block row and block by block; how and strict differ in the height alone."""
    batch = tile // sizes.tiles
    first = (tile - batch * sizes.tiles) * how.bn
    rows: tl.constexpr = how.height // how.block
    for row in range(group * rows, min((group + 1) * rows, sizes.block_rows)):
        begin, end = tl.load(lists.starts + row).to(tl.int32), tl.load(lists.starts + row + 1).to(tl.int32)
        acc = walked((None, None, data), lists, (begin, end), (batch, first), sizes, strict)
        where = tile_places(row, tile, sizes, strict)
        result = finished(acc, where, data, sizes, strict).to(data.out.dtype.element_ty)
        tl.store(data.out + where.base + where.offset, result, mask=where.inside)


@triton.jit
def row_groups(packed_tiles, out_tiles, lists, data, sizes, how: tl.constexpr, strict: tl.constexpr):
    """One tile of the output: height = a group of block rows, width = bn tokens."""
    item, tile = own_tile(sizes.items, sizes.tiles * sizes.batch, how.super_tile)
    group = tl.load(lists.items + item)
    begin, end = tl.load(lists.group_starts + group), tl.load(lists.group_starts + group + 1)
    batch = tile // sizes.tiles
    first = (tile - batch * sizes.tiles) * how.bn
    acc = walked_union(packed_tiles, lists, data, (begin, end), (batch, first), sizes, how)
    not_finite = tl.sum((acc - acc != 0.0).to(tl.int32))
    if not_finite == 0:
        where = tile_places(group, tile, sizes, how)
        result = finished(acc, where, data, sizes, how).to(data.out.dtype.element_ty)
        if how.out_tiles and how.tokens:
            out_tiles.store([first, group * how.height], result.T)
        elif how.out_tiles:
            out_tiles.store([batch * sizes.rows + group * how.height, first], result)
        else:
            tl.store(data.out + where.base + where.offset, result, mask=where.inside)
    else:
        strictly(group, tile, lists, data, sizes, how, strict)

"""out = W @ dense, one block row of W per program."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

from firstlight.kernels.triton_backend.epilogue import finished
from firstlight.kernels.triton_backend.places import own_tile, tile_places


@triton.jit
def stored_tile(tiles, data, block, k, how: tl.constexpr):
    """[block, bk] of W: columns k to k + bk of a stored block, or of its transpose."""
    if how.block_tiles and how.blocks_transposed:
        w = tiles.load([block * how.block + k, 0]).T
    elif how.block_tiles:
        w = tiles.load([block * how.block, k])
    else:
        base = data.stored + tl.cast(block, tl.int64) * (how.block * how.block)
        row, col = tl.arange(0, how.block), k + tl.arange(0, how.bk)
        if how.blocks_transposed:
            w = tl.load(base + col[:, None] * how.block + row[None, :]).T
        else:
            w = tl.load(base + row[:, None] * how.block + col[None, :])
    return w


@triton.jit
def dense_tile(tiles, data, place, sizes, how: tl.constexpr):
    """[bk, bn] of the dense operand: place is (batch, first row, first token)."""
    batch, k, first = place
    if how.dense_tiles and how.tokens:
        x = tiles.load([first, k]).T
    elif how.dense_tiles:
        x = tiles.load([batch * sizes.cols + k, first])
    else:
        local_k, local_n = tl.arange(0, how.bk), tl.arange(0, how.bn)
        inside_k, inside_n = k + local_k < sizes.cols, first + local_n < sizes.n
        if how.wide:
            local_k, local_n = local_k.to(tl.int64), local_n.to(tl.int64)
        if how.tokens:
            base = data.dense + tl.cast(first, tl.int64) * sizes.cols + k
            at = local_n[:, None] * sizes.cols + local_k[None, :]
            x = tl.load(base + at, mask=inside_n[:, None] & inside_k[None, :], other=0.0).T
        else:
            base = data.dense + (tl.cast(batch, tl.int64) * sizes.cols + k) * sizes.n + first
            at = local_k[:, None] * sizes.n + local_n[None, :]
            x = tl.load(base + at, mask=inside_k[:, None] & inside_n[None, :], other=0.0)
    return x


@triton.jit
def entry_of(lists, entry, end, how: tl.constexpr):
    """(block column, stored block) of an entry; read one step ahead, so that no load of a tile waits for it.

    Read in the same step it would be a stage of the software pipeline of its own, and the tiles would have one less.
    """
    column = tl.load(lists.columns + entry, mask=entry < end, other=0).to(tl.int32)
    block = entry
    if how.has_blocks:
        block = tl.load(lists.blocks + entry, mask=entry < end, other=0).to(tl.int32)
    return column, block


@triton.jit
def walked(operands, lists, span, place, sizes, how: tl.constexpr):
    """The sum over entries span[0] to span[1] of stored block times dense block."""
    block_tiles, dense_tiles, data = operands
    begin, end = span
    batch, first = place
    steps: tl.constexpr = how.block // how.bk
    down: tl.constexpr = how.bn if how.tokens_first else how.block
    across: tl.constexpr = how.block if how.tokens_first else how.bn
    acc = tl.zeros((down, across), tl.float32)
    column, block = entry_of(lists, begin, end, how)
    for step in range(begin * steps, end * steps):
        k = (step % steps) * how.bk
        w = stored_tile(block_tiles, data, block, k, how)
        x = dense_tile(dense_tiles, data, (batch, column * how.block + k, first), sizes, how)
        if how.tokens_first:
            acc = tl.dot(x.T, w.T, acc, input_precision=how.precision)
        else:
            acc = tl.dot(w, x, acc, input_precision=how.precision)
        column, block = entry_of(lists, (step + 1) // steps, end, how)
    return acc


@triton.jit
def row_item(lists, item, how: tl.constexpr):
    """(block row, first entry, entry after the last, slot) of an item; slot -1: the whole row, nothing to add up."""
    if how.split:
        at = lists.items + item.to(tl.int64) * 4
        return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    row = tl.load(lists.items + item)
    begin = tl.load(lists.starts + row).to(tl.int32)
    return row, begin, tl.load(lists.starts + row + 1).to(tl.int32), -1


@triton.jit
def block_rows(block_tiles, dense_tiles, out_tiles, lists, data, sizes, how: tl.constexpr):
    """One tile of the output: height = one block row, width = bn tokens."""
    item, tile = own_tile(sizes.items, sizes.tiles * sizes.batch, how.super_tile)
    row, begin, end, slot = row_item(lists, item, how)
    if row < 0:
        return
    batch = tile // sizes.tiles
    first = (tile - batch * sizes.tiles) * how.bn
    acc = walked((block_tiles, dense_tiles, data), lists, (begin, end), (batch, first), sizes, how)
    where = tile_places(row, tile, sizes, how)
    if how.split:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if slot >= 0:
            at = (tl.cast(slot, tl.int64) * sizes.batch * sizes.tiles + tile) * (how.block * how.bn)
            down, across = tl.arange(0, acc.shape[0])[:, None], tl.arange(0, acc.shape[1])[None, :]
            tl.store(data.partials + at + down * acc.shape[1] + across, acc)
            return
    result = finished(acc, where, data, sizes, how).to(data.out.dtype.element_ty)
    if how.out_tiles:
        if how.tokens:
            to, result = [first, row * how.block], result if how.tokens_first else result.T
        else:
            to, result = [batch * sizes.rows + row * how.block, first], result.T if how.tokens_first else result
        out_tiles.store(to, result)
    else:
        tl.store(data.out + where.base + where.offset, result, mask=where.inside)

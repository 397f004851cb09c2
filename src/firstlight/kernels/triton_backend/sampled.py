"""Blocks of A @ B at the places a pattern stores: one stored block per program, contraction over the tokens."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def token_tile(tiles, pointer, place, width, n, how: tl.constexpr):
    """[block, bk]: rows place[1] on of batch place[0], tokens place[2] on; zero outside."""
    batch, first, token = place
    if how.dense_tiles and how.tokens:
        tile = tiles.load([token, first]).T
    elif how.dense_tiles:
        tile = tiles.load([batch * width + first, token])
    else:
        row, local = first + tl.arange(0, how.block), token + tl.arange(0, how.bk)
        if how.tokens:
            inside = (local < n)[:, None] & (row < width)[None, :]
            tile = tl.load(pointer + local.to(tl.int64)[:, None] * width + row[None, :], mask=inside, other=0.0).T
        else:
            inside = (row < width)[:, None] & (local < n)[None, :]
            base = pointer + tl.cast(batch, tl.int64) * width * n
            tile = tl.load(base + row.to(tl.int64)[:, None] * n + local[None, :], mask=inside, other=0.0)
    return tile


@triton.jit
def sampled_blocks(a_tiles, b_tiles, lists, data, sizes, how: tl.constexpr):
    """alpha * A[row block] @ B[:, column block] for one entry, summed over the batch, written to its stored block."""
    entry = tl.program_id(0)
    row, column = tl.load(lists.rows + entry).to(tl.int32), tl.load(lists.columns + entry).to(tl.int32)
    block: tl.constexpr = how.block
    acc = tl.zeros((block, block), tl.float32)
    steps = tl.cdiv(sizes.n, how.bk)
    for step in range(steps * sizes.batch):
        batch = step // steps
        token = (step - batch * steps) * how.bk
        a = token_tile(a_tiles, data.a, (batch, row * how.block, token), sizes.rows, sizes.n, how)
        b = token_tile(b_tiles, data.b, (batch, column * how.block, token), sizes.cols, sizes.n, how)
        acc = tl.dot(a, b.T, acc, input_precision=how.precision)
    down, across = tl.arange(0, how.block)[:, None], tl.arange(0, how.block)[None, :]
    inside = (row * how.block + down < sizes.rows) & (column * how.block + across < sizes.cols)
    result = tl.where(inside, acc * sizes.alpha, 0.0).to(data.out.dtype.element_ty)
    stored = entry
    if how.has_blocks:
        stored = tl.load(lists.blocks + entry).to(tl.int32)
    at = data.out + tl.cast(stored, tl.int64) * (how.block * how.block)
    if how.blocks_transposed:
        tl.store(at + across * how.block + down, result)
    else:
        tl.store(at + down * how.block + across, result)

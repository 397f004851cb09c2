"""softmax(scale * q k') v over the blocks of a list: one program for a tile of queries of one head."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

from firstlight.kernels.block_attention.triton.pieces import (
    LN_2,
    LOG2_E,
    entry_of,
    head_of,
    live_bits,
    load_rows,
    query_tile,
    store_rows,
)


@triton.jit
def masked_logits(s, lists, mask, place, sizes, how: tl.constexpr):
    """s with -inf for what a query may not see; a block that is full and inside of the keys passes as it is.

    place: (first query in its block, first key in its block, key block).
    """
    row, key, column = place
    keys = key + tl.arange(0, how.bn)[None, :]
    if how.has_bits:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if mask >= 0:
            rows = row + tl.arange(0, how.bm)[:, None]
            s = tl.where(live_bits(lists.bits, mask, rows, keys, key, how), s, -float("inf"))
    if how.ragged_k:
        first = column * how.block
        if first + key + how.bn > sizes.k_len:
            s = tl.where(first + keys < sizes.k_len, s, -float("inf"))
    return s


@triton.jit
def softmax_step(s, top, scale):
    """(exp2(scale * s - new maximum), what older sums are multiplied by, the new maximum).

    A row that has seen no key yet has the maximum -inf: 0 is subtracted there, for -inf - -inf would be NaN.
    """
    higher = tl.maximum(top, tl.max(s, 1) * scale)
    from_here = tl.where(higher == -float("inf"), 0.0, higher)
    return tl.exp2(s * scale - from_here[:, None]), tl.exp2(top - from_here), higher


@triton.jit
def walked(q, bases, lists, span, place, sizes, how: tl.constexpr):
    """(sum of p v, sum of p, maximum in powers of two) of a tile of queries over entries span[0] to span[1].

    bases: (keys, elements to the next key, values, elements to the next value); place: first query in its block.
    """
    k_base, k_row, v_base, v_row = bases
    begin, end = span
    steps: tl.constexpr = how.block // how.bn
    bm: tl.constexpr = how.bm
    width: tl.constexpr = how.width
    acc = tl.zeros((bm, width), tl.float32)
    total = tl.zeros((bm,), tl.float32)
    top = tl.full((bm,), -float("inf"), tl.float32)
    scale = sizes.scale * LOG2_E
    column, mask = entry_of(lists, begin, end, how)
    for step in range(begin * steps, end * steps):
        key = (step % steps) * how.bn
        first = column * how.block + key
        k = load_rows(k_base, first, k_row, sizes.k_len, how.bn, how.ragged_k, how)
        s = tl.dot(q, k.T, input_precision=how.precision)
        if how.scale_first:
            s = masked_logits(s * scale, lists, mask, (place, key, column), sizes, how)
            p, shrink, top = softmax_step(s, top, 1.0)
        else:
            s = masked_logits(s, lists, mask, (place, key, column), sizes, how)
            p, shrink, top = softmax_step(s, top, scale)
        v = load_rows(v_base, first, v_row, sizes.k_len, how.bn, how.ragged_k, how)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=how.precision)
        column, mask = entry_of(lists, (step + 1) // steps, end, how)
    return acc, total, top


@triton.jit
def attention_forward(tensors, lists, strides, sizes, how: tl.constexpr):
    """out and lse of one tile of queries; a row that sees no key gets 0 and -inf."""
    batch, head, row, block, listed = query_tile(lists, sizes, how)
    first = block * how.block + row
    if how.ragged_q:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if first >= sizes.q_len:
            return
    q_base = head_of(tensors.q, batch, head, strides.q_batch, strides.q_head)
    q = load_rows(q_base, first, strides.q_row, sizes.q_len, how.bm, how.ragged_q, how)
    kv_head = head // how.group
    bases = (
        head_of(tensors.k, batch, kv_head, strides.k_batch, strides.k_head),
        strides.k_row,
        head_of(tensors.v, batch, kv_head, strides.v_batch, strides.v_head),
        strides.v_row,
    )
    span = (tl.load(lists.starts + listed), tl.load(lists.starts + listed + 1))
    acc, total, top = walked(q, bases, lists, span, row, sizes, how)
    empty = total == 0.0  # a live row has its maximum's 1 in it
    out = acc * (1.0 / tl.where(empty, 1.0, total))[:, None]
    lse = tl.where(empty, -float("inf"), (top + tl.log2(total)) * LN_2)
    out_base = head_of(tensors.out, batch, head, strides.out_batch, strides.out_head)
    store_rows(out_base, first, strides.out_row, sizes.q_len, out, how.ragged_q, how)
    rows = first + tl.arange(0, how.bm)
    lse_at = tensors.lse + (tl.cast(batch, tl.int64) * sizes.heads + head) * sizes.q_len + rows
    tl.store(lse_at, lse, mask=rows < sizes.q_len)

"""Gradients of attention over lists of blocks, without atomics: each tile of dq, dk and dv has one program.

Nothing of the forward pass is kept but out and lse: p = exp(scale * s - lse) is computed again, once for dq by query
blocks and once for dk and dv by key blocks. Sums run in the order of the lists, so every run gives the same bits.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

from firstlight.kernels.block_attention.triton.pieces import (
    LOG2_E,
    entry_of,
    head_of,
    live_bits,
    load_rows,
    query_tile,
    store_rows,
)


@triton.jit
def rows_before(tensors, strides, sizes, how: tl.constexpr):
    """log_sums = lse in powers of two, and deltas = sum(grad * out) - grad_lse, bm rows for each program.

    A row that saw no key gets +inf, so that every p of it is 0, and a delta of 0.
    """
    tiles = tl.cdiv(sizes.q_len, how.bm)
    item = tl.program_id(0)
    of_head = item // tiles
    first = (item - of_head * tiles) * how.bm
    batch = of_head // sizes.heads
    head = of_head - batch * sizes.heads
    out_base = head_of(tensors.out, batch, head, strides.out_batch, strides.out_head)
    grad_base = head_of(tensors.grad, batch, head, strides.grad_batch, strides.grad_head)
    out = load_rows(out_base, first, strides.out_row, sizes.q_len, how.bm, how.ragged_q, how).to(tl.float32)
    grad = load_rows(grad_base, first, strides.grad_row, sizes.q_len, how.bm, how.ragged_q, how).to(tl.float32)
    delta = tl.sum(out * grad, 1)
    rows = first + tl.arange(0, how.bm)
    at = tl.cast(of_head, tl.int64) * sizes.q_len + rows
    lse = tl.load(tensors.lse + at, mask=rows < sizes.q_len, other=0.0)
    if how.has_grad_lse:
        delta -= tl.load(tensors.grad_lse + at, mask=rows < sizes.q_len, other=0.0)
    delta = tl.where(lse == -float("inf"), 0.0, delta)  # p is 0 there, and 0 * NaN, what merging may send back, is NaN
    log_sum = tl.where(lse == -float("inf"), float("inf"), lse * LOG2_E)
    tl.store(tensors.log_sums + at, log_sum, mask=rows < sizes.q_len)
    tl.store(tensors.deltas + at, delta, mask=rows < sizes.q_len)


@triton.jit
def row_values(tensors, base, first, end, how: tl.constexpr):
    """(log_sums, deltas) of bm query rows; past the last row +inf and 0, so that nothing comes of it."""
    rows = first + tl.arange(0, how.bm)
    if how.ragged_q:
        log_sums = tl.load(tensors.log_sums + base + rows, mask=rows < end, other=float("inf"))
        deltas = tl.load(tensors.deltas + base + rows, mask=rows < end, other=0.0)
    else:
        log_sums, deltas = tl.load(tensors.log_sums + base + rows), tl.load(tensors.deltas + base + rows)
    return log_sums, deltas


@triton.jit
def live_only(p, lists, mask, queries, keys, first_key, how: tl.constexpr):
    """p with 0 for what a query may not see by the bits of a partial block; a full block passes as it is.

    p may be infinite there: it is replaced, not multiplied.
    """
    if how.has_bits:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if mask >= 0:
            p = tl.where(live_bits(lists.bits, mask, queries, keys, first_key, how), p, 0.0)
    return p


@triton.jit
def dq_walked(rows, bases, lists, span, place, sizes, how: tl.constexpr):
    """The sum of ds k of a tile of queries over entries span[0] to span[1], not yet scaled.

    rows: (q, grad, log_sums, deltas); bases and place as in the forward kernel.
    """
    q, grad, log_sums, deltas = rows
    k_base, k_row, v_base, v_row = bases
    begin, end = span
    steps: tl.constexpr = how.block // how.bn
    bm: tl.constexpr = how.bm
    width: tl.constexpr = how.width
    dq = tl.zeros((bm, width), tl.float32)
    scale = sizes.scale * LOG2_E
    queries, across = place + tl.arange(0, how.bm)[:, None], tl.arange(0, how.bn)[None, :]
    column, mask = entry_of(lists, begin, end, how)
    for step in range(begin * steps, end * steps):
        key = (step % steps) * how.bn
        first = column * how.block + key
        k = load_rows(k_base, first, k_row, sizes.k_len, how.bn, how.ragged_k, how)
        v = load_rows(v_base, first, v_row, sizes.k_len, how.bn, how.ragged_k, how)
        s = tl.dot(q, k.T, input_precision=how.precision)
        dp = tl.dot(grad, v.T, input_precision=how.precision)
        p = tl.exp2(s * scale - log_sums[:, None])
        p = live_only(p, lists, mask, queries, key + across, key, how)
        if how.ragged_k:  # noqa: SIM102 the outer one is decided when the kernel is compiled
            if first + how.bn > sizes.k_len:  # logits of 0 there, and exp2(-log_sums) may be infinite
                p = tl.where(first + across < sizes.k_len, p, 0.0)
        ds = p * (dp - deltas[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=how.precision)
        column, mask = entry_of(lists, (step + 1) // steps, end, how)
    return dq


@triton.jit
def attention_dq(tensors, lists, strides, sizes, how: tl.constexpr):
    """dq of one tile of queries."""
    batch, head, row, block, listed = query_tile(lists, sizes, how)
    first = block * how.block + row
    if how.ragged_q:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if first >= sizes.q_len:
            return
    q_base = head_of(tensors.q, batch, head, strides.q_batch, strides.q_head)
    grad_base = head_of(tensors.grad, batch, head, strides.grad_batch, strides.grad_head)
    q = load_rows(q_base, first, strides.q_row, sizes.q_len, how.bm, how.ragged_q, how)
    grad = load_rows(grad_base, first, strides.grad_row, sizes.q_len, how.bm, how.ragged_q, how)
    of_rows = (tl.cast(batch, tl.int64) * sizes.heads + head) * sizes.q_len
    log_sums, deltas = row_values(tensors, of_rows, first, sizes.q_len, how)
    kv_head = head // how.group
    bases = (
        head_of(tensors.k, batch, kv_head, strides.k_batch, strides.k_head),
        strides.k_row,
        head_of(tensors.v, batch, kv_head, strides.v_batch, strides.v_head),
        strides.v_row,
    )
    span = (tl.load(lists.starts + listed), tl.load(lists.starts + listed + 1))
    dq = dq_walked((q, grad, log_sums, deltas), bases, lists, span, row, sizes, how)
    dq_base = head_of(tensors.dq, batch, head, strides.dq_batch, strides.dq_head)
    store_rows(dq_base, first, strides.dq_row, sizes.q_len, dq * sizes.scale, how.ragged_q, how)


@triton.jit
def dkdv_walked(sums, keys, tensors, lists, strides, sizes, how: tl.constexpr):
    """sums, with those of one query head over the blocks of its list added.

    sums: (dk, dv), not yet scaled; keys: (k, v, first key in its block, batch, head, its list). Tiles are [keys,
    queries]: p and ds are then the left operands of the products that follow and stay in registers. What p is past the
    last key does not matter: it reaches rows of dk and dv alone that are not stored.
    """
    dk, dv = sums
    k, v, first_key, batch, head, listed = keys
    steps: tl.constexpr = how.block // how.bm
    scale = sizes.scale * LOG2_E
    q_base = head_of(tensors.q, batch, head, strides.q_batch, strides.q_head)
    grad_base = head_of(tensors.grad, batch, head, strides.grad_batch, strides.grad_head)
    of_rows = (tl.cast(batch, tl.int64) * sizes.heads + head) * sizes.q_len
    down, across = first_key + tl.arange(0, how.bn)[:, None], tl.arange(0, how.bm)[None, :]
    begin, end = tl.load(lists.starts + listed), tl.load(lists.starts + listed + 1)
    block, mask = entry_of(lists, begin, end, how)
    for step in range(begin * steps, end * steps):
        row = (step % steps) * how.bm
        first = block * how.block + row
        q = load_rows(q_base, first, strides.q_row, sizes.q_len, how.bm, how.ragged_q, how)
        log_sums, deltas = row_values(tensors, of_rows, first, sizes.q_len, how)
        s = tl.dot(k, q.T, input_precision=how.precision)
        p = tl.exp2(s * scale - log_sums[None, :])
        p = live_only(p, lists, mask, row + across, down, first_key, how)
        grad = load_rows(grad_base, first, strides.grad_row, sizes.q_len, how.bm, how.ragged_q, how)
        dv = tl.dot(p.to(grad.dtype), grad, dv, input_precision=how.precision)
        dp = tl.dot(v, grad.T, input_precision=how.precision)
        ds = p * (dp - deltas[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=how.precision)
        block, mask = entry_of(lists, (step + 1) // steps, end, how)
    return dk, dv


@triton.jit
def attention_dkdv(tensors, lists, strides, sizes, how: tl.constexpr):
    """dk and dv of one tile of keys: the query heads of its group one after the other, each with its own list."""
    parts: tl.constexpr = how.block // how.bn
    item = tl.program_id(0)
    first_key = (item % parts) * how.bn
    item = item // parts
    place = item % sizes.k_blocks
    item = item // sizes.k_blocks
    batch = item // sizes.kv_heads
    kv_head = item - batch * sizes.kv_heads
    head = kv_head * how.group
    # the order of the group's first head: any order is right
    order = lists.order + (batch * sizes.list_batch + head * sizes.list_head) * sizes.k_blocks
    block = tl.load(order + place)
    first = block * how.block + first_key
    if how.ragged_k:  # noqa: SIM102 the outer one is decided when the kernel is compiled
        if first >= sizes.k_len:
            return
    k_base = head_of(tensors.k, batch, kv_head, strides.k_batch, strides.k_head)
    v_base = head_of(tensors.v, batch, kv_head, strides.v_batch, strides.v_head)
    k = load_rows(k_base, first, strides.k_row, sizes.k_len, how.bn, how.ragged_k, how)
    v = load_rows(v_base, first, strides.v_row, sizes.k_len, how.bn, how.ragged_k, how)
    bn: tl.constexpr = how.bn
    width: tl.constexpr = how.width
    dk = tl.zeros((bn, width), tl.float32)
    dv = tl.zeros((bn, width), tl.float32)
    for shared in range(how.group):
        query_head = head + shared
        listed = (batch * sizes.list_batch + query_head * sizes.list_head) * sizes.k_blocks + block
        keys = (k, v, first_key, batch, query_head, listed)
        dk, dv = dkdv_walked((dk, dv), keys, tensors, lists, strides, sizes, how)
    dk_base = head_of(tensors.dk, batch, kv_head, strides.dk_batch, strides.dk_head)
    dv_base = head_of(tensors.dv, batch, kv_head, strides.dv_batch, strides.dv_head)
    store_rows(dk_base, first, strides.dk_row, sizes.k_len, dk * sizes.scale, how.ragged_k, how)
    store_rows(dv_base, first, strides.dv_row, sizes.k_len, dv, how.ragged_k, how)

"""What the attention kernels share: tiles of rows, entries of a list, bits of a partial block."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def head_of(pointer, batch, head, batch_stride, head_stride):
    """Where a head's first row lies; 64 bits, whatever type the strides came in."""
    return pointer + tl.cast(batch, tl.int64) * batch_stride + tl.cast(head, tl.int64) * head_stride


@triton.jit
def rows_at(base, first, stride, rows: tl.constexpr, how: tl.constexpr):
    """Addresses of [rows, width] elements from row `first` on."""
    local = tl.arange(0, rows)
    if how.wide:
        local = local.to(tl.int64)
    return base + tl.cast(first, tl.int64) * stride + (local[:, None] * stride + tl.arange(0, how.width)[None, :])


@triton.jit
def inside_rows(first, end, rows: tl.constexpr, ragged: tl.constexpr, how: tl.constexpr):
    """Which of [rows, width] elements exist; called only where some do not."""
    if ragged:
        inside = (first + tl.arange(0, rows) < end)[:, None]
        if how.width != how.head_dim:
            inside = inside & (tl.arange(0, how.width) < how.head_dim)[None, :]
    else:
        inside = (tl.arange(0, how.width) < how.head_dim)[None, :]
    return inside


@triton.jit
def load_rows(base, first, stride, end, rows: tl.constexpr, ragged: tl.constexpr, how: tl.constexpr):
    """[rows, width] elements from row `first` on; 0 past `end` and past the head dimension."""
    at = rows_at(base, first, stride, rows, how)
    if ragged or how.width != how.head_dim:
        x = tl.load(at, mask=inside_rows(first, end, rows, ragged, how), other=0.0)
    else:
        x = tl.load(at)
    return x


@triton.jit
def store_rows(base, first, stride, end, x, ragged: tl.constexpr, how: tl.constexpr):
    """Writes [rows, width] elements from row `first` on; nothing past `end` and past the head dimension."""
    rows: tl.constexpr = x.shape[0]
    at = rows_at(base, first, stride, rows, how)
    x = x.to(base.dtype.element_ty)
    if ragged or how.width != how.head_dim:
        tl.store(at, x, mask=inside_rows(first, end, rows, ragged, how))
    else:
        tl.store(at, x)


@triton.jit
def entry_of(lists, entry, end, how: tl.constexpr):
    """(block, row of bits or -1) of an entry; read one step ahead, so that no load of a tile waits for it."""
    there = entry < end
    column = tl.load(lists.columns + entry, mask=there, other=0)
    mask = -1
    if how.has_bits:
        mask = tl.load(lists.masks + entry, mask=there, other=-1)
    return column, mask


@triton.jit
def live_bits(bits, mask, queries, keys, first_key, how: tl.constexpr):
    """Whether each query sees each key: `queries` and `keys` are numbers in the block, one of them [:, None].

    `first_key` starts the tile's keys. A word holds the bits of 32 keys; each word is loaded once for a query, and
    which of them a key needs is told by comparing: with keys across, when the kernel is compiled.
    """
    words: tl.constexpr = how.block // 32
    at = bits + tl.cast(mask, tl.int64) * (how.block * words) + first_key // 32 + queries * words
    word = tl.load(at)
    for number in tl.static_range(1, (how.bn + 31) // 32):
        word = tl.where(keys - first_key < number * 32, word, tl.load(at + number))
    return ((word >> (keys % 32)) & 1) != 0


@triton.jit
def query_tile(lists, sizes, how: tl.constexpr):
    """(batch, head, first query in its block, query block, list) of this program.

    The parts of a block, then the heads of a group, then query blocks, then key heads: programs that run at the same
    time read the same keys. Blocks with long lists come first, so that the last programs of a head are short ones.
    """
    parts: tl.constexpr = how.block // how.bm
    item = tl.program_id(0)
    part = item % parts
    item = item // parts
    shared = item % how.group
    item = item // how.group
    place = item % sizes.q_blocks
    item = item // sizes.q_blocks
    batch = item // sizes.kv_heads
    head = (item - batch * sizes.kv_heads) * how.group + shared
    of_head = (batch * sizes.list_batch + head * sizes.list_head) * sizes.q_blocks
    block = tl.load(lists.order + of_head + place)
    return batch, head, part * how.bm, block, of_head + block

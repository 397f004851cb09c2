"""Sequences one behind the other, each with a mask of its own: blocks of the masks meet blocks of all tokens askew.

A sequence begins where it begins, not at a border of blocks, so a block of all tokens covers up to four blocks of a
sequence's mask. Where those are all seen, or none is, so is the block; elsewhere its elements are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import (
    FULL,
    NONE,
    PARTIAL,
    blocks_in,
    canonical_kinds,
    number_partial,
    ordinary,
    pack,
)
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.measured import apart
from firstlight.kernels.block_attention.packed import Common, Tokens, span, tokens_of

BLOCKS_AT_ONCE = 64  # whose elements are looked up together: about 40 MB of numbers at block 128


class _Table(NamedTuple):
    """The blocks of all masks in one row each: kind and row of bits; where those of a sequence begin, and how wide."""

    kinds: Tensor  # uint8 [heads, blocks of all masks]
    which: Tensor  # int64, the same
    bits: Tensor  # int32 [rows, block, block // 32]
    begins: Tensor  # int64 [sequences]
    columns: Tensor  # int64 [sequences]


def each_by_its_own(
    masks: Sequence[BlockMask | None], starts_q: list[int], starts_k: list[int], block: int, device: torch.device
) -> BlockMask:
    """The mask of all tokens where sequence i is seen as masks[i] says; None: all of it."""
    heads = _require(masks, starts_q, starts_k, block, device)
    with ordinary():
        offsets = [torch.tensor(starts, device=device) for starts in (starts_q, starts_k)]
        queries, keys = (tokens_of(each, int(starts[-1]), block) for each, starts in
                         zip(offsets, (starts_q, starts_k), strict=True))  # fmt: skip
        table = _table(masks, heads, [each.starts.diff().tolist() for each in (queries, keys)], block, device)
        kinds = _by_corners(queries, keys, table)
        numbers = torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum()]).tolist()
        most, cut = (int(number) for number in numbers)
        q_len, k_len = starts_q[-1], starts_k[-1]
        if cut == 0:
            return BlockMask(kinds, q_len=q_len, k_len=k_len, block=block, most=most)
        which, places = number_partial(kinds == PARTIAL, cut)
        parts = torch.split(places, BLOCKS_AT_ONCE)
        bits = torch.cat([_elements(queries, keys, table, part) for part in parts])
        kinds = canonical_kinds(kinds, which, bits, (q_len, k_len))
        return BlockMask(kinds, which, bits, q_len=q_len, k_len=k_len, block=block, most=most)


def _by_corners(queries: Tokens, keys: Tokens, table: _Table) -> Tensor:
    """uint8 [1, heads, query blocks, key blocks]: FULL and NONE where that is certain, else PARTIAL."""
    block = queries.ids.shape[1]
    common = Common.of(queries, keys)
    rows, columns = (torch.arange(each.ids.shape[0], device=each.ids.device) for each in (queries, keys))
    one = common.first
    q_first, q_last = span(queries, one, rows[:, None])
    k_first, k_last = span(keys, one, columns)
    there = (common.first == common.last) & (q_first <= q_last) & (k_first <= k_last)
    some = torch.zeros(table.kinds.shape[0], *one.shape, dtype=torch.bool, device=one.device)
    wholly = torch.ones_like(some)
    for q_place in (q_first, q_last):
        for k_place in (k_first, k_last):
            corner = table.begins[one] + q_place.div(block, rounding_mode="floor") * table.columns[one]
            corner = torch.where(there, corner + k_place.div(block, rounding_mode="floor"), 0)
            kind = table.kinds[:, corner]
            some |= kind != NONE
            wholly &= kind == FULL
    seen = (there & some) | (common.first < common.last)
    return (seen.to(torch.uint8) + (seen & wholly & common.alone).to(torch.uint8))[None]


def _elements(queries: Tokens, keys: Tokens, table: _Table, blocks: Tensor) -> Tensor:
    block = queries.ids.shape[1]
    head, row, column = apart(blocks, (table.kinds.shape[0], queries.ids.shape[0], keys.ids.shape[0]))
    ids, q_place, k_place = queries.ids[row], queries.places[row], keys.places[column]
    same = ids[:, :, None] == keys.ids[column][:, None, :]
    line = table.begins[ids] + q_place.div(block, rounding_mode="floor") * table.columns[ids]
    found = line[:, :, None] + k_place.div(block, rounding_mode="floor")[:, None, :]
    found = torch.where(same, found, 0)
    kind, which = table.kinds[head[:, None, None], found], table.which[head[:, None, None], found]
    inside = (k_place % block)[:, None, :]
    words = table.bits[which, (q_place % block)[:, :, None], inside.div(32, rounding_mode="floor")]
    bit = ((words >> (inside % 32)) & 1) != 0
    return pack(same & ((kind == FULL) | ((kind == PARTIAL) & bit)))


def _table(
    masks: Sequence[BlockMask | None], heads: int, lengths: list[list[int]], block: int, device: torch.device
) -> _Table:
    kinds, which, bits = [], [], [torch.zeros(1, block, block // 32, dtype=torch.int32, device=device)]
    begins, widths, first, row = [], [], 0, 1
    for mask, q_len, k_len in zip(masks, *lengths, strict=True):
        shape = (heads, blocks_in(q_len, block), blocks_in(k_len, block))
        begins.append(first)
        widths.append(shape[2])
        first += shape[1] * shape[2]
        if mask is None or mask.which is None or mask.bits is None:
            which.append(torch.zeros(shape, dtype=torch.int64, device=device).flatten(1))
        else:
            which.append((mask.which[0] + row).to(torch.int64).expand(shape).flatten(1))
            bits.append(mask.bits)
            row += mask.bits.shape[0]
        whole = torch.full((1, 1, *shape[1:]), FULL, dtype=torch.uint8, device=device) if mask is None else mask.kinds
        kinds.append(whole[0].expand(shape).flatten(1))
    numbers = (torch.tensor(each, device=device) for each in (begins, widths))
    return _Table(torch.cat(kinds, 1), torch.cat(which, 1), torch.cat(bits), *numbers)


def _require(
    masks: Sequence[BlockMask | None], starts_q: list[int], starts_k: list[int], block: int, device: torch.device
) -> int:
    """How many heads have lists of their own; raises unless every mask is one for its sequence."""
    if not isinstance(masks, (list, tuple)) or len(masks) != len(starts_q) - 1:
        given = f"{len(masks)} of them" if isinstance(masks, (list, tuple)) else f"a {type(masks).__name__}"
        raise UnsupportedInput(
            f"masks is {given} for {len(starts_q) - 1} sequences; a list with a BlockMask or None for each is accepted."
        )
    heads = 1
    for number, mask in enumerate(masks):
        if mask is None:
            continue
        if not isinstance(mask, BlockMask):
            raise UnsupportedInput(f"mask {number} is a {type(mask).__name__}; a BlockMask or None is accepted.")
        wanted = (starts_q[number + 1] - starts_q[number], starts_k[number + 1] - starts_k[number])
        if (mask.q_len, mask.k_len) != wanted:
            raise UnsupportedInput(
                f"mask {number} is for {mask.q_len} queries and {mask.k_len} keys, and its sequence has {wanted[0]} "
                f"and {wanted[1]}; the same numbers are accepted. Pass None for a sequence of which all is seen."
            )
        if mask.block != block or mask.kinds.shape[0] != 1 or mask.device != device:
            raise UnsupportedInput(
                f"mask {number} has block {mask.block}, batch {mask.kinds.shape[0]} and lies on {mask.device}; block "
                f"{block}, batch 1 and {device}, where the offsets are, are accepted."
            )
        have = mask.kinds.shape[1]
        if have != heads and 1 not in (have, heads):
            raise UnsupportedInput(
                f"mask {number} has {have} heads and another {heads}; equal ones, or 1, are accepted."
            )
        heads = max(heads, have)
    return heads

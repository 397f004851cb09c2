"""Sequences one behind the other, each with a mask of its own: blocks of the masks meet blocks of all tokens askew.

A sequence begins where it begins, not at a border of blocks, so a block of all tokens covers up to four blocks of a
sequence's mask. Where those are all seen, or none is, so is the block; elsewhere its elements are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import FULL, NONE, PARTIAL, blocks_in, ordinary, within
from firstlight.kernels.block_attention.construct import full
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.measured import apart
from firstlight.kernels.block_attention.packed import Common, Tokens, by_rows, reach, span, tokens_of, with_bits

ALL = 0xFFFFFFFF  # the 32 bits of a word


class _Table(NamedTuple):
    """The blocks of all masks in one row each: kind and row of bits; where those of a sequence begin, and how wide."""

    kinds: Tensor  # uint8 [heads, blocks of all masks]
    which: Tensor  # int64, the same
    bits: Tensor  # int32 [rows, block, block // 32]
    begins: Tensor  # int64 [sequences]
    columns: Tensor  # int64 [sequences]

    def words(self, head: Tensor, line: Tensor, inside: Tensor, number: Tensor) -> Tensor:
        """Word `number` of line `inside` of the row of blocks that begins at `line`; any bits beside the mask."""
        in_block = self.bits.shape[2]
        found = (line + number.div(in_block, rounding_mode="floor")).clamp(0, self.kinds.shape[1] - 1)
        kind = self.kinds[head, found]
        bits = self.bits[self.which[head, found], inside, number % in_block].to(torch.int64) & ALL
        return torch.where(kind == FULL, ALL, torch.where(kind == PARTIAL, bits, 0))


def each_by_its_own(
    masks: Sequence[BlockMask | None], starts_q: list[int], starts_k: list[int], block: int, device: torch.device
) -> BlockMask:
    """The mask of all tokens where sequence i is seen as masks[i] says; None: all of it."""
    heads = _require(masks, starts_q, starts_k, block, device)
    if len(masks) == 1:
        return masks[0] or full(starts_q[1], starts_k[1], block=block, device=device)
    with ordinary():
        queries, keys = (tokens_of(torch.tensor(starts, device=device), starts[-1], block) for starts in
                         (starts_q, starts_k))  # fmt: skip
        lengths = [[end - first for first, end in pairwise(starts)] for starts in (starts_q, starts_k)]
        table = _table(masks, heads, lengths, block, device)
        kinds = by_rows(queries, keys, lambda some, rows: _by_corners(some, keys, table, rows))
        return with_bits(
            kinds, (starts_q[-1], starts_k[-1]), block, lambda blocks: _elements(queries, keys, table, blocks)
        )


def _by_corners(queries: Tokens, keys: Tokens, table: _Table, rows: Tensor) -> Tensor:
    """uint8 [heads, rows, key blocks]: FULL and NONE where that is certain, else PARTIAL."""
    block = queries.ids.shape[1]
    common = Common.of(queries, keys)
    one = common.first
    q_first, q_last = span(queries, one, rows[:, None])
    k_first, k_last = span(keys, one, torch.arange(keys.ids.shape[0], device=rows.device))
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
    return seen.to(torch.uint8) + (seen & wholly & common.alone).to(torch.uint8)


def _elements(queries: Tokens, keys: Tokens, table: _Table, blocks: Tensor) -> Tensor:
    """The bits of these blocks: each word is cut out of two that lie side by side in its sequence's mask."""
    block = queries.ids.shape[1]
    head, row, column = apart(blocks, (table.kinds.shape[0], queries.ids.shape[0], keys.ids.shape[0]))
    ids, places = queries.ids[row], queries.places[row].to(torch.int64)
    first, end = reach(keys, ids, column)
    line = table.begins[ids] + places.div(block, rounding_mode="floor") * table.columns[ids]
    key = torch.arange(0, block, 32, device=blocks.device) - first[..., None]  # of the word's first bit
    word = key.div(32, rounding_mode="floor")
    at = (head[:, None, None], line[..., None], (places % block)[..., None])
    low, high = (table.words(*at, each) for each in (word, word + 1))
    return ((low | (high << 32)) >> (key - 32 * word)).to(torch.int32) & within(first, end, block)


def _table(
    masks: Sequence[BlockMask | None], heads: int, lengths: list[list[int]], block: int, device: torch.device
) -> _Table:
    # the first block is nobody's: there may be no other, where queries and keys are of unlike sequences
    kinds = [torch.zeros(heads, 1, dtype=torch.uint8, device=device)]
    which = [torch.zeros(heads, 1, dtype=torch.int64, device=device)]
    bits = [torch.zeros(1, block, block // 32, dtype=torch.int32, device=device)]
    begins, widths, first, row = [], [], 1, 1
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

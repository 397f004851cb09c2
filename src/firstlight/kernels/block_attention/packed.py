"""Masks for sequences that lie one behind the other without padding ("ragged", "varlen"): nobody sees another's keys.

Where sequences begin is a tensor of offsets, as FlashAttention's cu_seqlens: tensor([0, 300, 1000]) for two of 300 and
700 tokens. Blocks that lie within one sequence are decided by their corners; where several meet, by their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import (
    NONE,
    PARTIAL,
    canonical_numbered,
    number_partial,
    ordinary,
    portions,
    within,
)
from firstlight.kernels.block_attention.checks import ALIGNMENTS, alignment_of
from firstlight.kernels.block_attention.construct import full, window
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.mask_checks import require_mask_block, require_number
from firstlight.kernels.block_attention.measured import apart, blocked
from firstlight.kernels.checks import require_dtype, require_same_device, require_tensor
from firstlight.kernels.memo import being_captured
from firstlight.kernels.torch_private import FakeTensor, is_functorch_wrapped

AT_ONCE = 1 << 20  # blocks whose kinds are computed together: 8 MB for each number of a block


class Tokens(NamedTuple):
    """The queries or keys of all sequences: where each sequence begins, and of every token whose and which it is."""

    starts: Tensor  # int64 [sequences + 1]
    ids: Tensor  # int32 [blocks, block], rising; the last goes on to the end of the last block
    places: Tensor  # int32 [blocks, block], within the sequence


class Band(NamedTuple):
    """Query q sees key k of its sequence where lowest <= k - q - shift <= highest; None: no limit."""

    lowest: int | None
    highest: int | None
    shift: Tensor | None  # int64 [sequences], keys - queries for the lower right; None: 0

    def keeps(self, least: Tensor, greatest: Tensor) -> tuple[Tensor, Tensor]:
        """(whether one, whether all) of the differences from least to greatest are within."""
        some, wholly = torch.ones_like(least, dtype=torch.bool), torch.ones_like(least, dtype=torch.bool)
        if self.lowest is not None:
            some, wholly = some & (greatest >= self.lowest), wholly & (least >= self.lowest)
        if self.highest is not None:
            some, wholly = some & (least <= self.highest), wholly & (greatest <= self.highest)
        return some, wholly


def packed(
    offsets_q: Tensor, offsets_k: Tensor | None = None, *, causal: bool | str = False, left: int | None = None,
    masks: Sequence[BlockMask | None] | None = None, block: int = 128,
) -> BlockMask:  # fmt: skip
    """A query sees the keys of its own sequence; see BlockMask.packed."""
    require_mask_block(block)
    alignment = alignment_of(causal)
    if left is not None:
        require_number(left, "left", least=0)
    starts_q = require_offsets(offsets_q, "offsets_q")
    starts_k = starts_q if offsets_k is None else require_offsets(offsets_k, "offsets_k")
    for name, starts in (("offsets_q", starts_q), ("offsets_k", starts_k)):
        if not starts[-1]:
            raise UnsupportedInput(
                f"{name} is {_shown(starts)}; for a mask, offsets that end above 0 are accepted. Leave out calls "
                f"without tokens, or give the offsets to ragged_attention, which needs no mask for them."
            )
    offsets_k = offsets_q if offsets_k is None else offsets_k
    require_same_device(offsets_q, "offsets_q", offsets_k, "offsets_k")
    if len(starts_q) != len(starts_k):
        raise UnsupportedInput(
            f"offsets_q has {len(starts_q) - 1} sequences and offsets_k {len(starts_k) - 1}; the same number is "
            f"accepted. A sequence without keys has two equal offsets."
        )
    if masks is not None:
        from firstlight.kernels.block_attention.packed_masks import each_by_its_own

        if causal is not False or left is not None:
            raise UnsupportedInput("masks and causal= or left= are given; one of them is accepted. Combine two with &.")
        return each_by_its_own(masks, starts_q, starts_k, block, offsets_q.device)
    if len(starts_q) == 2:
        return _one_sequence(starts_q[1], starts_k[1], alignment, left, block, offsets_q.device)
    with ordinary():
        queries, keys = tokens_of(offsets_q, starts_q[-1], block), tokens_of(offsets_k, starts_k[-1], block)
        shift = keys.starts.diff() - queries.starts.diff() if alignment == ALIGNMENTS[1] else None
        band = Band(None if left is None else -left, 0 if alignment else None, shift)
        return _in_band(queries, keys, band, (starts_q[-1], starts_k[-1]))


def require_offsets(offsets: Tensor, name: str) -> list[int]:
    """The offsets as whole numbers, e.g. [0, 300, 1000]; raises unless they begin with 0 and never fall. Host waits."""
    require_tensor(offsets, name)
    require_dtype(offsets, name, (torch.int64, torch.int32))
    why = _why_unreadable(offsets)
    if why:
        raise UnsupportedInput(
            f"{name} cannot be read {why}. Make the mask of real offsets before, with BlockMask.packed, and pass mask=."
        )
    if offsets.dim() != 1 or offsets.shape[0] < 1:
        raise UnsupportedInput(
            f"{name} has shape {list(offsets.shape)}; [sequences + 1] is accepted. Pass where each sequence begins and "
            f"the last one ends, e.g. tensor([0, 300, 1000])."
        )
    found = [int(one) for one in offsets.tolist()]
    falls = next((place for place, (one, other) in enumerate(pairwise(found)) if one > other), None)
    if found[0] != 0 or falls is not None:
        where = "" if falls is None else f" (it falls from {found[falls]} to {found[falls + 1]} at place {falls + 1})"
        raise UnsupportedInput(
            f"{name} is {_shown(found)}{where}; numbers that begin with 0 and never fall are accepted. From lengths: "
            f"torch.nn.functional.pad(lengths.cumsum(0), (1, 0))."
        )
    return found


def _shown(starts: list[int]) -> str:
    shown = starts if len(starts) < 9 else [*starts[:4], "...", *starts[-2:]]
    return str(shown).replace("'", "")


def _why_unreadable(offsets: Tensor) -> str:
    if is_dynamo_compiling():
        return ""  # it leaves the compiled code here, and comes back with real ones
    if offsets.is_meta or isinstance(offsets, FakeTensor):
        return f"on {offsets.device}, where there are no numbers" if offsets.is_meta else "under FakeTensorMode"
    if is_functorch_wrapped(offsets):
        return "under torch.func where they are mapped or differentiated"
    return "while a CUDA graph is captured" if being_captured(offsets) else ""


def tokens_of(offsets: Tensor, total: int, block: int) -> Tokens:
    """Whose and which every token is, in blocks."""
    starts = offsets.detach().to(torch.int64)
    every = torch.arange(total, device=starts.device)
    ids = torch.searchsorted(starts[1:].contiguous(), every, right=True)
    places = every - starts[ids]
    return Tokens(starts, *(blocked(each.to(torch.int32)[None], block, 1)[0] for each in (ids, places)))


class Common(NamedTuple):
    """Of every block of queries and keys: the first and the last sequence that both may have tokens of."""

    first: Tensor  # int32 [query blocks, key blocks]
    last: Tensor
    alone: Tensor  # bool: all its queries and all its keys are of that one sequence

    @classmethod
    def of(cls, queries: Tokens, keys: Tokens) -> Common:
        """By the first and last tokens of the blocks, as ids rise."""
        (q_low, q_high), (k_low, k_high) = ((each.ids[:, 0], each.ids[:, -1]) for each in (queries, keys))
        first = torch.maximum(q_low[:, None], k_low)
        last = torch.minimum(q_high[:, None], k_high)
        alone = (q_low == q_high)[:, None] & (k_low == k_high) & (first == last)
        return cls(first, last, alone)


def span(tokens: Tokens, of: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The first and last place of sequence `of` in each block `rows`; the first is above the last where it has none."""
    block = tokens.ids.shape[1]
    begin, end = tokens.starts[of], tokens.starts[of + 1]
    first = torch.maximum(rows * block, begin)
    last = torch.minimum(rows * block + block, end) - 1
    return first - begin, last - begin


def _in_band(queries: Tokens, keys: Tokens, band: Band, lengths: tuple[int, int]) -> BlockMask:
    kinds = by_rows(queries, keys, lambda some, rows: _by_band(some, keys, band, rows)[None])
    return with_bits(kinds, lengths, queries.ids.shape[1], lambda blocks: _elements(queries, keys, band, blocks))


def by_rows(queries: Tokens, keys: Tokens, kinds_of: Callable[[Tokens, Tensor], Tensor]) -> Tensor:
    """uint8 [1, heads, query blocks, key blocks] of what is computed for some rows of blocks at a time."""
    rows = torch.arange(queries.ids.shape[0], device=queries.ids.device)
    parts = torch.split(rows, max(1, AT_ONCE // keys.ids.shape[0]))
    made = [kinds_of(Tokens(queries.starts, queries.ids[some], queries.places[some]), some) for some in parts]
    return torch.cat(made, 1)[None]


def with_bits(kinds: Tensor, lengths: tuple[int, int], block: int, bits_of: Callable[[Tensor], Tensor]) -> BlockMask:
    """The mask of these kinds, the elements of its PARTIAL blocks looked up by their flat places. The host waits."""
    q_len, k_len = lengths
    most, cut = (int(number) for number in torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum()]).tolist())
    if cut == 0:
        return BlockMask(kinds, q_len=q_len, k_len=k_len, block=block, most=most)
    which, places = number_partial(kinds == PARTIAL, cut)
    bits = torch.cat([bits_of(part) for part in portions(places)])
    kinds = canonical_numbered(kinds, places, bits, lengths)
    return BlockMask(kinds, which, bits, q_len=q_len, k_len=k_len, block=block, most=most)


def _by_band(queries: Tokens, keys: Tokens, band: Band, rows: Tensor) -> Tensor:
    """uint8 [rows, key blocks]: FULL and NONE where the corners make that certain, else PARTIAL."""
    common = Common.of(queries, keys)
    one = common.first
    q_first, q_last = span(queries, one, rows[:, None])
    k_first, k_last = span(keys, one, torch.arange(keys.ids.shape[0], device=rows.device))
    if band.shift is not None:
        q_first, q_last = q_first + band.shift[one], q_last + band.shift[one]
    some, wholly = band.keeps(k_first - q_last, k_last - q_first)
    some &= (k_first <= k_last) & (q_first <= q_last)
    seen = (some & (common.first == common.last)) | (common.first < common.last)
    return seen.to(torch.uint8) + (seen & wholly & common.alone).to(torch.uint8)


def _elements(queries: Tokens, keys: Tokens, band: Band, blocks: Tensor) -> Tensor:
    """The bits of these blocks: what a query sees lies side by side."""
    row, column = apart(blocks, (queries.ids.shape[0], keys.ids.shape[0]))
    ids = queries.ids[row]
    own = queries.places[row].to(torch.int64)
    if band.shift is not None:
        own = own + band.shift[ids]
    first, end = reach(keys, ids, column)
    begin = first
    if band.lowest is not None:
        first = torch.maximum(first, begin + own + band.lowest)
    if band.highest is not None:
        end = torch.minimum(end, begin + own + (band.highest + 1))
    return within(first, end, queries.ids.shape[1])


def reach(keys: Tokens, ids: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Where the keys of sequences ids [blocks, block] begin and end, counted from the first key of block `column`."""
    before = (column * keys.ids.shape[1])[:, None]
    return keys.starts[ids] - before, keys.starts[ids + 1] - before


def _one_sequence(
    q_len: int, k_len: int, alignment: str, left: int | None, block: int, device: torch.device
) -> BlockMask:
    """As without offsets, so that kernels which know a plain shape by name are taken."""
    if not alignment and left is None:
        return full(q_len, k_len, block=block, device=device)
    right = 0 if alignment else None
    return window(
        q_len, k_len, left=left, right=right, alignment=alignment or ALIGNMENTS[0], block=block, device=device
    )

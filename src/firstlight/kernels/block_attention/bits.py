"""Bits of the blocks that are seen in part: packing them, counting them, and the one form that a block has.

A row of bits is int32 [block, block // 32]: bit j of word w of line r says whether query r of the block may see key
32 * w + j of it. What lies beyond the lengths in a last block means nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

NONE, PARTIAL, FULL = 0, 1, 2
ROWS_AT_ONCE = 1024  # rows of bits that are made or unpacked together: 16 MB of booleans at block 128


def ordinary() -> torch.inference_mode:
    """A context in which tensors count their changes and serve a backward pass, also inside of inference mode."""
    return torch.inference_mode(False)  # noqa: FBT003 torch.compile takes it without a keyword alone


def blocks_in(length: int, block: int) -> int:
    """Number of blocks that cover a length, e.g. 8 of 128 for 1000."""
    return -(-length // block)


def tail_of(length: int, block: int) -> int:
    """Elements of the last block inside of the length, e.g. 104 of 128 for 1000; the block where it fits."""
    return length - (blocks_in(length, block) - 1) * block


def pack(allowed: Tensor) -> Tensor:
    """int32 [..., block // 32] of booleans [..., block]."""
    # eight booleans to a byte, four bytes to a word: needs a byte per element, where shifting words needs four
    weights = torch.arange(8, dtype=torch.uint8, device=allowed.device)
    weights = torch.ones((), dtype=torch.uint8, device=allowed.device) << weights
    eights = allowed.to(torch.uint8).reshape(*allowed.shape[:-1], allowed.shape[-1] // 8, 8)
    return (eights * weights).sum(-1, dtype=torch.uint8).contiguous().view(torch.int32)


def within(first: Tensor, end: Tensor, block: int) -> Tensor:
    """int32 [..., block // 32] with ones at the keys first <= j < end of a block; both may lie beside it, int64."""
    begins = torch.arange(0, block, 32, device=first.device)
    low, high = ((each[..., None] - begins).clamp(0, 32) for each in (first, end))
    return (((1 << high) - 1) & ~((1 << low) - 1)).to(torch.int32)


def unpack(bits: Tensor) -> Tensor:
    """Booleans [..., block] of int32 [..., block // 32]."""
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return ((bits.contiguous().view(torch.uint8)[..., None] >> places) & 1).flatten(-2).to(torch.bool)


def portions(rows: Tensor) -> list[Tensor]:
    """The tensor cut along its first dimension into parts that are small enough to unpack together."""
    return [rows[first : first + ROWS_AT_ONCE] for first in range(0, rows.shape[0], ROWS_AT_ONCE)]


def count_allowed(bits: Tensor, *, q_len: int, k_len: int, block: int) -> Tensor:
    """int64 [P, 2, 2]: ones of each row of bits in an inner block, and in the last one of queries [1] and keys [1]."""
    q_tail, k_tail = tail_of(q_len, block), tail_of(k_len, block)
    begins = torch.arange(0, block, 8, device=bits.device)
    inside = ((1 << (k_tail - begins).clamp(0, 8)) - 1).to(torch.uint8)
    parts = []
    for some in portions(bits):
        eights = some.contiguous().view(torch.uint8)
        lines = torch.stack([_ones(eights).sum(2), _ones(eights & inside).sum(2)], dim=2)
        parts.append(torch.stack([lines.sum(1), lines[:, :q_tail].sum(1)], dim=1))
    return torch.cat(parts) if parts else torch.zeros(0, 2, 2, dtype=torch.int64, device=bits.device)


def _ones(eights: Tensor) -> Tensor:
    """How many bits of each byte are 1: neighbours are added by twos, fours, eights."""
    twos = eights - ((eights >> 1) & 0x55)
    fours = (twos & 0x33) + ((twos >> 2) & 0x33)
    return (fours + (fours >> 4)) & 0x0F


def elements_inside(*, q_len: int, k_len: int, block: int, device: torch.device) -> Tensor:
    """int64 [Qb, Kb]: elements of each block inside of the lengths, e.g. 16384, less in the last ones."""
    queries, keys = (
        (length - torch.arange(blocks_in(length, block), device=device) * block).clamp(max=block)
        for length in (q_len, k_len)
    )
    return queries[:, None] * keys


def allowed_in_blocks(kinds: Tensor, which: Tensor, bits: Tensor, lengths: tuple[int, int]) -> Tensor:
    """int64, kinds' shape: how many elements of each block are seen, all within the lengths (q_len, k_len)."""
    (q_len, k_len), block = lengths, bits.shape[1]
    table = count_allowed(bits, q_len=q_len, k_len=k_len, block=block)
    last_q = torch.arange(kinds.shape[2], device=kinds.device) == kinds.shape[2] - 1
    last_k = torch.arange(kinds.shape[3], device=kinds.device) == kinds.shape[3] - 1
    place = (which.long() * 2 + last_q[:, None]) * 2 + last_k
    inside = elements_inside(q_len=q_len, k_len=k_len, block=block, device=kinds.device)
    some = table.flatten().take(place)
    return torch.where(kinds == PARTIAL, some, torch.where(kinds == FULL, inside, 0))


def count(
    kinds: Tensor, which: Tensor | None, bits: Tensor | None, *, lengths: tuple[int, int], block: int
) -> tuple[int, int]:
    """(blocks, elements) that a mask keeps, e.g. (3, 8256) of causal 128 at block 64; the host waits."""
    used = kinds != NONE
    if which is None or bits is None:
        inside = elements_inside(q_len=lengths[0], k_len=lengths[1], block=block, device=kinds.device)
        pairs = torch.where(used, inside, 0)
    else:
        pairs = allowed_in_blocks(kinds, which, bits, lengths)
    blocks, elements = torch.stack([used.sum(), pairs.sum()]).tolist()
    return int(blocks), int(elements)


def canonical_kinds(kinds: Tensor, which: Tensor, bits: Tensor, lengths: tuple[int, int]) -> Tensor:
    """The kinds by what the bits hold: PARTIAL blocks that are all ones or all zeros inside become FULL or NONE."""
    seen = allowed_in_blocks(kinds, which, bits, lengths)
    inside = elements_inside(q_len=lengths[0], k_len=lengths[1], block=bits.shape[1], device=kinds.device)
    return kinds_by_count(seen, inside)


def canonical_numbered(kinds: Tensor, places: Tensor, bits: Tensor, lengths: tuple[int, int]) -> Tensor:
    """canonical_kinds where row i of bits is of the block at flat place i alone: the other blocks stay as they are."""
    (q_len, k_len), block = lengths, bits.shape[1]
    row = torch.div(places, kinds.shape[3], rounding_mode="floor")
    last_q, last_k = (row + 1) % kinds.shape[2] == 0, (places + 1) % kinds.shape[3] == 0
    table = count_allowed(bits, q_len=q_len, k_len=k_len, block=block)
    seen = table[torch.arange(places.shape[0], device=places.device), last_q.long(), last_k.long()]
    queries, keys = (
        torch.where(last, tail_of(length, block), block) for last, length in ((last_q, q_len), (last_k, k_len))
    )
    return kinds.flatten().scatter_(0, places, kinds_by_count(seen, queries * keys)).view(kinds.shape)


def kinds_by_count(seen: Tensor, inside: Tensor) -> Tensor:
    """uint8 NONE, PARTIAL or FULL for blocks of which `seen` of `inside` elements are seen."""
    return (seen > 0).to(torch.uint8) + (seen == inside).to(torch.uint8)


def number_partial(partial: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(which, places): the True blocks numbered in order, 0 on the others; and the flat place of each number.

    `count` is how many are True, which the caller knows: nothing is read back.
    """
    flat = partial.flatten()
    number = torch.cumsum(flat, 0) - 1
    places = torch.zeros(count + 1, dtype=torch.int64, device=partial.device)
    target = torch.where(flat, number, count).clamp_(max=count)
    places.scatter_(0, target, torch.arange(flat.shape[0], device=partial.device))
    which = torch.where(flat, number, 0).to(torch.int32).view(partial.shape)
    return which, places[:count]

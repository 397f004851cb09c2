"""`&` and `|` of masks, and when two masks are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.kernels.block_attention.bits import (
    FULL,
    NONE,
    PARTIAL,
    canonical_kinds,
    count_allowed,
    number_partial,
    ordinary,
    portions,
)
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.mask_checks import require_same_sizes

# pairs of rows of bits, or blocks with a row each: 8 MB at block 128. Where there are more of both, those that are used
# are counted first, and the host waits once.
ROWS_WITHOUT_LOOKING = 4096


@dataclass(frozen=True, slots=True)
class _Operation:
    """How kinds, bits and the bound of kept blocks combine; `wins` decides alone, `yields` leaves it to the other."""

    sign: str
    wins: int
    yields: int
    bits: Callable[[Tensor, Tensor], Tensor]
    most: Callable[[int, int], int]


_AND = _Operation("&", NONE, FULL, torch.bitwise_and, min)
_OR = _Operation("|", FULL, NONE, torch.bitwise_or, lambda one, other: one + other)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both masks in one shape; `pair` numbers the rows of bits that are made of one row of each."""

    first: BlockMask
    second: BlockMask
    kinds: Tensor
    rows: Tensor  # int64, kinds' shape: number of the row among first's, second's and the pairs; 0 where not PARTIAL
    most: int


def both(first: BlockMask, second: BlockMask) -> BlockMask:
    """What both masks keep."""
    return _combine(first, second, _AND)


def either(first: BlockMask, second: BlockMask) -> BlockMask:
    """What one of the masks keeps."""
    return _combine(first, second, _OR)


def _combine(first: BlockMask, second: BlockMask, operation: _Operation) -> BlockMask:
    require_same_sizes(first, second, operation.sign)
    with ordinary():
        sides = _sides(first, second, operation)
        if first.bits is None and second.bits is None:
            return _made(sides, sides.kinds, None, None)
        blocks = sides.kinds.numel()
        if _all_rows(sides) <= blocks and _rows_of(first) * _rows_of(second) <= ROWS_WITHOUT_LOOKING:
            every = torch.arange(_all_rows(sides), device=first.device)
            which, bits = sides.rows.to(torch.int32), _bits_at(sides, every, operation)
        elif blocks <= ROWS_WITHOUT_LOOKING:
            which = torch.arange(blocks, dtype=torch.int32, device=first.device).view(sides.kinds.shape)
            bits = _bits_at(sides, sides.rows.flatten(), operation)
        else:
            which, bits = _used_rows(sides, operation)
        kinds = canonical_kinds(sides.kinds, which, bits, (first.q_len, first.k_len))
        return _made(sides, kinds, which, bits)


def _sides(first: BlockMask, second: BlockMask, operation: _Operation) -> _Sides:
    shape = [max(sizes) for sizes in zip(first.kinds.shape, second.kinds.shape, strict=True)]
    one, other = first.kinds.expand(shape), second.kinds.expand(shape)
    # PARTIAL on both sides stays PARTIAL until the bits are looked at
    kinds = torch.where(one == operation.yields, other, one)
    kinds = torch.where(other == operation.wins, operation.wins, kinds).contiguous()
    rows = torch.zeros(kinds.shape, dtype=torch.int64, device=kinds.device)
    if first.which is not None:
        rows = torch.where(one == PARTIAL, first.which, rows)
    if second.which is not None:
        rows = torch.where(other == PARTIAL, _rows_of(first) + second.which, rows)
    if first.which is not None and second.which is not None:
        pair = _rows_of(first) + _rows_of(second) + first.which.long() * _rows_of(second) + second.which
        rows = torch.where((one == PARTIAL) & (other == PARTIAL), pair, rows)
    rows = torch.where(kinds == PARTIAL, rows, 0)
    counts = (mask.most * (kinds.numel() // mask.kinds.numel()) for mask in (first, second))
    return _Sides(first, second, kinds, rows, min(operation.most(*counts), kinds.numel()))


def _bits_at(sides: _Sides, rows: Tensor, operation: _Operation) -> Tensor:
    """The rows of bits with these numbers, each made of one row or of a pair."""
    one, other = sides.first.bits, sides.second.bits
    if one is None or other is None:
        alone = one if other is None else other
        assert alone is not None, "one side has bits"
        return alone[rows]
    count, pairs = one.shape[0], (rows - one.shape[0] - other.shape[0]).clamp(min=0)
    of_first = torch.where(rows < count, rows, torch.div(pairs, other.shape[0], rounding_mode="floor"))
    of_second = torch.where(rows < count + other.shape[0], (rows - count).clamp(min=0), pairs % other.shape[0])
    left, right = one[of_first], other[of_second]
    alone = torch.where((rows < count)[:, None, None], left, right)
    return torch.where((rows < count + other.shape[0])[:, None, None], alone, operation.bits(left, right))


def _used_rows(sides: _Sides, operation: _Operation) -> tuple[Tensor, Tensor]:
    """(which, bits) of those rows alone that a block uses; the host waits once, for their number."""
    end = _all_rows(sides)
    wanted = torch.where(sides.kinds == PARTIAL, sides.rows, end).flatten()
    ordered = torch.sort(wanted).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=new[1:])
    new &= ordered < end
    count = max(int(new.sum()), 1)
    _, places = number_partial(new, count)
    used = ordered[places].clamp(max=end - 1)
    which = torch.searchsorted(used, wanted, out_int32=True).clamp_(max=count - 1)
    bits = torch.cat([_bits_at(sides, some, operation) for some in portions(used)])
    return which.view(sides.kinds.shape), bits


def _rows_of(mask: BlockMask) -> int:
    return 0 if mask.bits is None else mask.bits.shape[0]


def _all_rows(sides: _Sides) -> int:
    one, other = _rows_of(sides.first), _rows_of(sides.second)
    return one + other + one * other


def _made(sides: _Sides, kinds: Tensor, which: Tensor | None, bits: Tensor | None) -> BlockMask:
    first = sides.first
    return BlockMask(kinds, which, bits, q_len=first.q_len, k_len=first.k_len, block=first.block, most=sides.most)


def equal(first: BlockMask, second: BlockMask) -> bool:
    """Whether both keep the same pairs and are of one shape and block; bits beyond the lengths do not count."""
    if not isinstance(second, BlockMask) or first.shape != second.shape or first.block != second.block:
        return False
    one, other = first.canonical(), second.to(first.device).canonical()
    if not torch.equal(one.kinds, other.kinds):
        return False
    if one.bits is None or other.bits is None:
        return True  # equal kinds: the side that has bits has no block that uses them
    return not any(_differ(one, other, some) for some in portions(_places_to_compare(one, other)))


def _places_to_compare(one: BlockMask, other: BlockMask) -> Tensor:
    """int64 [n, 4]: row of one, row of the other, and whether it is used in a last block of queries and of keys."""
    batch, head, row, column = (one.kinds == PARTIAL).nonzero(as_tuple=True)
    last_q, last_k = row == one.kinds.shape[2] - 1, column == one.kinds.shape[3] - 1
    rows = [mask.which[batch, head, row, column] for mask in (one, other) if mask.which is not None]
    found: Tensor = torch.unique(torch.stack([*rows, last_q, last_k], dim=1).long(), dim=0)
    return found


def _differ(one: BlockMask, other: BlockMask, places: Tensor) -> bool:
    assert one.bits is not None, "looked at before"
    assert other.bits is not None, "looked at before"
    of_one, of_other, last_q, last_k = places.unbind(1)
    ones = count_allowed(one.bits[of_one] ^ other.bits[of_other], q_len=one.q_len, k_len=one.k_len, block=one.block)
    return bool(ones[torch.arange(places.shape[0], device=places.device), last_q, last_k].any())

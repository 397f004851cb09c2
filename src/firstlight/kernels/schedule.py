"""In which order and in which portions a product takes the block rows: computed where the index lies, no host wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import TensorMemo, keepable


class Segments(NamedTuple):
    """Block rows in portions of at most `limit` entries.

    The number of portions is known on the device alone; `items` has room for the most there can be, and the rest is
    row -1. A row in one portion has slot -1. A row in several has partial results in the slots
    first_slot[row] to first_slot[row] + slot_counts[row], to be added in that order.
    """

    items: Tensor  # int32 [bound, 4]: row, begin, end, slot; longest first
    first_slot: Tensor  # int32 [block_rows]
    slot_counts: Tensor  # int32 [block_rows]; 0: the row is one portion
    split_rows: Tensor  # int32 [most rows in several portions]: these rows, then -1
    slots: int  # most partial results there can be: room to allocate, e.g. 12
    limit: int

    @property
    def bound(self) -> int:
        return int(self.items.shape[0])

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that lies on the device."""
        return self.items, self.first_slot, self.slot_counts, self.split_rows


class SplitRows(Protocol):
    """Something that cuts rows into portions: split_rows below, or a backend's own way to the same lists."""

    def __call__(self, row_starts: Tensor, entries: int, *, limit: int) -> Segments: ...


class Schedule:
    """How to walk one index; what it gives is computed at first use and kept."""

    def __init__(self, index: Index) -> None:
        # aliases: the memo below drops a schedule with the index's own tensors, so it must not hold them
        self.row_starts = index.row_starts.detach()
        self._entries = index.entries
        self._segments: dict[int, tuple[Segments, Held | None]] = {}
        self._order: tuple[Tensor, Held | None] | None = None

    @property
    def order(self) -> Tensor:
        """int32 [block_rows]: the block rows, longest first."""
        return self.ordered()

    def ordered(self, make: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The order, by a backend's own way to it if it was not computed before."""
        if self._order is not None:
            order, held = self._order
            use(held)
            return order
        with torch.inference_mode(mode=False):
            order = (make or longest_first)(self.row_starts)
        if keepable(self.row_starts, order):
            self._order = order, held_after(order)
        return order

    def segments(self, limit: int, make: SplitRows | None = None) -> Segments:
        """Portions of at most `limit` entries, e.g. 64; by a backend's own way if they were not computed before."""
        found = self._segments.get(limit)
        if found is not None:
            use(found[1])
            return found[0]
        with torch.inference_mode(mode=False):
            made = (make or split_rows)(self.row_starts, self._entries, limit=limit)
        if keepable(self.row_starts, made.items):
            self._segments[limit] = made, held_after(*made.tensors)
        return made


_SCHEDULES: TensorMemo[Schedule] = TensorMemo()


def schedule_of(index: Index) -> Schedule:
    """The schedule of an index, computed at first use and kept as long as the index's tensors live unchanged."""
    found = _SCHEDULES.get(index.row_starts, index.columns)
    if found is None:
        found = Schedule(index)
        if keepable(index.row_starts, found.row_starts):
            _SCHEDULES.put(index.row_starts, index.columns, found)
    return found


def longest_first(row_starts: Tensor) -> Tensor:
    """int32 [block_rows]: the block rows by falling number of entries; rows of one length in their order."""
    lengths = row_starts[1:] - row_starts[:-1]
    return torch.argsort(lengths, descending=True, stable=True).to(torch.int32)


def most_items(block_rows: int, entries: int, limit: int) -> int:
    """The most portions there can be: one for each row and one more for each `limit` entries beyond the first."""
    return block_rows + max(entries - 1, 0) // limit


def most_slots(block_rows: int, entries: int, limit: int) -> int:
    """The most partial results there can be: a row in p portions has at least (p - 1) * limit + 1 entries."""
    if entries <= limit:
        return 0
    return min(2 * entries // (limit + 1), most_items(block_rows, entries, limit))


def most_split_rows(block_rows: int, entries: int, limit: int) -> int:
    """The most rows in several portions there can be: each has more than `limit` entries."""
    return min(block_rows, entries // (limit + 1))


def split_rows(row_starts: Tensor, entries: int, *, limit: int) -> Segments:
    """The portions of every row: as few as `limit` allows, of equal length within one entry."""
    assert limit >= 1, f"limit is {limit}"
    block_rows = row_starts.shape[0] - 1
    # one more row without entries: the items that are too many belong to it
    starts, lengths = functional.pad(row_starts[:-1], (0, 1)), functional.pad(row_starts.diff(), (0, 1))
    portions = torch.div(lengths - 1, limit, rounding_mode="floor").add_(1).clamp_(min=1)
    split = portions > 1
    ends = torch.cumsum(portions, 0)
    slot_counts = portions * split
    first_slot = torch.cumsum(slot_counts, 0) - slot_counts
    number = torch.arange(most_items(block_rows, entries, limit), device=starts.device)
    row = torch.searchsorted(ends, number, right=True).clamp_(max=block_rows)
    taken = torch.stack([starts, lengths, portions, ends - portions, first_slot], 1)[row].to(torch.int64)
    start, length, count, first, slot = taken.unbind(1)
    portion = number - first
    begin = start + portion * length // count
    end = start + (portion + 1) * length // count
    slot = torch.where(count > 1, slot + portion, -1)
    items = torch.stack([torch.where(row < block_rows, row, -1), begin, end, slot], 1)
    order = torch.argsort(end - begin, descending=True, stable=True)
    listed = torch.arange(1, most_split_rows(block_rows, entries, limit) + 1, device=starts.device)
    listed = torch.searchsorted(torch.cumsum(split, 0), listed)
    return Segments(
        items=items[order].to(torch.int32),
        first_slot=first_slot[:-1].to(torch.int32),
        slot_counts=slot_counts[:-1].to(torch.int32),
        split_rows=torch.where(listed < block_rows, listed, -1).to(torch.int32),
        slots=most_slots(block_rows, entries, limit),
        limit=limit,
    )

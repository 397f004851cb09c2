"""A schedule in one launch: where each portion of a block row comes in the list, longest first, without a sort.

torch needs some thirty small operations for the same list, and the host pays for each. Here every row counts how many
portions come before its own. A row has portions of two lengths only, q and q + 1, so two counts are enough; they cost
a walk over all rows, which is little for as many rows as matrices have.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.kernels.schedule import (
    Segments,
    longest_first,
    most_items,
    most_slots,
    most_split_rows,
    split_rows,
)
from firstlight.kernels.torch_private import FakeTensor
from firstlight.kernels.triton_backend.arguments import INDEX_POINTER, PortionLists, PortionSizes
from firstlight.kernels.triton_backend.launch import Constant, Launching, Spec, launching, runner_for

CHUNK = 256  # rows looked at in one step
MOST_ROWS = 1 << 14  # each row looks at all rows: beyond this many, sorting is cheaper
ITEM = 4  # numbers of an item: row, begin, end, slot


@triton.jit
def row_lengths(starts, first, rows, chunk: tl.constexpr):
    """(numbers of the rows from `first` on, which exist, how many entries they have)."""
    other = first + tl.arange(0, chunk)
    inside = other < rows
    begin = tl.load(starts + other, mask=inside, other=0).to(tl.int64)
    return other, inside, tl.load(starts + other + 1, mask=inside, other=0).to(tl.int64) - begin


@triton.jit
def place_rows(starts, order, rows, chunk: tl.constexpr):
    """order[number of rows that come before row r] = r, one row for each program."""
    row = tl.program_id(0)
    length = (tl.load(starts + row + 1) - tl.load(starts + row)).to(tl.int64)
    before = 0
    for first in range(0, rows, chunk):
        other, inside, lengths = row_lengths(starts, first, rows, chunk)
        earlier = (lengths > length) | ((lengths == length) & (other < row))
        before += tl.sum((inside & earlier).to(tl.int32), 0)
    tl.store(order + before, row)


@triton.jit
def longer(short, shorts, longs, than):
    """How many of `shorts` portions of length `short` and `longs` of one more are longer than `than`."""
    return tl.where(short >= than, longs, 0) + tl.where(short > than, shorts, 0)


@triton.jit
def as_long(short, shorts, longs, as_this):
    return tl.where(short + 1 == as_this, longs, 0) + tl.where(short == as_this, shorts, 0)


@triton.jit
def fill_up(lists, items, split_rows, sizes, chunk: tl.constexpr):
    """What the host made room for and nobody needs: items -1, 0, 0, -1 and rows -1."""
    for first in range(items, sizes.bound, chunk):
        number = first + tl.arange(0, chunk)
        to = lists.items + number.to(tl.int64) * 4
        tl.store(to, number * 0 - 1, mask=number < sizes.bound)
        tl.store(to + 1, number * 0, mask=number < sizes.bound)
        tl.store(to + 2, number * 0, mask=number < sizes.bound)
        tl.store(to + 3, number * 0 - 1, mask=number < sizes.bound)
    for first in range(split_rows, sizes.most, chunk):
        number = first + tl.arange(0, chunk)
        tl.store(lists.split + number, number * 0 - 1, mask=number < sizes.most)


@triton.jit
def place_portions(starts, lists, sizes, chunk: tl.constexpr):
    """The portions of one row for each program; the one after the last row fills what is left of the lists."""
    row, rows, limit = tl.program_id(0), sizes.rows, sizes.limit
    real = row < rows
    begin = tl.load(starts + row).to(tl.int64)
    length = tl.where(real, tl.load(starts + row + real.to(tl.int32)).to(tl.int64) - begin, 0)
    portions = tl.maximum((length + limit - 1) // limit, 1)
    short = length // portions
    taken, slots, split_before = 0, 0, 0
    before_long, before_short = 0, 0
    for first in range(0, rows, chunk):
        other, inside, lengths = row_lengths(starts, first, rows, chunk)
        theirs = tl.where(inside, tl.maximum((lengths + limit - 1) // limit, 1), 0)
        low = lengths // tl.maximum(theirs, 1)
        longs = lengths - low * theirs
        shorts = theirs - longs
        above = (other < row) & inside
        taken += tl.sum(tl.where(above, theirs, 0).to(tl.int32), 0)
        slots += tl.sum(tl.where(above & (theirs > 1), theirs, 0).to(tl.int32), 0)
        split_before += tl.sum((above & (theirs > 1)).to(tl.int32), 0)
        same = tl.where(above, as_long(low, shorts, longs, short + 1), 0)
        before_long += tl.sum((longer(low, shorts, longs, short + 1) + same).to(tl.int32), 0)
        same = tl.where(above, as_long(low, shorts, longs, short), 0)
        before_short += tl.sum((longer(low, shorts, longs, short) + same).to(tl.int32), 0)
    if real:
        tl.store(lists.first_slot + row, slots)
        tl.store(lists.slot_counts + row, tl.where(portions > 1, portions, 0).to(tl.int32))
        tl.store(lists.split + split_before, row, mask=portions > 1)
        for first in range(0, portions.to(tl.int32), chunk):
            number = first + tl.arange(0, chunk)
            mine = number < portions
            at = number.to(tl.int64) * length // portions
            end = (number.to(tl.int64) + 1) * length // portions
            longs_before = (at - number * short).to(tl.int32)
            place = tl.where(end - at > short, before_long + longs_before, before_short + number - longs_before)
            to = lists.items + place.to(tl.int64) * 4
            tl.store(to, number * 0 + row, mask=mine)
            tl.store(to + 1, (begin + at).to(tl.int32), mask=mine)
            tl.store(to + 2, (begin + end).to(tl.int32), mask=mine)
            tl.store(to + 3, tl.where(portions > 1, slots + number, -1), mask=mine)
    else:
        fill_up(lists, taken, split_before, sizes, chunk)


def order_here(row_starts: Tensor) -> Tensor:
    """longest_first of schedule.py, in one launch on a GPU."""
    rows = row_starts.shape[0] - 1
    if not _takes(row_starts, rows):
        return longest_first(row_starts)
    order = torch.empty(rows, dtype=torch.int32, device=row_starts.device)
    runner_for(order_spec(row_starts.dtype), row_starts.device)(rows, (row_starts, order, rows, None))
    return order


def split_rows_here(row_starts: Tensor, entries: int, *, limit: int) -> Segments:
    """split_rows of schedule.py, in one launch on a GPU."""
    rows = row_starts.shape[0] - 1
    bound, most = most_items(rows, entries, limit), most_split_rows(rows, entries, limit)
    if not _takes(row_starts, rows) or max(bound, limit) >= 1 << 31:
        return split_rows(row_starts, entries, limit=limit)
    lists = torch.empty(ITEM * bound + 2 * rows + most, dtype=torch.int32, device=row_starts.device)
    items, first_slot, slot_counts, split = lists.split([ITEM * bound, rows, rows, most])
    made, sizes = PortionLists(items, first_slot, slot_counts, split), PortionSizes(rows, limit, bound, most)
    runner_for(portions_spec(row_starts.dtype), row_starts.device)(rows + 1, (row_starts, made, sizes, None))
    return Segments(items.view(bound, ITEM), first_slot, slot_counts, split, most_slots(rows, entries, limit), limit)


def order_spec(index_dtype: torch.dtype) -> Spec:
    """The kernel that places rows, as it is compiled."""
    return Spec(place_rows, (INDEX_POINTER[index_dtype], "*i32", "i32", Constant(CHUNK)), (), warps=4, stages=1)


def portions_spec(index_dtype: torch.dtype) -> Spec:
    """The kernel that places portions, as it is compiled."""
    types = (INDEX_POINTER[index_dtype], PortionLists(*("*i32",) * 4), PortionSizes(*("i32",) * 4), Constant(CHUNK))
    return Spec(place_portions, types, (), warps=4, stages=1)


def _takes(row_starts: Tensor, rows: int) -> bool:
    fitting = 0 < rows <= MOST_ROWS and row_starts.dtype in INDEX_POINTER and not isinstance(row_starts, FakeTensor)
    return fitting and (row_starts.is_cuda or launching() is Launching.INTERPRETED)

"""The lists of a new pattern by lists.cu: one launch, or, where the pattern is large, two to 14; and no host wait.

What torch needs 110 to 300 launches for (unions.py, pairs.py, schedule.py), 1.5 to 8.5 ms of the processor's time.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.kernels.index import Index
from firstlight.kernels.pattern import pattern_behind
from firstlight.kernels.prepared import empty_on
from firstlight.kernels.schedule import Segments, most_items, most_slots
from firstlight.kernels.sm90.arguments import ListsFields, lists_bytes
from firstlight.kernels.sm90.driver import series_of, start_once
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.steps import Steps
from firstlight.kernels.sm90.variants import HEIGHT, LISTS, LISTS_AT_ONCE, LISTS_CLUSTER
from firstlight.kernels.torch_private import FakeTensor, is_functorch_wrapped, raw_stream
from firstlight.kernels.unions import most_steps

ROWS, COMMON, WEIGHT, PAIR, COUNT, FILL, SPLIT, SORT = range(8)  # lists.cu
THREADS, MANY, WARPS, SIDE = 256, 1024, 8, 32
MOST_COLUMNS = 512 * 32
MOST_PAIRED = 1024  # block rows; with more, neighbours stay together
MOST_ITEMS = 1 << 14  # each is compared with each to sort them
PHASE_AT, LEVEL_AT = 2 * 19, 2 * 19 + 1  # integers of ListsArgs, behind 19 addresses
COPIED_AT_ONCE = 1 << 13
MOST_AT_ONCE = (
    6 << 20
)  # words of two rows that are compared, or block columns looked at: some 30 us of 8 multiprocessors


class Places(NamedTuple):
    """Where the parts of lists lie, and how many portions and partial sums there are at most."""

    columns: int
    members: int
    items: int
    rows: int  # 0: block rows are groups
    starts: int
    first_slot: int
    slot_counts: int
    portions: int
    slots: int


class Listed(NamedTuple):
    """Lists of one pattern, all in one piece of memory."""

    steps: Steps
    segments: Segments
    room: Tensor


class Sizes(NamedTuple):
    """A pattern and its lists in numbers that the host knows, e.g. 64 groups of two block rows, one level of pairs."""

    groups: int
    height: int  # block rows of a group
    levels: int  # how often twos are made; 0: neighbours stay together
    bound: int  # steps
    width: int
    items: int
    slots: int
    limit: int

    @property
    def plain(self) -> bool:
        """The lists are the pattern itself."""
        return self.height == 1 and self.width == 1

    def are_made_at_once(self, columns: int) -> bool:
        """Little enough for the few multiprocessors of one cluster, given how many block columns there are."""
        rows = self.groups * self.height
        compared = rows * rows * -(-columns // 32) if self.levels else 0
        return max(compared, 0 if self.plain else rows * columns, self.bound) <= MOST_AT_ONCE

    @property
    def are_few(self) -> bool:
        """Few enough portions to be sorted by comparing each with each."""
        return self.items <= MOST_ITEMS

    @property
    def kept(self) -> tuple[int, ...]:
        """Integers of items, starts, columns, members, first_slot, slot_counts and grouped; the first is aligned."""
        rows = 0 if self.plain else self.groups * self.height
        step = self.bound * self.width
        return 4 * self.items, self.groups + 1, step, step * self.height, self.groups, self.groups, rows

    def scratch(self, columns: int) -> tuple[int, ...]:
        """Integers of loose, common, weight, bits, table, sums, order, best and steps."""
        rows = 0 if self.plain else self.groups * self.height
        pairs = rows * rows if self.levels else 0
        return (
            4 * self.items, -(-pairs // 8) * 4, pairs, rows * -(-columns // 32), rows * columns, 3 * rows, 4 * rows,
            rows, 2 * self.groups + 2,
        )  # fmt: skip


def is_listed_on_gpu(index: Index) -> bool:
    """Whether lists.cu makes the lists: a pattern on a GPU that stores no block twice and is not beyond its tables."""
    columns = index.columns
    if not columns.is_cuda or is_compiling() or isinstance(columns, FakeTensor) or is_functorch_wrapped(columns):
        return False
    pattern = pattern_behind(index)
    return (
        pattern is not None and pattern.distinct and index.entries > 0 and index.block_cols <= MOST_COLUMNS
        and index.row_starts.is_contiguous() and columns.is_contiguous()
    )  # fmt: skip


def sizes_of(index: Index, *, width: int, limit: int) -> Sizes:
    """The sizes of the lists of an index in portions of at most `limit` steps."""
    height = HEIGHT // index.block
    groups = -(-index.block_rows // height)
    bound = index.entries if height == width == 1 else most_steps(index, rows=height, width=width)
    levels = height.bit_length() - 1 if groups > 1 and groups * height <= MOST_PAIRED else 0
    items = most_items(groups, bound, limit)
    return Sizes(groups, height, levels, bound, width, items, most_slots(groups, bound, limit), limit)


def unsplit_sizes_of(index: Index, *, width: int) -> Sizes:
    """The sizes of lists whose groups are rows in their order, and no portions of them."""
    height = HEIGHT // index.block
    groups = -(-index.block_rows // height)
    return Sizes(groups, height, 0, most_steps(index, rows=height, width=width), width, 0, 0, 1)


def listed(index: Index, sizes: Sizes) -> Listed:
    """The lists of an index on its GPU, the current one, started on the current stream."""
    room, _ = started(index, sizes)
    return parts_of(room, sizes)


def parts_of(room: Tensor, sizes: Sizes) -> Listed:
    """The lists in a piece of memory."""
    items, starts, columns, members, first_slot, slot_counts, grouped = room.split_with_sizes(sizes.kept)
    segments = Segments(items.view(-1, 4), first_slot, slot_counts, first_slot[:0], sizes.slots, sizes.limit)
    members = members if sizes.plain else members.view(sizes.bound, sizes.width, sizes.height)
    return Listed(Steps(starts, columns, members, sizes.bound, None if sizes.plain else grouped), segments, room)


def started(index: Index, sizes: Sizes) -> tuple[Tensor, Places]:
    """The memory that the lists of an index are being made in, and where in it they lie."""
    device = index.columns.device
    empty = empty_on(device)
    room = empty((sum(sizes.kept),), (1,), torch.int32)
    scratch = empty((sum(sizes.scratch(index.block_cols)),), (1,), torch.int32)
    fields = fields_of(index, sizes, room.data_ptr(), scratch.data_ptr())
    at_once = sizes.are_made_at_once(index.block_cols)
    kernel = loaded(LISTS_AT_ONCE if at_once else LISTS, device=device.index)
    given, stream = lists_bytes(fields), raw_stream(device.index)
    if at_once:
        start_once(kernel, given, stream, grid=(LISTS_CLUSTER, 1, 1), threads=MANY)
    else:
        series = series_of(kernel, given, stream)
        for phase, level, grid, threads in phases(index, sizes):
            series.start(grid, threads, {PHASE_AT: phase, LEVEL_AT: level})
        series.end()
    return room, Places(
        fields.listed, fields.members, fields.items, 0 if sizes.plain else fields.grouped, fields.starts,
        fields.first_slot, fields.slot_counts, sizes.items, sizes.slots,
    )  # fmt: skip


def fields_of(index: Index, sizes: Sizes, room: int, scratch: int) -> ListsFields:
    """The arguments of every launch; phase and level are 0."""
    items, starts, columns, members, first_slot, slot_counts, grouped = _places(room, sizes.kept)
    loose, common, weight, bits, table, sums, order, best, steps = _places(scratch, sizes.scratch(index.block_cols))
    return ListsFields(
        index.row_starts.data_ptr(), index.columns.data_ptr(), 0 if index.blocks is None else index.blocks.data_ptr(),
        starts, columns, members, grouped, items, first_slot, slot_counts, bits, table, common, weight, sums, order,
        best, steps, loose, 0, 0, int(index.columns.dtype is torch.int64), index.entries, index.block_rows,
        index.block_cols, sizes.height, sizes.width, sizes.groups, sizes.levels, sizes.limit, sizes.items,
        int(sizes.plain),
    )  # fmt: skip


def _places(first: int, sizes: tuple[int, ...]) -> list[int]:
    return [first + 4 * before for before in accumulate((0, *sizes[:-1]))]


Phase = tuple[int, int, tuple[int, int, int], int]  # phase, level, grid, threads


def phases(index: Index, sizes: Sizes) -> list[Phase]:
    """The launches, in this order."""
    found: list[Phase] = []
    groups, rows = sizes.groups, sizes.groups * sizes.height
    if not sizes.plain:
        found.append((ROWS, 0, (rows, 1, 1), THREADS))
        for level in range(sizes.levels):
            count = rows >> level
            side = -(-count // SIDE)
            found.append((COMMON, level, (side, side, 1), THREADS))
            found.append((WEIGHT, level, (-(-count // WARPS), 1, 1), THREADS))
            found.append((PAIR, level, (1, 1, 1), MANY))
        found += [(COUNT, 0, (groups, 1, 1), THREADS), (FILL, 0, (groups, 1, 1), THREADS)]
    if not sizes.items:
        return found
    copying = -(-index.entries // COPIED_AT_ONCE) if sizes.plain else 0
    found.append((SPLIT, 0, (1 + copying, 1, 1), MANY))
    found.append((SORT, 0, (-(-sizes.items // THREADS), 1, 1), THREADS))
    return found

"""What the kernels walk: union lists of 128 rows each, cut into portions. Made on the index's device, no host wait."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import TensorMemo, keepable
from firstlight.kernels.schedule import Segments, most_slots, split_rows
from firstlight.kernels.sm90.listing import (
    Places,
    Sizes,
    is_listed_on_gpu,
    listed,
    parts_of,
    sizes_of,
    started,
    unsplit_sizes_of,
)
from firstlight.kernels.sm90.steps import Steps
from firstlight.kernels.unions import most_steps, unions_of

HEIGHT = 128  # rows of W in a group
WHOLE = 1 << 30  # a limit that cuts nothing


@dataclass(slots=True)
class Lists:
    """Steps, their portions, and what a reader has to use first."""

    steps: Steps
    segments: Segments
    rows: Tensor | None  # int32 [groups * rows of a group]: its block rows; None for blocks of 128
    held: Held | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that lies on the device."""
        return (*self.segments.tensors, *self.steps.tensors, self.rows)

    @property
    def places(self) -> Places:
        """Where a kernel finds them."""
        steps, segments = self.steps, self.segments
        return Places(
            steps.columns.data_ptr(), steps.members.data_ptr(), segments.items.data_ptr(),
            0 if self.rows is None else self.rows.data_ptr(), steps.starts.data_ptr(), segments.first_slot.data_ptr(),
            segments.slot_counts.data_ptr(), segments.bound, segments.slots,
        )  # fmt: skip


@dataclass(slots=True)
class ListsInRoom:
    """The same in one piece of memory, which is not taken apart before anyone asks: that takes 40 us."""

    room: Tensor
    places: Places
    sizes: Sizes
    held: Held | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that lies on the device."""
        return (self.room,)

    @property
    def steps(self) -> Steps:
        return parts_of(self.room, self.sizes).steps

    @property
    def segments(self) -> Segments:
        return parts_of(self.room, self.sizes).segments

    @property
    def rows(self) -> Tensor | None:
        return self.steps.grouped


AnyLists = Lists | ListsInRoom
_LISTS: TensorMemo[AnyLists] = TensorMemo()


def lists_of(index: Index, *, width: int, limit: int) -> AnyLists:
    """The lists of an index in portions of at most `limit` steps, kept as long as its tensors live unchanged."""
    found = _LISTS.get(index.row_starts, index.columns, (width, limit))
    if found is not None:
        use(found.held)
        return found
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(mode=False):
            made = _made(index, width=width, limit=limit)
    else:
        made = _made(index, width=width, limit=limit)
    tensors = made.tensors
    assert tensors[0] is not None, index
    if not keepable(index.row_starts, tensors[0]):
        return made
    made.held = held_after(*tensors)
    _LISTS.put(index.row_starts, index.columns, made, (width, limit))
    return made


def _made(index: Index, *, width: int, limit: int) -> AnyLists:
    sizes = sizes_of(index, width=width, limit=limit)
    if sizes.are_few and is_listed_on_gpu(index):
        room, places = started(index, sizes)
        return ListsInRoom(room, places, sizes)
    steps = steps_of(index, width=width, grouped=True)
    segments = split_rows(steps.starts, steps.bound, limit=limit)
    return Lists(steps, segments, None if index.block == HEIGHT else rows_of(steps, HEIGHT // index.block))


def rows_of(steps: Steps, rows: int) -> Tensor:
    """Int32 [groups * rows]: the block rows of each group."""
    if steps.grouped is not None:
        return steps.grouped
    return torch.arange(steps.groups * rows, dtype=torch.int32, device=steps.starts.device)


def steps_of(index: Index, *, width: int, grouped: bool) -> Steps:
    """The union lists of the groups of 128 rows, `width` block columns a step.

    grouped: a group is block rows with many columns in common, from anywhere; else rows in their order.
    """
    rows = HEIGHT // index.block
    if rows == 1 and width == 1:
        # aliases where nothing is converted: what is kept beside a tensor must not hold it
        starts, columns = index.row_starts.detach().to(torch.int32), index.columns.detach().to(torch.int32)
        if index.blocks is None:
            members = torch.arange(index.entries, dtype=torch.int32, device=columns.device)
        else:
            members = index.blocks.detach().to(torch.int32)
        return Steps(starts, columns, members, index.entries)
    if not grouped and is_listed_on_gpu(index):
        return listed(index, unsplit_sizes_of(index, width=width)).steps
    unions = unions_of(index, rows=rows, width=width, grouped=grouped and rows > 1)
    return Steps(unions.starts, unions.columns, unions.members, unions.bound, unions.grouped)


def step_width(block: int) -> int:
    """Block columns of a step of a product, e.g. 4 for blocks of 16."""
    return max(1, 64 // block)


def most_steps_of(index: Index, *, width: int) -> int:
    """About the most steps all groups can have together; known without looking at the lists."""
    if index.block == HEIGHT and width == 1:
        return index.entries
    return most_steps(index, rows=HEIGHT // index.block, width=width)


class Work(NamedTuple):
    """A product in numbers that the host knows, e.g. 64 groups, 6400 steps in all, at most 128 a group, 32 tiles."""

    groups: int
    steps: int
    most: int  # steps of one group
    tiles: int  # of tokens, over all batches
    stages_per_step: int
    part_bytes: int  # of one portion's sums for one tile
    multiprocessors: int
    block: int

    @property
    def mean(self) -> int:
        """Steps of a group, rounded up."""
        return -(-max(1, self.steps) // max(1, self.groups))


UNEVEN = 1.5  # a group this many times the mean is cut, if that is much beside a multiprocessor's share
SHARES = 3  # and it is much from a third of the share on
LEAST_SAVED = 24  # stages: putting portions together costs as much time as these take
# Stages of a group from which cutting pays where the groups do not fill the GPU; those of small blocks take longer.
CUT_FROM = {128: 48, 64: 48, 32: 32, 16: 20}
MOST_PART_BYTES = 64 << 20


def portion_limit(work: Work) -> int:
    """Steps above which a group is cut, the same for every call of a shape; WHOLE: none is."""
    limit = _filling(work) or max(
        int(UNEVEN * work.mean) + 1,
        -(-work.steps * work.tiles // (SHARES * work.multiprocessors)),
        work.mean + LEAST_SAVED // work.stages_per_step,
    )
    while limit < work.most and slots(work, limit) * work.tiles * work.part_bytes > MOST_PART_BYTES:
        limit += 1 + limit // 4
    limit = _rounded(limit)
    return limit if limit < work.most else WHOLE


def _filling(work: Work) -> int:
    """The limit that gives each multiprocessor one portion; 0: no need, or the portions would be too short to pay.

    Each portion makes the work of the others shorter and the adding up at the end longer: a group of s stages is
    done soonest in about sqrt(s) / 2 of them.
    """
    each, stages = work.multiprocessors // max(1, work.groups * work.tiles), work.mean * work.stages_per_step
    if each < 2 or stages < CUT_FROM[work.block]:
        return 0
    return max(-(-work.mean // each), 2 * math.isqrt(stages) // work.stages_per_step)


def _rounded(limit: int) -> int:
    """The next number with at most four binary digits before its zeros: token counts that differ little share lists."""
    shift = max(0, limit.bit_length() - 4)
    return -(-limit // (1 << shift)) << shift


def slots(work: Work, limit: int) -> int:
    """The most partial sums of one tile there can be, e.g. 96."""
    return most_slots(work.groups, work.steps, limit)

"""lists.cu in the emulator against the same lists made by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.pairs import grouped_order
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.schedule import Segments, split_rows
from firstlight.kernels.sm90.arguments import lists_bytes
from firstlight.kernels.sm90.listing import MANY, Sizes, fields_of, phases, sizes_of, unsplit_sizes_of
from firstlight.kernels.sm90.lists import WHOLE, Lists, step_width
from firstlight.kernels.sm90.steps import Steps
from firstlight.kernels.sm90.variants import LISTS_AT_ONCE, LISTS_CLUSTER
from firstlight.kernels.unions import find_unions
from tests.kernels.patterns import places
from tests.kernels.sm90.emulator.run import emulate
from tests.kernels.sm90.test_lists import index_of, walked


def emulated(index: Index, sizes: Sizes, seed: int = 0, *, at_once: bool = True) -> Lists:
    """The lists as lists.cu makes them, in one launch or several; what it does not write stays the largest integer."""
    room = torch.full((sum(sizes.kept),), 2**31 - 1, dtype=torch.int32)
    scratch = torch.full((sum(sizes.scratch(index.block_cols)),), 2**31 - 1, dtype=torch.int32)
    fields = fields_of(index, sizes, room.data_ptr(), scratch.data_ptr())
    if at_once:
        defines, grid = dict(LISTS_AT_ONCE.defines), (LISTS_CLUSTER, 1, 1)
        emulate("lists", defines, "lists", lists_bytes(fields), grid=grid, threads=MANY, shared_bytes=0, seed=seed)
    for phase, level, grid, threads in () if at_once else phases(index, sizes):
        given = fields._replace(phase=phase, level=level)
        emulate("lists", {}, "lists", lists_bytes(given), grid=grid, threads=threads, shared_bytes=0, seed=seed)
    items, starts, columns, members, first_slot, slot_counts, grouped = room.split_with_sizes(sizes.kept)
    segments = Segments(items.view(-1, 4), first_slot, slot_counts, first_slot[:0], sizes.slots, sizes.limit)
    return Lists(Steps(starts, columns, members, sizes.bound), segments, None if sizes.plain else grouped)


def stored(rows: int, cols: int, density: float, seed: int = 0) -> Tensor:
    return torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < density


def same_portions(found: Segments, wanted: Segments) -> bool:
    names = ("items", "first_slot", "slot_counts")
    return all(torch.equal(getattr(found, name), getattr(wanted, name)) for name in names)


@pytest.mark.parametrize(("block", "rows", "cols"), [(16, 19, 70), (32, 6, 33), (64, 9, 40), (128, 5, 100)])
@pytest.mark.parametrize("wide", [False, True])
def test_union_lists_without_groups_are_those_of_torch(block: int, rows: int, cols: int, wide: bool) -> None:  # noqa: FBT001
    index = index_of(stored(rows, cols, 0.2), block, torch.int64 if wide else torch.int32)
    sizes = unsplit_sizes_of(index, width=256 // block)
    found = emulated(index, sizes).steps
    wanted = find_unions(index, rows=128 // block, width=sizes.width)
    steps = int(wanted.starts[-1]) * sizes.width
    assert torch.equal(found.starts, wanted.starts)
    assert torch.equal(found.columns[:steps], wanted.columns[:steps])
    assert torch.equal(found.members.view(-1)[: steps * sizes.height], wanted.members.view(-1)[: steps * sizes.height])


@pytest.mark.parametrize("limit", [1, 3, WHOLE])
@pytest.mark.parametrize("turned", [False, True])
def test_lists_of_blocks_of_128_are_the_pattern_in_portions(limit: int, turned: bool) -> None:  # noqa: FBT001
    made = index_of(stored(40, 11, 0.3), 128)
    pattern = Pattern(made.row_starts, made.columns, (made.rows, made.cols), 128)
    index = pattern.transposed if turned else pattern.forward
    found = emulated(index, sizes_of(index, width=1, limit=limit))
    assert torch.equal(found.steps.columns, index.columns.to(torch.int32))
    members = torch.arange(index.entries) if index.blocks is None else index.blocks
    assert torch.equal(found.steps.members, members.to(torch.int32))
    assert same_portions(found.segments, split_rows(index.row_starts, index.entries, limit=limit))


@pytest.mark.parametrize(
    ("block", "mask"),
    [
        (64, stored(24, 40, 0.2)), (64, stored(2, 3, 0.5)), (32, stored(30, 24, 0.15)), (16, stored(70, 45, 0.1)),
        (64, torch.eye(12, dtype=torch.bool)), (32, stored(5, 64, 0.0) | (torch.arange(5)[:, None] == 3)),
    ],
)  # fmt: skip
def test_grouped_lists_walk_every_stored_block_once_and_share_as_much_as_those_of_torch(
    block: int, mask: Tensor
) -> None:
    index, width = index_of(mask, block), step_width(block)
    sizes = sizes_of(index, width=width, limit=4)
    found = emulated(index, sizes, seed=1)
    assert walked(index, found) == sorted(places(index))
    assert found.rows is not None
    assert sorted(found.rows.tolist()) == list(range(sizes.groups * sizes.height))
    assert same_portions(found.segments, split_rows(found.steps.starts, sizes.bound, limit=4))
    order = grouped_order(index, sizes.height)
    wanted = find_unions(index, rows=sizes.height, width=width, order=order)
    assert int(found.steps.starts[-1]) <= 1.02 * int(wanted.starts[-1])


def test_the_same_lists_whichever_thread_comes_first() -> None:
    index = index_of(stored(24, 70, 0.2, seed=3), 64)
    sizes = sizes_of(index, width=1, limit=5)
    first, second = (emulated(index, sizes, seed=seed) for seed in (2, 5))
    steps = int(first.steps.starts[-1])
    assert torch.equal(first.steps.starts, second.steps.starts)
    assert torch.equal(first.steps.columns[:steps], second.steps.columns[:steps])
    assert torch.equal(first.segments.items, second.segments.items)
    assert first.rows is not None
    assert second.rows is not None
    assert torch.equal(first.rows, second.rows)


@pytest.mark.parametrize(
    ("block", "mask"),
    [(16, stored(70, 45, 0.1)), (32, stored(30, 70, 0.15)), (64, stored(9, 40, 0.2)), (128, stored(40, 11, 0.3))],
)  # fmt: skip
def test_one_launch_and_several_make_the_same_lists(block: int, mask: Tensor) -> None:
    index = index_of(mask, block)
    sizes = sizes_of(index, width=step_width(block), limit=4)
    once, by_phase = (emulated(index, sizes, seed=3, at_once=at_once) for at_once in (True, False))
    assert same_portions(once.segments, by_phase.segments)
    assert torch.equal(once.steps.starts, by_phase.steps.starts)
    assert torch.equal(once.steps.columns, by_phase.steps.columns)
    assert torch.equal(once.steps.members, by_phase.steps.members)
    assert block == 128 or torch.equal(once.rows, by_phase.rows)  # type: ignore[arg-type]


def test_large_patterns_are_listed_by_all_multiprocessors() -> None:
    small, large = (index_of(stored(rows, 512, 0.02), 16) for rows in (64, 1000))
    sizes = [sizes_of(index, width=4, limit=WHOLE) for index in (small, large)]
    assert [one.are_made_at_once(512) for one in sizes] == [True, False]

"""What the kernels walk: every stored block in one portion, portions that fit their slots, limits that keep a bound."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.sm90.lists import (
    MOST_PART_BYTES,
    WHOLE,
    AnyLists,
    Work,
    lists_of,
    portion_limit,
    slots,
    step_width,
    steps_of,
)
from tests.kernels.patterns import masks, places


def index_of(mask: torch.Tensor, block: int, dtype: torch.dtype = torch.int32) -> Index:
    crow = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)]).to(dtype)
    col = mask.nonzero()[:, 1].to(dtype)
    return Pattern(crow, col, (mask.shape[0] * block, mask.shape[1] * block), block).forward


def walked(index: Index, lists: AnyLists) -> list[tuple[int, int, int]]:
    """(block row, block column, stored block) of everything that all portions together walk."""
    rows, width = 128 // index.block, step_width(index.block)
    columns, members = lists.steps.columns.tolist(), lists.steps.members.view(-1, rows).tolist()
    found = []
    own = list(range(lists.steps.groups)) if lists.rows is None else lists.rows.tolist()
    for group, begin, end, _ in lists.segments.items.tolist():
        for entry in range(begin * width, end * width) if group >= 0 else ():
            there = enumerate(members[entry], group * rows)
            found += [(own[row], columns[entry], member) for row, member in there if member >= 0]
    return sorted(found)


@given(mask=masks(12), block=st.sampled_from([16, 32, 64, 128]), limit=st.integers(1, 6), wide=st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_portions_walk_every_stored_block_once(
    mask: torch.Tensor, block: int, limit: int, wide: bool  # noqa: FBT001
) -> None:  # fmt: skip
    index = index_of(mask, block, torch.int64 if wide else torch.int32)
    lists = lists_of(index, width=step_width(block), limit=limit)
    assert walked(index, lists) == sorted(places(index))
    items = lists.segments.items
    assert (items[:, 2] - items[:, 1] <= limit).all()
    groups = lists.steps.groups
    assert sorted(set(items[:, 0].tolist()) - {-1}) == list(range(groups)), "a group without blocks is written too"
    for group, begin, end, slot in items.tolist():
        assert (group < 0) <= (begin == end == 0), "what is unused is empty"
        if slot >= 0:
            first, count = int(lists.segments.first_slot[group]), int(lists.segments.slot_counts[group])
            assert first <= slot < first + count <= lists.segments.slots


@given(mask=masks(12), block=st.sampled_from([16, 32, 64]))
@settings(max_examples=60, deadline=None)
def test_every_block_row_is_in_one_group(mask: torch.Tensor, block: int) -> None:
    lists = lists_of(index_of(mask, block), width=step_width(block), limit=WHOLE)
    assert lists.rows is not None
    assert sorted(lists.rows.tolist()) == list(range(128 // block * lists.steps.groups))


def test_lists_are_kept_with_the_index_and_go_with_it() -> None:
    matrix = BlockSparseMatrix.random(512, 512, block=128, density=0.5)
    first = lists_of(matrix.index, width=1, limit=WHOLE)
    assert lists_of(matrix.index, width=1, limit=WHOLE) is first
    with torch.no_grad():
        matrix.pattern.col.copy_(matrix.pattern.col.clone())
    assert lists_of(matrix.pattern.forward, width=1, limit=WHOLE) is not first


def test_blocks_of_128_are_walked_as_the_index_has_them() -> None:
    matrix = BlockSparseMatrix.random(512, 640, block=128, density=0.5)
    for index in (matrix.index, matrix.T.index):
        steps = steps_of(index, width=1, grouped=True)
        assert steps.bound == index.entries
        assert torch.equal(steps.columns, index.columns.to(torch.int32))
        wanted = torch.arange(index.entries) if index.blocks is None else index.blocks
        assert torch.equal(steps.members, wanted.to(torch.int32))


@given(
    groups=st.integers(1, 4096), mean=st.integers(0, 512), tiles=st.integers(1, 4096), narrow=st.booleans(),
    two=st.booleans(),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_partial_sums_stay_within_their_memory(
    groups: int, mean: int, tiles: int, narrow: bool, two: bool  # noqa: FBT001
) -> None:  # fmt: skip
    work = Work(
        groups=groups, steps=groups * mean, most=2 * mean + 1, tiles=tiles, stages_per_step=2 if two else 1,
        part_bytes=128 * 4 * (64 if narrow else 256), multiprocessors=132, block=128 if two else 64,
    )  # fmt: skip
    limit = portion_limit(work)
    assert limit >= 2
    assert limit == WHOLE or slots(work, limit) * tiles * work.part_bytes <= MOST_PART_BYTES


def work(**changed: int) -> Work:
    told = {"groups": 64, "steps": 6400, "most": 128, "tiles": 32, "stages_per_step": 1, "part_bytes": 131072}
    return Work(**{**told, "block": 64, **changed}, multiprocessors=132)


def test_groups_are_cut_where_they_would_not_fill_the_gpu_or_are_far_above_the_mean() -> None:
    assert portion_limit(work()) == WHOLE, "an even pattern with many tokens is left whole"
    assert portion_limit(work(tiles=1)) == 52, "a portion for each multiprocessor: 64 groups of 100 steps in two"
    assert portion_limit(work(groups=1, steps=100, tiles=1)) == 20, "in no more than pays"
    assert portion_limit(work(steps=640, most=512, tiles=1)) == 36, "groups that are short by themselves stay whole"
    assert portion_limit(work(steps=640, most=512, tiles=4)) == 36, "but for one far above the mean"
    assert portion_limit(work(steps=6400, most=512, tiles=4)) == 160, "one and a half times"
    assert portion_limit(work(steps=640, most=512)) == 88, "and more where the partial sums would not fit"


def test_small_blocks_are_cut_sooner_as_their_stages_take_longer() -> None:
    assert portion_limit(work(steps=64 * 30, most=64, tiles=1)) == 56
    assert portion_limit(work(steps=64 * 30, most=64, tiles=1, block=16)) == 15

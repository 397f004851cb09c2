"""Schedules: every stored block is in exactly one portion, and the host knows how much room there must be."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from firstlight.kernels import schedule as schedule_room
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.schedule import Segments, most_split_rows, schedule_of

lengths_of_rows = st.lists(st.integers(0, 40), min_size=1, max_size=20)
limits = st.integers(1, 50)


def index_with(lengths: list[int], dtype: torch.dtype = torch.int32) -> Index:
    starts = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
    columns = torch.cat([torch.arange(length, dtype=dtype) for length in lengths])
    return Index(starts, columns, None, len(lengths) * 16, 40 * 16, 16, blocks_transposed=False)


def real_items(segments: Segments) -> list[list[int]]:
    return [item for item in segments.items.tolist() if item[0] >= 0]


@given(lengths_of_rows)
def test_rows_come_longest_first_and_each_once(lengths: list[int]) -> None:
    order = schedule_of(index_with(lengths)).order
    assert order.dtype == torch.int32
    assert order.tolist() == sorted(range(len(lengths)), key=lambda row: -lengths[row])


@given(lengths_of_rows, limits, st.sampled_from([torch.int32, torch.int64]))
def test_portions_hold_every_stored_block_exactly_once(lengths: list[int], limit: int, dtype: torch.dtype) -> None:
    index = index_with(lengths, dtype)
    starts = index.row_starts.tolist()
    taken: list[int] = []
    for row, begin, end, _ in real_items(schedule_of(index).segments(limit)):
        assert starts[row] <= begin <= end <= starts[row + 1]
        taken += range(begin, end)
    assert sorted(taken) == list(range(index.entries))


@given(lengths_of_rows, limits)
def test_every_row_has_a_portion_also_when_it_is_empty(lengths: list[int], limit: int) -> None:
    segments = schedule_of(index_with(lengths)).segments(limit)
    rows = [row for row, _, _, _ in real_items(segments)]
    assert set(rows) == set(range(len(lengths)))
    assert all(rows.count(row) == max(1, -(-length // limit)) for row, length in enumerate(lengths))


@given(lengths_of_rows, limits)
def test_portions_are_within_the_limit_and_even_inside_a_row(lengths: list[int], limit: int) -> None:
    sizes: dict[int, list[int]] = {}
    for row, begin, end, _ in real_items(schedule_of(index_with(lengths)).segments(limit)):
        sizes.setdefault(row, []).append(end - begin)
    for of_row in sizes.values():
        assert max(of_row) <= limit
        assert max(of_row) - min(of_row) <= 1


@given(lengths_of_rows, limits)
def test_longer_portions_come_first_and_unused_ones_last(lengths: list[int], limit: int) -> None:
    items = schedule_of(index_with(lengths)).segments(limit).items.tolist()
    sizes = [end - begin if row >= 0 else -1 for row, begin, end, _ in items]
    assert sizes == sorted(sizes, reverse=True)
    assert all(item == [-1, 0, 0, -1] for item, size in zip(items, sizes, strict=True) if size < 0)


@given(lengths_of_rows, limits)
def test_rows_in_several_portions_have_slots_of_their_own_in_order(lengths: list[int], limit: int) -> None:
    segments = schedule_of(index_with(lengths)).segments(limit)
    first, counts = segments.first_slot.tolist(), segments.slot_counts.tolist()
    used: list[int] = []
    for row, length in enumerate(lengths):
        portions = sorted((begin, slot) for item_row, begin, _, slot in real_items(segments) if item_row == row)
        if length <= limit:
            assert [slot for _, slot in portions] == [-1]
            assert counts[row] == 0
        else:
            assert [slot for _, slot in portions] == list(range(first[row], first[row] + counts[row]))
            used += [slot for _, slot in portions]
    assert used == list(range(len(used)))
    assert len(used) <= segments.slots


@given(lengths_of_rows, limits)
def test_rows_in_several_portions_are_listed(lengths: list[int], limit: int) -> None:
    listed = schedule_of(index_with(lengths)).segments(limit).split_rows.tolist()
    split = [row for row, length in enumerate(lengths) if length > limit]
    assert listed == split + [-1] * (len(listed) - len(split))


@given(lengths_of_rows, limits)
def test_adding_partial_sums_by_slot_gives_the_sum_of_each_row(lengths: list[int], limit: int) -> None:
    index = index_with(lengths)
    numbers = torch.arange(1, index.entries + 1, dtype=torch.float64)
    segments = schedule_of(index).segments(limit)
    slots = torch.full((segments.slots,), torch.nan, dtype=torch.float64)
    sums = torch.full((len(lengths),), torch.nan, dtype=torch.float64)
    for row, begin, end, slot in real_items(segments):
        if slot < 0:
            sums[row] = numbers[begin:end].sum()
        else:
            slots[slot] = numbers[begin:end].sum()
    for row, count in enumerate(segments.slot_counts.tolist()):
        if count:
            first = int(segments.first_slot[row])
            sums[row] = slots[first : first + count].sum()
    starts = index.row_starts.tolist()
    wanted = [float(numbers[begin:end].sum()) for begin, end in itertools.pairwise(starts)]
    assert sums.tolist() == wanted


def test_the_room_for_portions_depends_on_sizes_that_the_host_knows() -> None:
    one_long = schedule_of(index_with([12, 0, 0, 0])).segments(4)
    even = schedule_of(index_with([3, 3, 3, 3])).segments(4)
    assert one_long.bound == even.bound == 4 + 11 // 4
    assert one_long.slots == even.slots == 4
    assert one_long.split_rows.shape == even.split_rows.shape == (most_split_rows(4, 12, 4),)


def test_a_matrix_without_blocks_has_one_empty_portion_for_each_row() -> None:
    segments = schedule_of(index_with([0, 0, 0])).segments(8)
    assert segments.items.tolist() == [[0, 0, 0, -1], [1, 0, 0, -1], [2, 0, 0, -1]]
    assert segments.slots == 0


def test_a_schedule_is_computed_without_reading_a_number_back() -> None:
    # a fake tensor has no numbers: whatever asks for one (.item(), nonzero, a boolean mask) raises
    with FakeTensorMode():
        starts, columns = torch.empty(129, dtype=torch.int32), torch.empty(1638, dtype=torch.int32)
        index = Index(starts, columns, None, 8192, 8192, 64, blocks_transposed=False)
        segments = schedule_of(index).segments(16)
        assert segments.items.shape == (128 + 1637 // 16, 4)
        assert segments.split_rows.shape == (1638 // 17,)
        with pytest.raises(RuntimeError, match="_local_scalar_dense"):
            starts[0].item()


def test_a_schedule_of_more_entries_than_fit_into_memory_has_its_sizes() -> None:
    entries = 2**31 - 1
    starts = torch.empty(2**20 + 1, dtype=torch.int64, device="meta")
    columns = torch.empty(entries, dtype=torch.int64, device="meta")
    index = Index(starts, columns, None, 2**24, 2**24, 16, blocks_transposed=False)
    segments = schedule_of(index).segments(2**16)
    assert segments.bound == 2**20 + (entries - 1) // 2**16
    assert segments.slots == 2 * entries // (2**16 + 1)


def test_offsets_near_the_largest_32_bit_number_are_not_cut_short() -> None:
    last = 2**31 - 1
    starts = torch.tensor([0, last - 3, last], dtype=torch.int64)
    segments = schedule_room.split_rows(starts, last, limit=2**30)
    half = (last - 3) // 2
    assert real_items(segments) == [[0, 0, half, 0], [0, half, last - 3, 1], [1, last - 3, last, -1]]


def test_a_schedule_is_kept_with_the_index_and_made_anew_when_it_changes() -> None:
    pattern = Pattern(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), (32, 32), 16)
    first = schedule_of(pattern.forward)
    assert schedule_of(pattern.forward) is first
    assert first.segments(2) is first.segments(2)
    assert schedule_of(pattern.transposed) is not first
    pattern.crow[1] = 1
    assert schedule_of(pattern.forward) is not first
    assert schedule_of(pattern.forward).order.tolist() == [1, 0]


def test_a_schedule_goes_with_the_index() -> None:
    gc.collect()
    before = len(schedule_room._SCHEDULES)
    index: Index | None = index_with([3, 1])
    assert index is not None
    assert schedule_of(index).segments(2).bound == 3
    assert len(schedule_room._SCHEDULES) == before + 1
    columns = index.columns  # what is left of an index does not hold the rest
    index = None
    gc.collect()
    assert len(schedule_room._SCHEDULES) == before
    assert columns.shape == (4,)


def test_a_schedule_made_in_inference_mode_serves_later_calls() -> None:
    index = index_with([3, 1])
    with torch.inference_mode():
        schedule = schedule_of(index)
        items: Tensor = schedule.segments(2).items
    assert not schedule.order.is_inference()
    assert not items.is_inference()
    assert schedule_of(index) is schedule

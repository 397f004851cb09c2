"""Rows that are multiplied together have much in common, each is in one group, and no pattern gets worse by it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.kernels.pairs import MOST_ROWS, grouped_order
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.unions import find_unions, sorted_unions, unions_of
from tests.kernels.patterns import masks, pattern_of_mask, patterns, places


def pattern_of(mask: Tensor) -> Pattern:
    return pattern_of_mask(mask, (16 * mask.shape[0], 16 * mask.shape[1]))


def random_mask(rows: int, cols: int, density: float) -> Tensor:
    return torch.rand(rows, cols, generator=torch.Generator().manual_seed(3)) < density


def columns_read(mask: Tensor, order: Tensor, rows: int) -> int:
    """Union columns of all groups together; a row past the end stores nothing."""
    padded = torch.cat([mask, torch.zeros(len(order) - mask.shape[0], mask.shape[1], dtype=torch.bool)])
    return int(padded[order].view(-1, rows, mask.shape[1]).any(1).sum())


@given(mask=masks(9), rows=st.sampled_from([2, 4]))
@settings(max_examples=100, deadline=None)
def test_each_row_is_in_one_group_and_no_more_is_read_than_by_neighbours(mask: Tensor, rows: int) -> None:
    order = grouped_order(pattern_of(mask).forward, rows)
    if order is None:
        return
    assert sorted(order.tolist()) == list(range(len(order)))
    assert len(order) % rows == 0
    assert columns_read(mask, order, rows) <= columns_read(mask, torch.arange(len(order)), rows)


@pytest.mark.parametrize(
    ("rows", "density", "most"),
    [(2, 0.04, 0.88), (2, 0.1, 0.91), (2, 0.3, 0.93), (2, 0.5, 0.95), (4, 0.1, 0.88), (8, 0.05, 0.87), (8, 0.1, 0.9)],
)
def test_a_random_pattern_reads_less_than_by_neighbours(rows: int, density: float, most: float) -> None:
    size = 64 * rows
    mask = random_mask(size, size, density)
    order = grouped_order(pattern_of(mask).forward, rows)
    assert order is not None
    assert columns_read(mask, order, rows) <= most * columns_read(mask, torch.arange(size), rows)


def test_twins_find_each_other_wherever_they_are() -> None:
    half = random_mask(40, 64, 0.3)
    order = grouped_order(pattern_of(torch.cat([half, half])).forward, 2)
    assert order is not None
    assert all(abs(int(one) - int(other)) == 40 for one, other in zip(order[0::2], order[1::2], strict=True))


def test_neighbours_of_a_band_stay_together() -> None:
    number = torch.arange(64)
    order = grouped_order(pattern_of((number[:, None] - number).abs() <= 3).forward, 2)
    assert order is not None
    assert order.tolist() == number.tolist()


def test_too_many_rows_stay_as_they_are_and_so_do_all_in_the_deterministic_mode() -> None:
    mask = torch.ones(MOST_ROWS + 1, 1, dtype=torch.bool)
    assert grouped_order(pattern_of(mask).forward, 2) is None
    few = pattern_of(mask[:8]).forward
    assert grouped_order(few, 2) is not None
    torch.use_deterministic_algorithms(mode=True)
    try:
        assert grouped_order(few, 2) is None
    finally:
        torch.use_deterministic_algorithms(mode=False)


@given(pattern=patterns(), rows=st.sampled_from([2, 4]), width=st.sampled_from([1, 2]), flip=st.booleans())
@settings(max_examples=60, deadline=None)
def test_grouped_lists_hold_every_stored_block_once(pattern: Pattern, rows: int, width: int, flip: bool) -> None:  # noqa: FBT001
    index = pattern.transposed if flip else pattern.forward
    unions = unions_of(index, rows=rows, width=width, grouped=True)
    order = torch.arange(rows * unions.groups) if unions.grouped is None else unions.grouped
    starts, columns, members = unions.starts.tolist(), unions.columns.tolist(), unions.members.tolist()
    found = []
    for group in range(unions.groups):
        for step in range(starts[group], starts[group + 1]):
            for place in range(width):
                for row, block in enumerate(members[step][place]):
                    if block >= 0:
                        found.append((int(order[rows * group + row]), columns[step * width + place], block))
    assert sorted(found) == sorted(places(index))


@given(pattern=patterns(), rows=st.sampled_from([2, 4]), width=st.sampled_from([1, 2]))
@settings(max_examples=30, deadline=None)
def test_sorting_gives_the_grouped_lists_of_the_table(pattern: Pattern, rows: int, width: int) -> None:
    order = grouped_order(pattern.forward, rows)
    table, made = (make(pattern.forward, rows=rows, width=width, order=order) for make in (find_unions, sorted_unions))
    steps = int(table.starts[-1])
    assert torch.equal(made.starts, table.starts)
    assert torch.equal(made.columns[: steps * width], table.columns[: steps * width])
    assert torch.equal(made.members[:steps], table.members[:steps])

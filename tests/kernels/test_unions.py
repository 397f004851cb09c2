"""Union lists hold every stored block once, at its place, and nothing else."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.kernels.pattern import Pattern
from firstlight.kernels.unions import find_unions, most_steps, sorted_unions, unions_of
from tests.kernels.patterns import pattern_of_mask, patterns, places


@given(pattern=patterns(), rows=st.sampled_from([1, 2, 4]), width=st.sampled_from([1, 2, 4]), flip=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_members_are_the_stored_blocks(pattern: Pattern, rows: int, width: int, flip: bool) -> None:  # noqa: FBT001
    index = pattern.transposed if flip else pattern.forward
    unions = find_unions(index, rows=rows, width=width)
    starts, columns, members = unions.starts.tolist(), unions.columns.tolist(), unions.members.tolist()
    found = []
    for group in range(unions.groups):
        own = columns[starts[group] * width : starts[group + 1] * width]
        used = [column for column in own if column < index.block_cols]
        assert used == sorted(set(used))
        assert own[len(used) :] == [index.block_cols] * (len(own) - len(used))
        assert len(own) - len(used) < width
        for step in range(starts[group], starts[group + 1]):
            for place in range(width):
                for row, block in enumerate(members[step][place]):
                    if block >= 0:
                        found.append((group * rows + row, columns[step * width + place], block))
    assert sorted(found) == sorted(places(index))
    assert starts[-1] <= unions.bound == most_steps(index, rows=rows, width=width)


@given(pattern=patterns(), rows=st.sampled_from([1, 2, 4]), width=st.sampled_from([1, 2, 4]), flip=st.booleans())
@settings(max_examples=40, deadline=None)
def test_sorting_gives_the_lists_of_the_table(pattern: Pattern, rows: int, width: int, flip: bool) -> None:  # noqa: FBT001
    index = pattern.transposed if flip else pattern.forward
    table, made = (make(index, rows=rows, width=width) for make in (find_unions, sorted_unions))
    steps = int(table.starts[-1])
    assert torch.equal(made.starts, table.starts)
    assert torch.equal(made.columns[: steps * width], table.columns[: steps * width])
    assert torch.equal(made.members[:steps], table.members[:steps])
    assert (made.columns[steps * width :] == index.block_cols).all()
    assert (made.members[steps:] == -1).all()


def test_a_block_stored_twice_has_two_places() -> None:
    crow, col = torch.tensor([0, 3, 4]), torch.tensor([1, 1, 0, 1])
    pattern = Pattern(crow, col, (32, 32), 16, distinct=False)
    unions = unions_of(pattern.forward, rows=2, width=1)
    assert unions.starts.tolist() == [0, 3]
    assert unions.columns.tolist()[:3] == [0, 1, 1]
    assert unions.members.tolist()[:3] == [[[2, -1]], [[0, 3]], [[1, -1]]]


def test_groups_come_longest_first() -> None:
    mask = torch.zeros(6, 8, dtype=torch.bool)
    mask[4:] = True
    mask[0, 0] = True
    unions = find_unions(pattern_of_mask(mask, (96, 128)).forward, rows=2, width=1)
    assert unions.order.tolist() == [2, 0, 1]


def test_lists_are_kept_until_the_index_changes_in_place() -> None:
    pattern = pattern_of_mask(torch.eye(4, dtype=torch.bool), (64, 64))
    before = unions_of(pattern.forward, rows=2, width=2)
    assert unions_of(pattern.forward, rows=2, width=2) is before
    pattern.col.copy_(torch.tensor([3, 1, 2, 0]))
    after = unions_of(pattern.forward, rows=2, width=2)
    assert after.columns.tolist()[:2] == [1, 3]

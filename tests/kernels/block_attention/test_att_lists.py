"""Lists: exactly the kept blocks, ascending, in both directions, made anew when the mask changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.kernels.block_attention.lists import AnyLists, fill, lists_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from tests.kernels.block_attention.att_masks import Drawn, Sizes, masks, no_numbers, nothing_is_read, sizes

FEW = settings(max_examples=60, deadline=None)


@st.composite
def drawn_masks(draw: st.DrawFn) -> BlockMask:
    at: Sizes = draw(sizes())
    drawn: Drawn = draw(masks(at))
    return drawn.mask


def entries(lists: AnyLists) -> list[list[tuple[int, int]]]:
    """For each row its (column, row of bits)."""
    starts, columns, bits = lists.starts.tolist(), lists.columns.tolist(), lists.masks.tolist()
    assert starts[0] == 0
    return [list(zip(columns[a:b], bits[a:b], strict=True)) for a, b in itertools.pairwise(starts)]


def expected(mask: BlockMask) -> list[list[tuple[int, int]]]:
    rows = []
    which = torch.zeros_like(mask.kinds) if mask.which is None else mask.which
    for kinds, bits in zip(mask.kinds.flatten(0, 2).tolist(), which.flatten(0, 2).tolist(), strict=True):
        pairs = enumerate(zip(kinds, bits, strict=True))
        rows.append([(column, row if kind == 1 else -1) for column, (kind, row) in pairs if kind != 0])
    return rows


def turned(mask: BlockMask) -> BlockMask:
    which = None if mask.which is None else mask.which.mT.contiguous()
    return BlockMask(mask.kinds.mT.contiguous(), which, mask.bits, q_len=mask.k_len, k_len=mask.q_len, block=mask.block)


@FEW
@given(drawn_masks())
def test_lists_hold_exactly_the_kept_blocks_ascending(mask: BlockMask) -> None:
    assert entries(lists_of(mask)) == expected(mask)


@FEW
@given(drawn_masks())
def test_turned_lists_hold_them_by_key_block(mask: BlockMask) -> None:
    assert entries(turned_lists_of(mask)) == expected(turned(mask))


@FEW
@given(drawn_masks())
def test_lists_are_int32_of_the_promised_sizes_and_valid_as_far_as_they_are_used(mask: BlockMask) -> None:
    batch, heads, rows, columns = mask.kinds.shape
    for lists, length, width in ((lists_of(mask), rows, columns), (turned_lists_of(mask), columns, rows)):
        assert {part.dtype for part in lists} == {torch.int32}
        assert lists.starts.shape == (batch * heads * length + 1,)
        assert lists.columns.shape == lists.masks.shape == (max(mask.most, 1),)
        assert lists.order.shape == (batch * heads, length)
        end = int(lists.starts[-1])
        assert end <= len(lists.columns)
        assert lists.columns[:end].lt(width).all()
        assert all(part.is_contiguous() for part in lists)


@FEW
@given(drawn_masks())
def test_the_order_is_longest_first_and_equal_ones_ascending(mask: BlockMask) -> None:
    for lists in (lists_of(mask), turned_lists_of(mask)):
        lengths = lists.starts.diff().view(lists.order.shape)
        for order, counts in zip(lists.order.tolist(), lengths.tolist(), strict=True):
            assert order == sorted(range(len(counts)), key=lambda row: (-counts[row], row))


def test_lists_of_two_causal_blocks_read_as_the_page_says() -> None:
    mask = BlockMask.causal(256)
    assert entries(lists_of(mask)) == [[(0, 0)], [(0, -1), (1, 0)]]
    assert entries(turned_lists_of(mask)) == [[(0, 0), (1, -1)], [(1, 0)]]
    assert lists_of(mask).order.tolist() == [[1, 0]]


def test_an_empty_mask_has_empty_lists_with_room_for_one() -> None:
    mask = BlockMask.sink(300, keys=0, block=64)
    assert mask.most == 0
    for lists in (lists_of(mask), turned_lists_of(mask)):
        assert lists.columns.shape == lists.masks.shape == (1,)
        assert lists.starts.tolist() == [0] * 6


def test_lists_are_made_once() -> None:
    mask = BlockMask.causal(300)
    assert lists_of(mask) is lists_of(mask)
    assert turned_lists_of(mask) is turned_lists_of(mask)


def test_changes_in_place_are_noticed() -> None:
    mask = BlockMask.causal(300, block=64)
    assert mask.most == 15
    before = lists_of(mask), turned_lists_of(mask), mask.density
    mask.kinds[0, 0, 0] = 2  # more blocks than the mask was made with
    assert mask.most == 25
    assert mask.density > before[2]
    assert entries(lists_of(mask)) == expected(mask)
    assert entries(turned_lists_of(mask)) == expected(turned(mask))
    assert mask.which is not None
    mask.which.add_(0)
    assert lists_of(mask) is not before[0]
    again = lists_of(mask)
    assert mask.bits is not None
    mask.bits.zero_()
    assert lists_of(mask) is not again


def test_a_bound_that_is_too_low_leaves_blocks_out_and_writes_nowhere_else() -> None:
    starts, columns, masks_ = fill(torch.full((1, 1, 3, 3), 2, dtype=torch.uint8), None, 4)
    assert starts.tolist() == [0, 3, 4, 4]
    assert columns.tolist() == [0, 1, 2, 0]
    assert masks_.tolist() == [-1] * 4


@pytest.mark.parametrize("context", [nothing_is_read, no_numbers], ids=["no reading operator", "no numbers"])
def test_lists_are_made_without_reading_back(context: Callable[[], AbstractContextManager[None]]) -> None:
    with context():
        mask = BlockMask.causal(300, block=64) & BlockMask.window(300, left=70, block=64)
        assert lists_of(mask).columns.shape == (12,)
        assert turned_lists_of(mask).order.shape == (1, 5)


def test_lists_made_in_inference_mode_serve_later() -> None:
    mask = BlockMask.causal(300)
    with torch.inference_mode():
        made = lists_of(mask)
    assert not any(part.is_inference() for part in made)
    assert lists_of(mask) is made


def test_of_tensors_that_count_no_changes_nothing_is_kept() -> None:
    with torch.inference_mode():
        kinds = torch.full((1, 1, 2, 2), 2, dtype=torch.uint8)
    mask = BlockMask(kinds, q_len=200, k_len=200)
    assert not mask.counts_changes
    assert entries(lists_of(mask)) == [[(0, -1), (1, -1)]] * 2
    assert mask.blocks == 4
    with torch.inference_mode():
        kinds[0, 0, 0, 0] = 0
    assert entries(lists_of(mask)) == [[(1, -1)], [(0, -1), (1, -1)]]
    assert mask.blocks == 3

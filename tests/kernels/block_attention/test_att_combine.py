"""`&` and `|`: the logical operations on what masks keep, in one form however a mask was made."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention import combine
from firstlight.kernels.block_attention.bits import unpack
from firstlight.kernels.block_attention.mask import PARTIAL, BlockMask
from tests.kernels.block_attention.att_masks import (
    Drawn,
    Sizes,
    kinds_of,
    masks,
    no_numbers,
    nothing_is_read,
    sizes,
)

FEW = settings(max_examples=60, deadline=None)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Sizes, Drawn, Drawn]:
    at = draw(sizes())
    return at, draw(masks(at)), draw(masks(at))


@pytest.mark.parametrize("limit", [0, 4096], ids=["counted rows", "all rows"])
@FEW
@given(pairs())
def test_and_and_or_are_the_logical_operations(limit: int, drawn: tuple[Sizes, Drawn, Drawn]) -> None:
    at, (first, one), (second, other) = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combine, "ROWS_WITHOUT_LOOKING", limit)
        for made, expected in ((first & second, one & other), (first | second, one | other)):
            assert torch.equal(made.to_bool(), expected)
            assert torch.equal(made.kinds, kinds_of(expected, at))
            assert made.blocks <= made.most <= made.kinds.numel()


@settings(max_examples=25, deadline=None)
@given(pairs())
def test_the_same_mask_made_in_several_ways_is_one(drawn: tuple[Sizes, Drawn, Drawn]) -> None:
    at, (first, one), (second, other) = drawn
    ways = [
        first & second,
        second & first,
        BlockMask.from_bool(one & other, block=at.block),
        BlockMask.from_bool(one & other, block=at.block, count=False),
        (first & second) & (first | second),
        first & second & second,
    ]
    for way in ways:
        assert torch.equal(way.kinds, ways[0].kinds)
        assert torch.equal(bits_inside(way), bits_inside(ways[0]))
        assert way.equals(ways[0])


def bits_inside(mask: BlockMask) -> torch.Tensor:
    """The bits of every block seen in part, in order, with zeros beyond the lengths: what may not depend on the way."""
    if mask.bits is None or mask.which is None:
        return torch.zeros(0, mask.block, mask.block, dtype=torch.bool)
    _, _, row, column = places = (mask.kinds == PARTIAL).nonzero(as_tuple=True)
    inside = torch.arange(mask.block)
    lines = inside < (mask.q_len - row * mask.block)[:, None]
    keys = inside < (mask.k_len - column * mask.block)[:, None]
    return unpack(mask.bits)[mask.which[places].long()] & lines[:, :, None] & keys[:, None, :]


@FEW
@given(pairs())
def test_masks_are_equal_where_they_keep_the_same_pairs(drawn: tuple[Sizes, Drawn, Drawn]) -> None:
    _, (first, one), (second, other) = drawn
    assert first.equals(second) == (one.shape == other.shape and torch.equal(one, other))


def test_a_single_pair_makes_a_difference_inside_of_the_lengths_alone() -> None:
    mask = BlockMask.causal(100, block=64)
    assert mask.bits is not None
    # the diagonal's one row of bits serves blocks 0 and 1: only block 1 ends at 36, so a copy for it alone
    which = torch.tensor([[0, 0], [0, 1]], dtype=torch.int32)[None, None]
    changed = torch.cat([mask.bits, mask.bits])
    changed[1, 40] ^= 1
    assert mask.equals(BlockMask(mask.kinds, which, changed, q_len=100, k_len=100, block=64))
    changed[1, 35] ^= 1
    assert not mask.equals(BlockMask(mask.kinds, which, changed, q_len=100, k_len=100, block=64))
    assert not mask.equals(BlockMask.causal(100, block=128))
    assert not mask.equals("causal")  # type: ignore[arg-type]


def test_a_mask_put_together_from_tensors_has_a_canonical_form() -> None:
    kinds = torch.ones(1, 1, 2, 2, dtype=torch.uint8)
    which = torch.tensor([[0, 1], [2, 2]], dtype=torch.int32)[None, None]
    bits = torch.stack([torch.full((64, 2), -1), torch.zeros(64, 2), torch.zeros(64, 2)]).to(torch.int32)
    bits[2, :36, 0] = -1
    bits[2, :36, 1] = 15  # 36 x 36 ones: all of the last block of 100 x 100, not of the one before it
    mask = BlockMask(kinds, which, bits, q_len=100, k_len=100, block=64)
    with nothing_is_read():
        canonical = mask.canonical()
    assert canonical.kinds[0, 0].tolist() == [[2, 0], [1, 2]]
    assert torch.equal(canonical.to_bool(), mask.to_bool())
    assert mask.equals(canonical)


def test_heads_and_batches_of_one_stand_for_all() -> None:
    by_batch = torch.rand(2, 1, 100, 130) < 0.5
    by_head = torch.rand(1, 3, 100, 130) < 0.5
    first, second = BlockMask.from_bool(by_batch, block=64), BlockMask.from_bool(by_head, block=64)
    assert torch.equal((first & second).to_bool(), by_batch & by_head)
    assert torch.equal((first | second).to_bool(), by_batch | by_head)
    assert (first & second).shape == (2, 3, 100, 130)


def test_the_bound_of_kept_blocks_follows_the_operation() -> None:
    causal, sink = BlockMask.causal(4096), BlockMask.sink(4096, keys=100)
    assert (causal & sink).most == 32
    assert (causal | sink).most == 528 + 32
    assert (causal | BlockMask.full(4096)).most == 1024
    heads = BlockMask.from_bool(torch.ones(2, 3, 32, 32) > 0, block_level=True, q_len=4096, k_len=4096)
    assert (heads & sink).most == 6 * 32


def test_few_rows_of_bits_are_combined_without_reading_back() -> None:
    for context in (nothing_is_read, no_numbers):
        with context():
            causal, sink = BlockMask.causal(300, 200, block=64), BlockMask.sink(300, 200, keys=5, block=64)
            window = BlockMask.window(300, 200, left=30, right=30, block=64)
            heads = BlockMask.top_k(torch.zeros(2, 3, 5, 4), 2, q_len=300, k_len=200, block=64)
            made = heads & causal & (window | sink)
            assert made.kinds.shape == (2, 3, 5, 4)


def test_many_rows_of_bits_are_no_more_than_blocks() -> None:
    elements = torch.rand(1, 1, 700, 700) < 0.5
    mask = BlockMask.from_bool(elements, block=64)
    with nothing_is_read():
        made = mask & mask & mask & mask
    assert made.bits is not None
    assert made.bits.shape[0] == 121
    assert made.equals(mask)


def test_very_many_rows_of_bits_keep_those_alone_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine, "ROWS_WITHOUT_LOOKING", 120)
    generator = torch.Generator().manual_seed(1)
    one, other = (torch.rand(1, 1, 700, 700, generator=generator) < 0.5 for _ in range(2))
    first, second = BlockMask.from_bool(one, block=64), BlockMask.from_bool(other, block=64)
    assert first.bits is not None
    assert first.bits.shape[0] == 121
    made = first & second
    assert made.bits is not None
    assert made.bits.shape[0] == 121  # of 121 + 121 + 121 * 121
    assert torch.equal(made.to_bool(), one & other)
    some = made & BlockMask.sink(700, keys=100, block=64)
    assert some.bits is not None
    assert some.bits.shape[0] == 22  # two of eleven columns of blocks
    none = made & BlockMask.sink(700, keys=0, block=64) & second
    assert none.blocks == 0


def test_nothing_is_left_of_masks_that_are_apart() -> None:
    first = BlockMask.sink(700, keys=10, block=64)
    second = ~first.to_bool()
    assert (first & BlockMask.from_bool(second, block=64)).blocks == 0
    assert (first | BlockMask.from_bool(second, block=64)).equals(BlockMask.full(700, block=64))


BAD = {
    "block": (
        BlockMask.full(100, block=64),
        "of & have block 128 and 64; one block is accepted. Make both with block=128",
    ),
    "q_len": (BlockMask.full(101, 100), "of & have q_len 100 and 101; one q_len is accepted. Make both with q_len=100"),
    "k_len": (BlockMask.full(100, 101), "of & have k_len 100 and 101; one k_len is accepted. Make both with k_len=100"),
    "device": (BlockMask.full(100, device="meta"), r"of & have device cpu and meta; .*Move one with .to\('cpu'\)"),
    "tensor": (torch.ones(100, 100), "the right side of & is a Tensor; a BlockMask is accepted. Make one, .*from_bool"),
}


@pytest.mark.parametrize("name", BAD)
def test_masks_that_do_not_fit_are_refused(name: str) -> None:
    other, words = BAD[name]
    with pytest.raises(UnsupportedInput, match=words):
        BlockMask.full(100) & other  # type: ignore[operator]


def test_masks_of_other_heads_are_refused() -> None:
    two, three = (BlockMask.from_bool(torch.ones(1, heads, 5, 5) > 0) for heads in (2, 3))
    with pytest.raises(UnsupportedInput, match=r"of \| have heads 2 and 3; equal ones, or 1 on one side, are accepted"):
        two | three

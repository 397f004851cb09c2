"""Ways to make a mask: each keeps what its definition says, element by element, and calls each block what it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention import construct
from firstlight.kernels.block_attention.lists import lists_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import shape_of
from tests.kernels.block_attention.att_masks import (
    ALIGNMENTS,
    LENGTHS,
    Drawn,
    Sizes,
    by_elements,
    draw_elements,
    kinds_of,
    masks,
    no_numbers,
    nothing_is_read,
    sizes,
)

FEW = settings(max_examples=40, deadline=None)


def check(mask: BlockMask, expected: Tensor, at: Sizes) -> None:
    assert (mask.q_len, mask.k_len, mask.block) == at
    assert torch.equal(mask.to_bool(), expected)
    kinds = kinds_of(expected, at)
    assert torch.equal(mask.kinds, kinds)
    assert mask.blocks == int((kinds != 0).sum()) <= mask.most
    assert mask.elements == int(expected.sum())


@FEW
@given(sizes())
def test_full_keeps_every_pair(at: Sizes) -> None:
    mask = BlockMask.full(at.q_len, at.k_len, block=at.block)
    check(mask, by_elements(at, lambda q, k: True), at)
    assert mask.most == mask.blocks


@FEW
@given(sizes(), ALIGNMENTS)
def test_causal_keeps_keys_up_to_the_querys_place_in_both_alignments(at: Sizes, alignment: str) -> None:
    mask = BlockMask.causal(at.q_len, at.k_len, alignment=alignment, block=at.block)
    shift = {"upper_left": 0, "lower_right": at.k_len - at.q_len}[alignment]
    check(mask, by_elements(at, lambda q, k: k <= q + shift), at)
    assert mask.most == mask.blocks


@FEW
@given(sizes(), st.none() | st.integers(0, 210), st.none() | st.integers(0, 210), ALIGNMENTS)
def test_a_window_keeps_left_and_right_keys_around_the_querys_place(
    at: Sizes, left: int | None, right: int | None, alignment: str
) -> None:
    mask = BlockMask.window(at.q_len, at.k_len, left=left, right=right, alignment=alignment, block=at.block)
    shift = at.k_len - at.q_len if alignment == "lower_right" else 0

    def keeps(q: int, k: int) -> bool:
        return (left is None or k >= q + shift - left) and (right is None or k <= q + shift + right)

    check(mask, by_elements(at, keeps), at)
    assert mask.most == mask.blocks
    assert mask.bits is None or mask.bits.shape[0] <= 4


def test_lengths_too_large_for_32_bits_make_the_same_window(monkeypatch: pytest.MonkeyPatch) -> None:
    small = BlockMask.window(500, 300, left=70, right=130, alignment="lower_right", block=64)
    monkeypatch.setattr(construct, "SMALL", 0)
    assert BlockMask.window(500, 300, left=70, right=130, alignment="lower_right", block=64).equals(small)
    monkeypatch.undo()
    far = BlockMask.window(128, 1 << 31, left=0, alignment="lower_right")  # numbers that 32 bits do not hold
    assert far.most == int((far.kinds != 0).sum()) == 1


@pytest.mark.parametrize("alignment", ["upper_left", "lower_right"])
@pytest.mark.parametrize("limit", [2**63 - 1, 10**30])
def test_a_window_wider_than_any_number_of_the_device_has_no_limit(limit: int, alignment: str) -> None:
    made = BlockMask.window(300, 100, left=limit, right=limit, alignment=alignment)
    assert made.equals(BlockMask.full(300, 100))
    made = BlockMask.window(100, 300, left=limit, alignment=alignment)
    assert made.equals(BlockMask.causal(100, 300, alignment=alignment))


@FEW
@given(sizes(), st.integers(0, 210))
def test_a_sink_keeps_the_first_keys(at: Sizes, keys: int) -> None:
    mask = BlockMask.sink(at.q_len, at.k_len, keys=keys, block=at.block)
    check(mask, by_elements(at, lambda q, k: k < keys), at)
    assert mask.most == mask.blocks


@FEW
@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 5), st.integers(0, 6))
def test_strided_keeps_whole_blocks_at_a_distance(q_len: int, k_len: int, stride: int, phase: int) -> None:
    mask = BlockMask.strided(q_len, k_len, stride=stride, phase=phase, block=64)
    for row in range(mask.kinds.shape[2]):
        for column in range(mask.kinds.shape[3]):
            assert mask.kinds[0, 0, row, column] == (2 if (row - column - phase) % stride == 0 else 0)
    assert mask.most == mask.blocks


@FEW
@given(LENGTHS, LENGTHS, st.integers(0, 2**31), st.sampled_from((1, 2, 40)), st.sampled_from((0, 2)))
def test_documents_see_themselves_in_any_order(q_len: int, k_len: int, seed: int, most: int, batch: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids_q = torch.randint(-1, most, (batch, q_len) if batch else (q_len,), generator=generator, dtype=torch.int32)
    ids_k = torch.randint(-1, most, (k_len,), generator=generator, dtype=torch.int32).sort().values
    mask = BlockMask.document(ids_q, ids_k, block=64)
    expected = (ids_q.view(-1, q_len, 1) == ids_k.view(1, 1, k_len))[:, None]
    check(mask, expected, Sizes(q_len, k_len, 64))


def test_documents_in_order_need_bits_where_they_meet_alone() -> None:
    ids = torch.tensor([0] * 1024 + [1] * 1000 + [2] * 2072)
    mask = BlockMask.document(ids)
    assert mask.most == 8 * 8 + 8 * 8 + 17 * 17 - 1
    assert mask.bits is not None
    assert mask.bits.shape[0] == 47  # block 15 holds the end of one document and the start of another
    assert mask.blocks == mask.most


@FEW
@given(sizes(), st.integers(0, 2**31), st.sampled_from(("counted", "not")), st.integers(1, 2), st.integers(1, 2))
def test_booleans_come_back_as_they_went_in(at: Sizes, seed: int, count: str, batch: int, heads: int) -> None:
    elements = draw_elements(at, torch.Generator().manual_seed(seed), batch=batch, heads=heads)
    mask = BlockMask.from_bool(elements, block=at.block, count=count == "counted")
    check(mask, elements, at)
    assert mask.most == (mask.blocks if count == "counted" else mask.kinds.numel())


def test_booleans_may_be_views_and_may_have_two_dimensions() -> None:
    elements = torch.rand(130, 70) < 0.5
    mask = BlockMask.from_bool(elements.T, block=64)
    assert torch.equal(mask.to_bool()[0, 0], elements.T)
    spread = (torch.rand(1, 1, 1, 130) < 0.5).expand(2, 1, 70, 130)
    assert torch.equal(BlockMask.from_bool(spread, block=64).to_bool(), spread)


def test_a_mask_without_cut_blocks_has_no_bits() -> None:
    for mask in (
        BlockMask.from_bool(torch.ones(100, 70, dtype=torch.bool)),
        BlockMask.from_bool(torch.zeros(100, 70, dtype=torch.bool)),
        BlockMask.sink(100, keys=64, block=64),
        BlockMask.causal(1, 1),
        BlockMask.document(torch.zeros(300, dtype=torch.int64)),
        BlockMask.window(300, left=None, right=None),
    ):
        assert mask.which is None
        assert mask.bits is None


@FEW
@given(masks(Sizes(200, 150, 64)))
def test_every_way_calls_a_block_what_it_is(drawn: Drawn) -> None:
    check(drawn.mask, drawn.expected, Sizes(200, 150, 64))


@pytest.mark.parametrize("k", [0, 1, 3, 9])
def test_top_k_keeps_the_best_blocks_of_every_row(k: int) -> None:
    scores = torch.randn(2, 3, 4, 5)
    mask = BlockMask.top_k(scores, k, q_len=250, k_len=290, block=64)
    rank = (scores[..., None] < scores[..., None, :]).sum(-1)
    assert torch.equal(mask.kinds == 2, rank < k)
    assert mask.bits is None
    assert mask.most == mask.blocks == 2 * 3 * 4 * min(k, 5)


def test_top_k_never_chooses_nan_or_minus_infinity_and_takes_the_first_of_equal_ones() -> None:
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor([[nan, -inf, 1.0, inf], [nan, nan, -inf, -inf], [2.0, 2.0, 2.0, 2.0], [nan, 0.0, -1.0, 0.0]])
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        mask = BlockMask.top_k(scores.to(dtype)[None, None], 3, q_len=256, k_len=256, block=64)
        kept = mask.kinds[0, 0].bool().tolist()
        assert kept[0] == [False, False, True, True]
        assert kept[1] == [False] * 4
        assert kept[2] == [True, True, True, False]
        assert kept[3] == [False, True, True, True]


def test_top_k_takes_scores_that_want_gradients() -> None:
    scores = torch.randn(1, 1, 2, 2, requires_grad=True)
    assert not BlockMask.top_k(scores, 1, q_len=100, k_len=100, block=64).kinds.requires_grad


def test_masks_that_follow_from_numbers_or_scores_are_made_without_reading_back() -> None:
    for context in (nothing_is_read, no_numbers):
        with context():
            scores = torch.zeros(2, 2, 5, 4)
            for mask in (
                BlockMask.full(300, 200, block=64),
                BlockMask.causal(300, 200, block=64),
                BlockMask.window(300, 200, left=3, right=7, block=64),
                BlockMask.sink(300, 200, keys=70, block=64),
                BlockMask.strided(300, 200, stride=2, block=64),
                BlockMask.top_k(scores, 2, q_len=300, k_len=200, block=64),
                BlockMask.from_bool(torch.zeros(300, 200) > 0, block=64, count=False),
                BlockMask.from_bool(scores > 0, block_level=True, q_len=300, k_len=200, block=64, count=False),
            ):
                assert mask.kinds.shape[2:] == (5, 4)
                assert lists_of(mask).starts.shape == (mask.kinds.shape[:3].numel() + 1,)


def test_on_another_device_nothing_comes_from_the_host() -> None:
    # tensors of the host and of the meta device do not mix: a forgotten device= raises
    causal, window = (BlockMask.window(300, 200, left=left, right=3, block=64, device="meta") for left in (None, 70))
    sink = BlockMask.sink(300, 200, keys=5, block=64, device="meta")
    heads = BlockMask.top_k(torch.zeros(2, 3, 5, 4, device="meta"), 2, q_len=300, k_len=200, block=64)
    elements = BlockMask.from_bool(torch.zeros(300, 200, device="meta") > 0, block=64, count=False)
    made = (causal & (window | sink) & BlockMask.strided(300, 200, stride=2, block=64, device="meta")) | (
        heads & elements
    )
    parts = [made.kinds, made.which, made.bits, *lists_of(made), *turned_lists_of(made), made.to_bool()]
    parts += [made.canonical().kinds, made.to_flex().kv_indices, BlockMask.full(300, device="meta").kinds]
    assert {part.device.type for part in parts if part is not None} == {"meta"}


def test_counting_reads_back_so_the_test_above_can_fail() -> None:
    with no_numbers(), pytest.raises(DataDependentOutputException):
        BlockMask.from_bool(torch.zeros(300, 200) > 0, block=64)


def test_a_long_causal_mask_holds_no_elements() -> None:
    mask = BlockMask.causal(131072, block=128)
    assert mask.most == 1024 * 1025 // 2
    assert mask.bits is not None
    assert sum(part.nbytes for part in (mask.kinds, mask.bits)) < 1024 * 1024 + 4096


def test_masks_that_are_plain_say_so_until_they_are_changed() -> None:
    assert shape_of(BlockMask.full(64, 100)) == "full"
    assert shape_of(BlockMask.causal(64, 100)) == "upper_left"
    assert shape_of(BlockMask.window(64, 100, left=None, alignment="lower_right")) == "lower_right"
    assert shape_of(BlockMask.window(64, 100, left=None, right=None)) == "full"
    assert shape_of(BlockMask.window(64, 100, left=5)) == "listed"
    mask = BlockMask.causal(300)
    assert shape_of(mask.canonical()) == "upper_left"
    mask.kinds[0, 0, 1, 1] = 0
    assert shape_of(mask) == "listed"


def test_made_in_inference_mode_a_mask_serves_later_and_notices_changes() -> None:
    with torch.inference_mode():
        made = (
            BlockMask.causal(100, block=64),
            BlockMask.from_bool(torch.rand(100, 100) < 0.5, block=64),
            BlockMask.document(torch.arange(100) // 30, block=64),
            BlockMask.top_k(torch.randn(1, 1, 2, 2), 1, q_len=100, k_len=100, block=64),
            BlockMask.from_bool(torch.rand(2, 2) < 0.5, block_level=True, q_len=100, k_len=100, block=64),
            BlockMask.strided(100, stride=2, block=64) | BlockMask.sink(100, keys=3, block=64),
        )
    for mask in made:
        assert mask.counts_changes


BAD: dict[str, tuple[Callable[[], BlockMask], str]] = {
    "block": (lambda: BlockMask.full(100, block=32), "block is 32; 64 and 128 are accepted"),
    "block bool": (lambda: BlockMask.full(100, block=True), "block is True; 64 and 128 are accepted"),
    "block float": (lambda: BlockMask.full(100, block=128.0), "block is 128.0; 64 and"),  # type: ignore[arg-type]
    "q_len": (lambda: BlockMask.full(0), "q_len is 0; a whole number of 1 or more is accepted. Pass the number of q"),
    "k_len": (lambda: BlockMask.causal(5, -1), "k_len is -1; a whole number of 1 or more is accepted. Pass the number"),
    "float": (lambda: BlockMask.full(1.5), "q_len is 1.5; a whole number"),  # type: ignore[arg-type]
    "alignment": (lambda: BlockMask.causal(5, alignment="left"), "alignment is 'left'; 'upper_left' .*are accepted"),
    "left": (lambda: BlockMask.window(5, left=-1), "left is -1; a whole number of 0 or more is accepted. Pass one"),
    "right": (lambda: BlockMask.window(5, left=1, right=-2), "right is -2; a whole number of 0 or more is accepted"),
    "keys": (lambda: BlockMask.sink(5, keys=-1), "keys is -1; a whole number of 0 or more is accepted"),
    "stride": (lambda: BlockMask.strided(5, stride=0), "stride is 0; a whole number of 1 or more is accepted"),
    "phase": (lambda: BlockMask.strided(5, stride=2, phase=-1), "phase is -1; a whole number of 0 or more"),
    "dtype": (lambda: BlockMask.from_bool(torch.ones(5, 5)), "allowed is float32; accepted are bool. Convert it"),
    "allowed": (lambda: BlockMask.from_bool([[True]]), "allowed is a list; a tensor"),  # type: ignore[arg-type]
    "no scores": (lambda: BlockMask.top_k(None, 1, q_len=5, k_len=5), "scores is None"),  # type: ignore[arg-type]
    "id list": (lambda: BlockMask.document([0, 1]), "ids_q is a list; a tensor is"),  # type: ignore[arg-type]
    "dims": (
        lambda: BlockMask.from_bool(torch.ones(2, 5, 5) > 0),
        r"allowed has shape \[2, 5, 5\]; .* is accepted. With three dimensions say .*allowed\[None\] for batch",
    ),
    "lengths": (
        lambda: BlockMask.from_bool(torch.ones(5, 5) > 0, q_len=6),
        "q_len is 6 and allowed has 5; equal ones are accepted. Leave q_len out, or say block_level=True",
    ),
    "no lengths": (
        lambda: BlockMask.from_bool(torch.ones(5, 5) > 0, block_level=True, q_len=640),
        "k_len is None with block_level=True; a whole number is accepted.* Pass k_len",
    ),
    "blocks": (
        lambda: BlockMask.from_bool(torch.ones(5, 5) > 0, block_level=True, q_len=600, k_len=700),
        r"allowed has shape \[1, 1, 5, 5\]; \[batch or 1, heads or 1, 5, 6\] is accepted .*Pass allowed in that shape",
    ),
    "scores": (
        lambda: BlockMask.top_k(torch.ones(5, 5), 2, q_len=640, k_len=640),
        r"scores has shape \[5, 5\]; \[batch or 1, heads or 1, 5, 5\] is accepted",
    ),
    "whole scores": (
        lambda: BlockMask.top_k(torch.ones(1, 1, 5, 5).long(), 2, q_len=640, k_len=640),
        "scores is int64; accepted are float32, .* Convert it",
    ),
    "k": (lambda: BlockMask.top_k(torch.ones(1, 1, 1, 1), -1, q_len=1, k_len=1), "k is -1; a whole number of 0"),
    "ids": (lambda: BlockMask.document(torch.ones(5)), "ids_q is float32; accepted are int64, .* Convert it"),
    "ids dims": (
        lambda: BlockMask.document(torch.ones(5).long(), torch.ones(1, 1, 5).long()),
        r"ids_k has shape \[1, 1, 5\]; \[length\] or \[batch, length\] is accepted. Pass the id",
    ),
    "ids batch": (
        lambda: BlockMask.document(torch.ones(2, 5).long(), torch.ones(3, 5).long()),
        "ids_q has batch 2 and ids_k 3; equal ones, or 1 on one side, are accepted. Pass both for batch 3",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_what_is_accepted_and_what_to_do(name: str) -> None:
    make, words = BAD[name]
    with pytest.raises(UnsupportedInput, match=words):
        make()

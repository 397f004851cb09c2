"""Masks of sequences one behind the other, against each pair looked at by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask

CAUSAL: tuple[bool | str, ...] = (False, True, "upper_left", "lower_right")
LENGTHS = (0, 1, 5, 63, 64, 127, 128, 129, 200, 300)


def offsets_of(lengths: list[int]) -> list[int]:
    found = [0]
    for length in lengths:
        found.append(found[-1] + length)
    return found


def allowed(
    starts_q: list[int], starts_k: list[int], causal: bool | str, left: int | None,  # noqa: FBT001 as BlockMask.packed
    masks: list[BlockMask | None] | None = None,
) -> Tensor:  # fmt: skip
    """[heads, queries, keys] by the words alone."""
    heads = max((mask.kinds.shape[1] for mask in masks or () if mask is not None), default=1)
    made = torch.zeros(heads, starts_q[-1], starts_k[-1], dtype=torch.bool)
    for number in range(len(starts_q) - 1):
        (first_q, end_q), (first_k, end_k) = (each[number : number + 2] for each in (starts_q, starts_k))
        queries, keys = torch.arange(end_q - first_q)[:, None], torch.arange(end_k - first_k)
        if causal == "lower_right":
            queries = queries + len(keys) - len(queries)
        seen = torch.ones(end_q - first_q, end_k - first_k, dtype=torch.bool)
        if causal:
            seen &= keys <= queries
        if left is not None:
            seen &= keys >= queries - left
        mask = masks[number] if masks else None
        made[:, first_q:end_q, first_k:end_k] = seen if mask is None else mask.to_bool()[0]
    return made


@pytest.mark.parametrize("seed", range(30))
def test_a_query_sees_the_keys_of_its_sequence_that_are_asked_for(seed: int) -> None:
    draw = random.Random(seed)
    lengths = [draw.choice(LENGTHS) for _ in range(draw.randint(1, 6))] + [9]
    starts_q = offsets_of(lengths)
    starts_k = starts_q if draw.random() < 0.5 else offsets_of([draw.choice(LENGTHS) for _ in lengths[1:]] + [70])
    causal, left = draw.choice(CAUSAL), draw.choice([None, 0, 3, 130])
    block = draw.choice([64, 128])
    queries, keys = (torch.tensor(some, dtype=draw.choice([torch.int32, torch.int64])) for some in (starts_q, starts_k))
    other = None if starts_k is starts_q else keys
    mask = BlockMask.packed(queries, other, causal=causal, left=left, block=block)
    assert torch.equal(mask.to_bool()[0], allowed(starts_q, starts_k, causal, left))
    assert torch.equal(mask.kinds, mask.canonical().kinds)
    assert mask.blocks <= mask.most


def _mask(draw: random.Random, q_len: int, k_len: int, heads: int, block: int) -> BlockMask | None:
    if not q_len or not k_len or draw.random() < 0.2:
        return None
    chance = torch.rand(1, draw.choice([1, heads]), q_len, k_len)
    return draw.choice([
        BlockMask.from_bool(chance < draw.choice([0.02, 0.5, 0.98]), block=block),
        BlockMask.causal(q_len, k_len, block=block),
        BlockMask.strided(q_len, k_len, stride=2, block=block),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_each_sequence_may_have_a_mask_of_its_own(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    lengths = [draw.choice(LENGTHS) for _ in range(draw.randint(1, 4))] + [9]
    starts_q = offsets_of(lengths)
    starts_k = starts_q if draw.random() < 0.5 else offsets_of([draw.choice(LENGTHS) for _ in lengths[1:]] + [70])
    block, heads = draw.choice([64, 128]), draw.choice([1, 3])
    masks = [
        _mask(draw, end_q - first_q, end_k - first_k, heads, block)
        for first_q, end_q, first_k, end_k in zip(starts_q, starts_q[1:], starts_k, starts_k[1:], strict=False)
    ]
    made = BlockMask.packed(torch.tensor(starts_q), torch.tensor(starts_k), masks=masks, block=block)
    assert torch.equal(made.to_bool()[0], allowed(starts_q, starts_k, False, None, masks))  # noqa: FBT003
    assert torch.equal(made.kinds, made.canonical().kinds)


def test_sequences_with_queries_or_keys_alone_have_nothing_to_look_up() -> None:
    """No block of any of the masks is left: the first sequence has queries only, the second keys only."""
    made = BlockMask.packed(torch.tensor([0, 3, 3, 4]), torch.tensor([0, 0, 3, 3]), masks=[None, None, None])
    assert (made.blocks, made.elements) == (0, 0)
    crossed = BlockMask.packed(torch.tensor([0, 3, 3, 5]), torch.tensor([0, 0, 3, 4]), masks=[None] * 3)
    assert torch.equal(crossed.to_bool()[0], allowed([0, 3, 3, 5], [0, 0, 3, 4], False, None))  # noqa: FBT003


def test_a_mask_alone_is_itself() -> None:
    mask = BlockMask.window(300, left=9)
    assert BlockMask.packed(torch.tensor([0, 300]), masks=[mask]) is mask
    assert BlockMask.packed(torch.tensor([0, 300]), masks=[None]).derived["shape"] == "full"


def test_rows_of_blocks_are_computed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long batches have more blocks than numbers of them are held at once; what is made is the same."""
    offsets, own = torch.tensor([0, 130, 131, 700, 1000]), [BlockMask.causal(n) for n in (130, 1, 569, 300)]
    whole = BlockMask.packed(offsets, causal=True)
    monkeypatch.setattr("firstlight.kernels.block_attention.packed.AT_ONCE", 17)
    for made in (BlockMask.packed(offsets, causal=True), BlockMask.packed(offsets, masks=own)):
        assert torch.equal(made.kinds, whole.kinds)
        assert made.equals(whole)


def test_one_sequence_is_the_plain_shape_that_kernels_know() -> None:
    offsets = torch.tensor([0, 500])
    for causal, name in ((False, "full"), (True, "upper_left"), ("lower_right", "lower_right")):
        assert BlockMask.packed(offsets, causal=causal).derived["shape"] == name


def test_blocks_that_no_sequence_needs_are_not_kept() -> None:
    """64 sequences of 512 tokens, then of 500: what lies askew costs a block more in each row, no more."""
    straight = BlockMask.packed(torch.arange(0, 64 * 512 + 1, 512))
    assert (straight.blocks, straight.bits) == (64 * 4 * 4, None)
    askew = BlockMask.packed(torch.arange(0, 64 * 500 + 1, 500))
    assert askew.blocks <= askew.kinds.shape[2] * 8


def test_it_is_the_mask_of_documents_below_the_diagonal() -> None:
    offsets = torch.tensor([0, 130, 131, 700, 1000])
    ids = torch.searchsorted(offsets[1:].contiguous(), torch.arange(1000), right=True)
    assert BlockMask.packed(offsets, causal=True).equals(BlockMask.document(ids) & BlockMask.causal(1000))


@pytest.mark.parametrize(("given", "words"), [
    ({"offsets_q": [0, 300]}, "offsets_q is a list"),
    ({"offsets_q": torch.tensor([0.0, 3.0])}, "offsets_q is float32; accepted are int64, int32"),
    ({"offsets_q": torch.tensor([[0, 3]])}, r"offsets_q has shape \[1, 2\]"),
    ({"offsets_q": torch.tensor([3])}, r"offsets_q is \[3\]; numbers that begin with 0"),
    ({"offsets_q": torch.tensor([1, 3])}, r"offsets_q is \[1, 3\]; numbers that begin with 0"),
    ({"offsets_q": torch.tensor([0, 3, 2])}, "never fall"),
    ({"offsets_q": torch.tensor([0, 0])}, "end above 0"),
    ({"offsets_q": torch.tensor([0, 3]), "offsets_k": torch.tensor([0, 3, 4])}, "1 sequences and offsets_k 2"),
    ({"offsets_q": torch.tensor([0, 3]), "causal": "left"}, "causal is 'left'"),
    ({"offsets_q": torch.tensor([0, 3]), "left": -1}, "left is -1"),
    ({"offsets_q": torch.tensor([0, 3]), "block": 32}, "block is 32"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": []}, "masks is 0 of them for 1 sequences"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": 3}, "masks is a int"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": [3]}, "mask 0 is a int"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": [BlockMask.full(4)]}, "mask 0 is for 4 queries and 4 keys"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": [BlockMask.full(3, block=64)]}, "mask 0 has block 64"),
    ({"offsets_q": torch.tensor([0, 3]), "masks": [None], "causal": True}, "masks and causal= or left="),
])  # fmt: skip
def test_what_is_not_taken_is_said_with_what_is(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedInput, match=words):
        BlockMask.packed(**given)

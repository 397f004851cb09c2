"""Masks from and to FlexAttention: the same pairs are kept, through the real create_block_mask and flex_attention.

torch's create_block_mask writes out every pair, so lengths stay below 300.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.mask import BlockMask
from tests.kernels.block_attention.att_masks import Sizes, draw_elements, kinds_of

FEW = settings(max_examples=12, deadline=None)
LENGTHS = st.sampled_from((1, 64, 65, 128, 150, 200))
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

DOCUMENTS = torch.arange(200) // 70


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def window(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (q - k < 70)


def by_head(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k) % (h + 2) == b


def by_document(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return DOCUMENTS[q] == DOCUMENTS[k]


def flex_of(mask_mod: MaskMod, at: Sizes, batch: int = 1, heads: int = 1) -> FlexBlockMask:
    return create_block_mask(mask_mod, batch, heads, *at[:2], device="cpu", BLOCK_SIZE=at.block)


@FEW
@given(LENGTHS, LENGTHS, st.sampled_from((64, 128)), st.sampled_from((causal, window, by_head, by_document)))
def test_from_flex_keeps_what_the_mask_mod_keeps(q_len: int, k_len: int, block: int, mask_mod: MaskMod) -> None:
    at = Sizes(q_len, k_len, block)
    expected = create_mask(mask_mod, 2, 3, q_len, k_len, device="cpu")
    mask = BlockMask.from_flex(flex_of(mask_mod, at, 2, 3))
    assert torch.equal(mask.to_bool(), expected)
    assert torch.equal(mask.kinds, kinds_of(expected, at))
    assert mask.blocks <= mask.most


def test_a_mask_mod_is_not_asked_beyond_the_lengths() -> None:
    mask = BlockMask.from_flex(flex_of(by_document, Sizes(200, 200, 128)))  # it reads a tensor of 200
    assert mask.equals(BlockMask.document(DOCUMENTS, block=128))


def test_one_mask_whether_its_blocks_are_called_full_or_partial() -> None:
    flex = flex_of(causal, Sizes(200, 150, 64))
    assert flex.full_kv_num_blocks is not None
    listed = flex.to_dense()  # full and partial alike
    lists = listed.sum(3).int(), listed.argsort(dim=3, descending=True, stable=True).int()
    all_partial = FlexBlockMask.from_kv_blocks(*lists, BLOCK_SIZE=64, mask_mod=causal, seq_lengths=(200, 150))
    assert all_partial.full_kv_num_blocks is None
    apart, together = (BlockMask.from_flex(given) for given in (flex, all_partial))
    assert torch.equal(apart.kinds, together.kinds)
    assert apart.equals(together)
    assert apart.equals(BlockMask.causal(200, 150, block=64))


def test_full_blocks_are_taken_over_without_asking() -> None:
    def refuse(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        raise AssertionError("asked for a full block")

    flex = flex_of(causal, Sizes(128, 128, 64))
    assert flex.full_kv_num_blocks is not None
    flex.mask_mod = refuse
    flex.kv_num_blocks = torch.zeros_like(flex.kv_num_blocks)
    assert BlockMask.from_flex(flex).kinds.tolist() == [[[[0, 0], [2, 0]]]]


def test_block_lists_without_a_mask_mod_are_whole_blocks() -> None:
    counts, places = torch.tensor([[[1, 2]]], dtype=torch.int32), torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32)
    flex = FlexBlockMask.from_kv_blocks(counts, places, BLOCK_SIZE=128)
    assert BlockMask.from_flex(flex).kinds.tolist() == [[[[0, 2], [2, 2]]]]


@FEW
@given(LENGTHS, LENGTHS, st.sampled_from((64, 128)), st.integers(0, 2**31), st.sampled_from(((1, 1), (2, 3), (1, 2))))
def test_to_flex_and_back_is_the_same_mask(
    q_len: int, k_len: int, block: int, seed: int, shape: tuple[int, int]
) -> None:
    at = Sizes(q_len, k_len, block)
    elements = draw_elements(at, torch.Generator().manual_seed(seed), batch=shape[0], heads=shape[1])
    mask = BlockMask.from_bool(elements, block=block)
    flex = mask.to_flex()
    assert flex.shape == (*shape, q_len, k_len)
    assert torch.equal(create_mask(flex.mask_mod, *shape, q_len, k_len, device="cpu"), elements)
    assert BlockMask.from_flex(flex).equals(mask)
    like = flex_of(flex.mask_mod, at, *shape)  # flex's own view of the same mask
    assert torch.equal(flex.to_dense(), like.to_dense())
    assert flex.full_kv_num_blocks is not None
    assert like.full_kv_num_blocks is not None
    assert torch.equal(flex.full_kv_num_blocks, like.full_kv_num_blocks)


def test_whole_blocks_go_to_flex_and_back() -> None:
    for mask in (BlockMask.full(128, block=64), BlockMask.strided(200, 150, stride=2, block=64)):
        assert BlockMask.from_flex(mask.to_flex()).equals(mask)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_under_our_mask_sees_what_the_mask_keeps() -> None:
    # eager flex_attention asks the mask_mod for every pair; the compiled kernel needs a GPU
    mask = BlockMask.causal(150, 200, block=64) & (
        BlockMask.window(150, 200, left=20, block=64) | BlockMask.sink(150, 200, keys=4, block=64)
    )
    q, k, v = (torch.randn(2, 2, length, 16, dtype=torch.float64) for length in (150, 200, 200))
    out = flex_attention(q, k, v, block_mask=mask.to_flex())
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.to_bool())
    assert isinstance(out, Tensor)
    torch.testing.assert_close(out, expected)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "size": (
        lambda: flex_of(causal, Sizes(100, 100, 32)),
        r"BLOCK_SIZE \(32, 32\); \(128, 128\) and \(64, 64\) are acc",
    ),
    "sizes": (
        lambda: create_block_mask(causal, 1, 1, 200, 200, device="cpu", BLOCK_SIZE=(64, 128)),
        r"BLOCK_SIZE \(64, 128\); .* are accepted. Make it with create_block_mask\(..., BLOCK_SIZE=128\)",
    ),
    "tensor": (
        lambda: torch.ones(5, 5) > 0,
        "block_mask is a torch.Tensor; a torch.nn.attention.flex.* is accepted. Make",
    ),
    "ours": (lambda: BlockMask.full(100), "block_mask is a firstlight.*BlockMask; a torch.nn.attention.flex"),
}


@pytest.mark.parametrize("name", BAD)
def test_other_masks_are_refused_with_the_way_out(name: str) -> None:
    make, words = BAD[name]
    with pytest.raises(UnsupportedInput, match=words):
        BlockMask.from_flex(make())


def test_lists_that_do_not_fit_their_lengths_are_refused() -> None:
    flex = flex_of(causal, Sizes(200, 200, 64))
    flex.seq_lengths = (300, 200)
    with pytest.raises(
        UnsupportedInput, match=r"lists 4 blocks of queries .*\(300, 200\); 5 blocks of 64 are accepted"
    ):
        BlockMask.from_flex(flex)

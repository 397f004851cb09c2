"""The mask itself: what it is made of, what it says of itself, and how code finds it again by its tensors."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention import mask as mask_room
from firstlight.kernels.block_attention.bits import pack, unpack
from firstlight.kernels.block_attention.combine import both
from firstlight.kernels.block_attention.lists import lists_of
from firstlight.kernels.block_attention.mask import BlockMask, mask_of
from firstlight.kernels.block_attention.seen import shape_of


def parts_of(mask: BlockMask) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, int, int, int, int]:
    return mask.kinds, mask.which, mask.bits, mask.q_len, mask.k_len, mask.block, mask.most


@given(st.integers(0, 2**31), st.sampled_from((64, 128)), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_bits_come_back_as_they_were_packed(seed: int, block: int, rows: int) -> None:
    allowed = torch.rand(rows, block, block, generator=torch.Generator().manual_seed(seed)) < 0.5
    bits = pack(allowed)
    assert bits.dtype == torch.int32
    assert bits.shape == (rows, block, block // 32)
    assert torch.equal(unpack(bits), allowed)


def test_bit_j_of_word_w_of_line_r_is_key_32_w_plus_j_of_query_r() -> None:
    allowed = torch.zeros(64, 64, dtype=torch.bool)
    allowed[5, 32 + 31] = allowed[6, 3] = True
    bits = pack(allowed)
    assert bits[5].tolist() == [0, -(2**31)]
    assert bits[6].tolist() == [8, 0]
    assert int((bits != 0).sum()) == 2


def test_a_mask_is_rebuilt_from_its_parts() -> None:
    mask = BlockMask.causal(300, 200, block=64)
    again = BlockMask(mask.kinds, mask.which, mask.bits, q_len=300, k_len=200, block=64, most=mask.most)
    assert again.equals(mask)
    assert again.most == mask.most
    assert BlockMask(mask.kinds, mask.which, mask.bits, q_len=300, k_len=200, block=64).most == 20


def test_copies_and_pickles_keep_the_same_pairs_and_what_shape_they_are() -> None:
    mask = BlockMask.causal(300, block=64)
    assert lists_of(mask).columns.shape == (15,)
    for other in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask)), copy.copy(mask)):
        assert other is not mask
        assert other.equals(mask)
        assert other.most == mask.most
        assert shape_of(other) == "upper_left"
    full = pickle.loads(pickle.dumps(BlockMask.full(300)))
    assert full.bits is None
    assert shape_of(full) == "full"


def test_a_mask_says_what_it_is_without_looking() -> None:
    mask = BlockMask.causal(4096)
    words = "4096 queries x 4096 keys, for any batch and any head"
    assert repr(mask) == f"BlockMask({words}; at most 528 of 1024 blocks of 128 x 128 kept; device='cpu')"
    assert mask.density == 528 / 1024
    assert repr(mask) == f"BlockMask({words}; 528 of 1024 blocks of 128 x 128 kept; device='cpu')"
    heads = BlockMask.from_bool(torch.ones(2, 3, 100, 70, dtype=torch.bool))
    assert repr(heads).startswith("BlockMask(100 queries x 70 keys, for batch 2 and 3 heads; ")


def test_useful_flops_count_the_kept_pairs_of_every_head() -> None:
    assert BlockMask.full(4096).flops(96, 128, batch=16) == 4 * 128 * 4096**2 * 96 * 16
    assert BlockMask.causal(100).flops(1, 64) == 4 * 64 * 5050
    elements = torch.rand(2, 3, 100, 70) < 0.5
    mask = BlockMask.from_bool(elements, block=64)
    assert mask.flops(3, 16) == 4 * 16 * int(elements.sum())
    assert mask.elements == int(elements.sum())
    with pytest.raises(UnsupportedInput, match=r"heads is 4 and the mask is for heads 3; 3 is accepted. Pass heads=3"):
        mask.flops(4, 16)
    with pytest.raises(UnsupportedInput, match=r"batch is 1 and the mask is for batch 2; 2 is accepted. Pass batch=2"):
        mask.flops(3, 16, batch=1)


def test_counts_are_anew_after_a_change() -> None:
    mask = BlockMask.causal(128, block=64)
    assert (mask.blocks, mask.elements) == (3, 128 * 129 // 2)
    mask.kinds[0, 0, 1, 0] = 0
    assert (mask.blocks, mask.elements) == (2, 2 * (64 * 65 // 2))


def test_a_mask_moves_with_its_bits() -> None:
    mask = BlockMask.causal(300)
    assert mask.to("cpu") is mask
    there = mask.to("meta")
    assert there.device.type == "meta"
    assert there.bits is not None
    assert there.bits.device.type == "meta"
    assert there.most == mask.most
    assert shape_of(there) == "upper_left"


def test_code_that_has_the_tensors_alone_finds_the_mask_over_them() -> None:
    for mask in (BlockMask.causal(300), BlockMask.full(300)):
        assert mask_of(*parts_of(mask)) is mask
        assert mask_of(mask.kinds, mask.which, mask.bits, 299, 300, 128, mask.most) is not mask


def test_a_mask_found_by_its_tensors_after_a_change_knows_that_there_may_be_more_blocks() -> None:
    mask = BlockMask.causal(300)
    parts = parts_of(mask)
    mask.kinds.fill_(2)
    assert mask_of(*parts) is mask
    assert lists_of(mask_of(*parts)).starts.tolist() == [0, 3, 6, 9]


def test_without_a_living_mask_each_look_is_of_the_tensors_as_they_are() -> None:
    gc.collect()
    before = len(mask_room._LIVING)
    parts = parts_of(BlockMask.causal(300))
    gc.collect()
    assert lists_of(mask_of(*parts)).starts.tolist() == [0, 1, 3, 6]
    version = parts[0]._version
    written = parts[0].numpy()  # as compiled code writes, which no version counts
    written[:] = written[:, :, ::-1].copy()
    assert parts[0]._version == version
    assert lists_of(mask_of(*parts)).starts.tolist() == [0, 3, 5, 6]
    gc.collect()
    assert len(mask_room._LIVING) == before


def test_nothing_is_kept_of_a_mask_that_is_gone() -> None:
    gc.collect()
    before = len(mask_room._LIVING)
    mask = BlockMask.causal(300) & BlockMask.window(300, left=3)
    assert mask.blocks == 5
    assert lists_of(mask).starts.shape == (4,)
    del mask
    gc.collect()
    assert len(mask_room._LIVING) == before


def test_a_compiled_function_reads_a_mask_without_a_graph_break() -> None:
    mask = BlockMask.causal(300)

    def count(x: torch.Tensor) -> torch.Tensor:
        assert mask.bits is not None
        return x + mask.kinds.sum() + mask.bits[0, 0, 0] + mask.most + mask.q_len

    compiled = torch.compile(count, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.zeros(2)), count(torch.zeros(2)))


def test_a_mask_made_inside_of_a_compiled_function_is_whole_when_it_comes_out() -> None:
    def narrow(x: torch.Tensor) -> tuple[torch.Tensor, BlockMask]:
        mask = both(BlockMask.causal(300), BlockMask.window(300, left=5))
        return x + mask.kinds.sum(), mask

    compiled = torch.compile(narrow, fullgraph=True, backend="aot_eager")
    total, mask = compiled(torch.zeros(2))
    expected, same = narrow(torch.zeros(2))
    assert torch.equal(total, expected)
    assert mask.equals(same)
    assert lists_of(mask).starts.tolist() == lists_of(same).starts.tolist()


def test_a_compiled_function_combines_masks_with_signs_from_torch_2_9_on() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        mask = (BlockMask.causal(300) & BlockMask.window(300, left=5)) | BlockMask.sink(300, keys=20)
        return x + mask.kinds.sum()

    compiled = torch.compile(count, fullgraph=True, backend="aot_eager")
    if Version(torch.__version__) < Version("2.9"):
        with pytest.raises(torch._dynamo.exc.Unsupported, match="trace builtin operator `and_`"):
            compiled(torch.zeros(2))
    else:
        assert torch.equal(compiled(torch.zeros(2)), count(torch.zeros(2)))


@pytest.mark.parametrize("name", ["kinds", "which", "bits", "q_len", "k_len", "block"])
def test_parts_are_changed_in_place_and_not_set(name: str) -> None:
    mask = BlockMask.causal(300)
    with pytest.raises(AttributeError, match=f"{name} of a BlockMask cannot be set; change it in place, or make"):
        setattr(mask, name, getattr(mask, name))


KINDS = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
WHICH = KINDS.int()
BITS = torch.zeros(3, 64, 2, dtype=torch.int32)
BAD: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "kinds": (([[2]], None, None), "kinds is a list; a tensor is accepted. Make one with"),
    "which": ((KINDS, [[0]], BITS), "which is a list; a tensor is accepted. Make one with"),
    "kinds dtype": ((KINDS.int(), None, None), "kinds is int32; accepted are uint8. Convert it"),
    "kinds shape": (
        (KINDS[:, :, :1], None, None),
        r"kinds has shape \[1, 1, 1, 2\]; \[batch or 1, heads or 1, 2, 2\] is accepted for q_len 100, .*Pass kinds in",
    ),
    "no batch": ((KINDS[:0], None, None), r"kinds has shape \[0, 1, 2, 2\]; "),
    "kinds lie": (
        (KINDS.mT, None, None),
        r"kinds has strides \[4, 4, 1, 2\]; a contiguous .*Call kinds.contiguous\(\)",
    ),
    "no bits": ((KINDS, WHICH, None), "bits is None and the other is not; both or neither is accepted. Pass bits"),
    "no which": ((KINDS, None, BITS), "which is None and the other is not; both or neither is accepted. Pass which"),
    "which dtype": ((KINDS, WHICH.long(), BITS), "which is int64; accepted are int32. Convert it"),
    "which shape": ((KINDS, WHICH[0], BITS), r"which has shape \[1, 2, 2\]; \[1, 1, 2, 2\] is accepted. Pass which in"),
    "bits dtype": ((KINDS, WHICH, BITS.long()), "bits is int64; accepted are int32. Convert it"),
    "bits shape": ((KINDS, WHICH, BITS[:, :32]), r"bits has shape \[3, 32, 2\]; \[any, 64, 2\] is accepted. Pass bits"),
    "no rows": ((KINDS, WHICH, BITS[:0]), "bits has no rows; 1 or more are accepted. Pass which=None and bits=None"),
    "devices": ((KINDS, WHICH.to("meta"), BITS), "kinds is on cpu and which on meta; one device is accepted. Move one"),
}


@pytest.mark.parametrize("name", BAD)
def test_parts_that_do_not_fit_are_refused_with_what_is_accepted_and_what_to_do(name: str) -> None:
    parts, words = BAD[name]
    with pytest.raises(UnsupportedInput, match=words):
        BlockMask(*parts, q_len=100, k_len=128, block=64)


def test_more_blocks_than_a_list_can_number_are_refused() -> None:
    kinds = torch.empty(64, 64, 1024, 1024, dtype=torch.uint8, device="meta")
    with pytest.raises(UnsupportedInput, match=r"the mask has 4294967296 blocks; at most 2147483647 are accepted. Use"):
        BlockMask(kinds, q_len=131072, k_len=131072)

"""The dense backend: what torch is told by name, the mask as a tensor, and its own gradients."""

from __future__ import annotations

import pytest
import torch

from firstlight.kernels.block_attention import dense
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import FULL, LISTED, LOWER_RIGHT, UPPER_LEFT, Attended, seen_by, shape_of
from tests.kernels.block_attention.att_cases import alone, assert_attends, attended, both, diagonal, qkv, scattered


@pytest.mark.parametrize(
    ("mask", "causal", "shape"),
    [
        (None, "", FULL),
        (None, "upper_left", UPPER_LEFT),
        (None, "lower_right", LOWER_RIGHT),
        (BlockMask.full(70, 90), "", FULL),
        (BlockMask.full(70, 90), "lower_right", LOWER_RIGHT),
        (BlockMask.causal(70, 90), "", UPPER_LEFT),
        (BlockMask.causal(70, 90), "upper_left", UPPER_LEFT),
        (BlockMask.causal(70, 90), "lower_right", LISTED),
        (BlockMask.window(70, 90, left=None), "", UPPER_LEFT),
        (BlockMask.window(70, 90, left=5), "", LISTED),
        (BlockMask.causal(70, 90) & BlockMask.full(70, 90), "", LISTED),
    ],
)
def test_torch_is_told_by_name_what_it_knows(mask: BlockMask | None, causal: str, shape: str) -> None:
    q, k, _ = qkv(70, 90)
    seen = seen_by(q, k, mask, causal)
    assert seen.shape == shape
    assert (dense.bias_of(seen, torch.float32) is None) == (shape in (FULL, UPPER_LEFT))


def test_the_alignments_are_one_where_there_are_as_many_keys_as_queries() -> None:
    q, k, _ = qkv(70, 70)
    assert seen_by(q, k, None, "lower_right").shape == UPPER_LEFT
    assert shape_of(BlockMask.causal(70, alignment="lower_right")) == UPPER_LEFT
    q, k, _ = qkv(1, 70)
    assert seen_by(q, k, None, "lower_right").shape == FULL  # the query of a new token sees all of the cache


def test_a_mask_moved_to_another_device_keeps_its_name() -> None:
    assert shape_of(BlockMask.causal(70, 90).to("meta")) == UPPER_LEFT


def test_no_mask_is_made_for_a_shape_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> BlockMask:
        raise AssertionError("a mask was made")

    monkeypatch.setattr("firstlight.kernels.block_attention.seen._plain_mask", refuse)
    given = qkv(71, 93)
    for causal in (False, True):
        both(*given, causal=causal)
        alone(*given, causal=causal)


def test_the_mask_as_a_tensor_is_made_once_for_a_dtype() -> None:
    mask = BlockMask.window(70, 90, left=5, block=64)
    q, k, _ = qkv(70, 90)
    seen = seen_by(q, k, mask, "")
    first = dense.bias_of(seen, torch.float32)
    assert first is not None
    assert dense.bias_of(seen_by(q, k, mask, ""), torch.float32) is first
    other = dense.bias_of(seen, torch.float16)
    assert other is not None
    assert other.values.dtype == torch.float16
    mask.kinds.zero_()
    assert dense.bias_of(seen, torch.float32) is not first


def test_rows_of_that_tensor_lie_at_multiples_of_16_elements() -> None:
    bias = dense.bias_of(Attended(LISTED, 70, 90, torch.device("cpu"), BlockMask.window(70, 90, left=5)), torch.float16)
    assert bias is not None
    assert bias.values.shape == (1, 1, 70, 90)
    assert bias.values.stride()[2] == 96
    assert bias.empty is None


def test_queries_without_keys_are_known() -> None:
    bias = dense.bias_of(
        Attended(LISTED, 100, 50, torch.device("cpu"), BlockMask.window(100, 50, left=10, block=64)), torch.float32
    )
    assert bias is not None
    assert bias.empty is not None
    assert bias.empty[0, 0].tolist() == [False] * 60 + [True] * 40
    assert bool((bias.values[0, 0, 60:, 0] == 0).all())  # such a row is given a key, so that torch has something to do


def test_forward_overwrites_what_it_is_given() -> None:
    q, k, v = qkv(130, 140)
    mask = BlockMask.from_bool(scattered(2, 4, 3, 3), block_level=True, q_len=130, k_len=140, block=64)
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan)
    dense.forward(q, k, v, mask, scale=0.2, out=out, lse=lse)
    assert_attends((out, lse), attended(q, k, v, mask.to_bool(), 0.2))


@pytest.mark.parametrize("shape", [FULL, UPPER_LEFT, LISTED])
def test_the_log_of_the_sum_is_right_where_torch_gives_none(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "LSE_ELEMENTS", 2 * 4 * 140 * 33)  # 33 queries at a time
    q, k, _ = qkv(130, 140, dtype=torch.float64)
    mask = BlockMask.window(130, 140, left=20, block=64) if shape == LISTED else None
    seen = Attended(shape, 130, 140, q.device, mask)
    found = dense._lse(q, k, seen, 0.3)
    allowed = {
        FULL: torch.ones(130, 140, dtype=torch.bool),
        UPPER_LEFT: diagonal(130, 140, "upper_left"),
        LISTED: BlockMask.window(130, 140, left=20, block=64).to_bool(),
    }[shape]
    torch.testing.assert_close(found, attended(q, k, k, allowed, 0.3)[1])


def test_key_heads_are_repeated_in_order() -> None:
    q, k, v = qkv(20, 30, heads=(6, 2))
    found = both(q, k, v, backend="dense")[0]
    for head in range(6):
        wanted = torch.nn.functional.scaled_dot_product_attention(q[:, head], k[:, head // 3], v[:, head // 3])
        torch.testing.assert_close(found[:, head], wanted)

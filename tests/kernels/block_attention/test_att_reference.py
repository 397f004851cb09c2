"""The reference and the dense backend against attention written out in float64, on the cases kernels get wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.kernels.block_attention import reference
from firstlight.kernels.block_attention.mask import BlockMask
from tests.kernels.block_attention.att_cases import alone, assert_attends, attended, both, diagonal, qkv, scattered

BACKENDS = ["reference", "dense"]
LENGTHS = [(128, 128), (200, 200), (70, 200), (200, 70), (1, 130), (130, 1)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block", [64, 128])
def test_scattered_blocks_of_every_dtype(backend: str, dtype: torch.dtype, block: int) -> None:
    blocks = scattered(2, 4, -(-200 // block), -(-180 // block))
    mask = BlockMask.from_bool(blocks, block_level=True, q_len=200, k_len=180, block=block)
    seen = blocks.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :200, :180]
    given = qkv(200, 180, dtype=dtype)
    assert_attends(both(*given, mask, backend=backend), attended(*given, seen))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("alignment", ["upper_left", "lower_right"])
@pytest.mark.parametrize("told", ["by name", "by mask", "by both"])
def test_causal_of_both_alignments(backend: str, lengths: tuple[int, int], alignment: str, told: str) -> None:
    given = qkv(*lengths, dim=16)
    mask = None if told == "by name" else BlockMask.causal(*lengths, alignment=alignment, block=64)
    found = both(*given, mask, causal=False if told == "by mask" else alignment, backend=backend)
    assert_attends(found, attended(*given, diagonal(*lengths, alignment)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alignment", ["upper_left", "lower_right"])
def test_blocks_above_the_diagonal_are_cut_by_causal(backend: str, alignment: str) -> None:
    blocks = scattered(1, 4, 4, 4, share=0.7)
    blocks[:, :, 0, 3] = True  # nothing but a block far above the diagonal
    mask = BlockMask.from_bool(blocks, block_level=True, q_len=250, k_len=230, block=64)
    seen = blocks.repeat_interleave(64, 2).repeat_interleave(64, 3)[:, :, :250, :230]
    given = qkv(250, 230)
    found = both(*given, mask, causal=alignment, backend=backend)
    assert_attends(found, attended(*given, seen & diagonal(250, 230, alignment)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_masked_in_the_first_block_and_alive_in_another(backend: str) -> None:
    seen = torch.ones(1, 1, 128, 192, dtype=torch.bool)
    seen[..., :40, :64] = False  # the first block hides all its keys from these queries
    seen[..., 40:50, 64:] = False
    seen[..., 60:70, :] = False  # and these see none at all, in blocks that others see
    given = qkv(128, 192)
    found = both(*given, BlockMask.from_bool(seen, block=64), backend=backend)
    assert_attends(found, attended(*given, seen))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_logits_of_both_signs(backend: str, size: float) -> None:
    q, k, v = qkv(130, 140, dim=16, dtype=torch.float64)
    q = q / q.norm(dim=-1, keepdim=True)
    k = torch.where(torch.arange(140)[:, None] % 7 == 0, q.mean((0, 1, 2)), k) * size
    seen = diagonal(130, 140, "lower_right")
    found = both(q, k, v, BlockMask.causal(130, 140, alignment="lower_right", block=64), scale=1.0, backend=backend)
    assert_attends(found, attended(q, k, v, seen, 1.0), bound=1e-10)  # a logit of 1e4 has four digits less behind it


@pytest.mark.parametrize("backend", BACKENDS)
def test_identical_keys_share_alike_and_a_sink_alone_is_copied(backend: str) -> None:
    q, _, v = qkv(130, 130, heads=(2, 2))
    k = torch.ones_like(v)
    out, lse = both(q, k, v, backend=backend)
    torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse, q.sum(-1) / 32**0.5 + torch.tensor(130.0).log(), rtol=1e-5, atol=1e-5)
    out, _ = both(q, k, v, BlockMask.sink(130, keys=1, block=64), backend=backend)
    torch.testing.assert_close(out, v[:, :, :1].expand_as(out))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (3, 3)])
def test_each_query_head_of_a_group_has_its_own_mask(backend: str, heads: tuple[int, int]) -> None:
    blocks = scattered(1, heads[0], 3, 3, share=0.5)
    mask = BlockMask.from_bool(blocks, block_level=True, q_len=190, k_len=190, block=64)
    seen = blocks.repeat_interleave(64, 2).repeat_interleave(64, 3)[:, :, :190, :190]
    assert not torch.equal(seen[:, 0], seen[:, 1])
    given = qkv(190, 190, heads=heads)
    assert_attends(both(*given, mask, backend=backend), attended(*given, seen))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_for_each_batch_serves_all_heads(backend: str) -> None:
    ids = torch.tensor([[0] * 100 + [1] * 50, [0] * 20 + [1] * 130])
    given = qkv(150, 150)
    seen = (ids[:, :, None] == ids[:, None, :])[:, None]
    assert_attends(both(*given, BlockMask.document(ids, block=64), backend=backend), attended(*given, seen))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_of_nothing_gives_zeros_and_minus_infinity(backend: str) -> None:
    mask = BlockMask.from_bool(
        torch.zeros(1, 1, 3, 3, dtype=torch.bool), block_level=True, q_len=130, k_len=140, block=64
    )
    q, k, v = (one.requires_grad_() for one in qkv(130, 140))
    out, lse = both(q, k, v, mask, backend=backend)
    assert not out.any()
    assert bool((lse == -torch.inf).all())
    for grad in torch.autograd.grad(out.sum() + lse.clamp(min=-1.0).sum(), (q, k, v)):
        assert not grad.any()


def test_every_element_of_poisoned_outputs_is_written() -> None:
    q, k, v = qkv(130, 140)
    mask = BlockMask.from_bool(scattered(2, 4, 3, 3), block_level=True, q_len=130, k_len=140, block=64)
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan)
    reference.forward(q, k, v, mask, scale=0.1, out=out, lse=lse)
    assert not out.isnan().any()
    assert not lse.isnan().any()


def test_the_reference_does_not_read_keys_that_no_block_lists() -> None:
    q, k, v = qkv(130, 200)
    mask = BlockMask.sink(130, 200, keys=64, block=64)
    wanted = alone(q, k, v, mask, backend="reference")
    k[:, :, 64:], v[:, :, 64:] = torch.nan, torch.inf
    assert torch.equal(alone(q, k, v, mask, backend="reference"), wanted)


def test_the_same_mask_as_full_or_partial_blocks_gives_the_same_bits() -> None:
    given = qkv(128, 128)
    full = BlockMask.full(128, block=64)
    ones = torch.full((1, 64, 2), -1, dtype=torch.int32)
    partial = BlockMask(
        torch.ones_like(full.kinds),
        torch.zeros_like(full.kinds, dtype=torch.int32),
        ones,
        q_len=128,
        k_len=128,
        block=64,
    )
    for one, other in zip(
        both(*given, full, backend="reference"), both(*given, partial, backend="reference"), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_a_projection_are_taken_as_they_are(backend: str, recwarn: pytest.WarningsRecorder) -> None:
    q, k, v = torch.randn(3, 2, 150, 4, 32).transpose(2, 3).unbind(0)
    assert not q.is_contiguous()
    found = both(q, k, v, causal=True, backend=backend)
    assert not recwarn.list
    assert found[0].stride() == q.stride()
    assert_attends(found, attended(q, k, v, diagonal(150, 150, "upper_left")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_scale_is_what_was_asked_also_below_zero(backend: str) -> None:
    given = qkv(70, 70)
    mask = BlockMask.window(70, left=9, right=3, block=64)
    for scale in (0.0, 1.0, -0.5):
        for causal in (False, True):
            seen = mask.to_bool() & diagonal(70, 70, "upper_left") if causal else mask.to_bool()
            found = both(*given, mask, causal=causal, scale=scale, backend=backend)
            assert_attends(found, attended(*given, seen, scale), bound=1e-5)
        found = both(*given, causal=True, scale=scale, backend=backend)
        assert_attends(found, attended(*given, diagonal(70, 70, "upper_left"), scale), bound=1e-5)


def test_the_whole_form_agrees_with_the_blocks() -> None:
    q, k, v = qkv(130, 140, dtype=torch.float64)
    mask = BlockMask.from_bool(scattered(2, 4, 3, 3), block_level=True, q_len=130, k_len=140, block=64)
    assert_attends(reference.attended(q, k, v, mask.to_bool(), 0.2), attended(q, k, v, mask.to_bool(), 0.2))


def test_autocast_does_not_round_the_reference() -> None:
    q, k, v = qkv(70, 70)
    mask = BlockMask.full(70, block=64)
    out, plain = torch.empty_like(q), torch.empty_like(q)
    lse = torch.empty(q.shape[:3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reference.forward(q, k, v, mask, scale=1.0, out=out, lse=lse)
    reference.forward(q, k, v, mask, scale=1.0, out=plain, lse=lse)
    assert torch.equal(out, plain)


def whole(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_of_lower_precision_follow_float64(dtype: torch.dtype) -> None:
    mask = BlockMask.from_bool(scattered(2, 4, 3, 3), block_level=True, q_len=130, k_len=140, block=64)
    given = qkv(130, 140, dtype=dtype)
    low, high = whole(given), whole(tuple(one.double() for one in given))
    upstream = torch.randn(2, 4, 130, 32)
    out, _ = both(low[0], low[1], low[2], mask, backend="reference")
    torch.autograd.backward(out, upstream.to(dtype))
    true, _ = attended(high[0], high[1], high[2], mask.to_bool())
    torch.autograd.backward(torch.where(mask.to_bool().any(-1)[..., None], true, 0.0), upstream.to(dtype).double())
    for one, other in zip(low, high, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        error = (one.grad.double() - other.grad.nan_to_num()).norm() / other.grad.nan_to_num().norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-3)

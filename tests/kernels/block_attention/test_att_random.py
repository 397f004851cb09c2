"""Calls drawn at random, with their gradients, against attention written out in float64."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask
from tests.kernels.block_attention.att_cases import Causal, alone, assert_attends, attended, both, diagonal, qkv

LENGTHS = (1, 5, 64, 65, 128, 190)
BACKENDS = ("reference", "dense", "auto")
CAUSAL: tuple[Causal, ...] = (False, True, "lower_right")


def drawn_mask(draw: random.Random, lengths: tuple[int, int], lists: tuple[int, int]) -> BlockMask | None:
    """No mask, single elements, whole blocks or a window; one for all, or for each batch and head."""
    batch, heads = draw.choice([1, lists[0]]), draw.choice([1, lists[1]])
    block, kind = draw.choice([64, 128]), draw.choice(["none", "elements", "blocks", "window"])
    if kind == "elements":
        return BlockMask.from_bool(torch.rand(batch, heads, *lengths) < draw.choice([0.05, 0.5, 0.98]), block=block)
    if kind == "blocks":
        blocks = torch.rand(batch, heads, *(-(-length // block) for length in lengths)) < 0.5
        return BlockMask.from_bool(blocks, block_level=True, q_len=lengths[0], k_len=lengths[1], block=block)
    if kind == "window":
        left, right = draw.choice([None, 0, 30]), draw.choice([None, 0, 20])
        alignment = draw.choice(["upper_left", "lower_right"])
        return BlockMask.window(*lengths, left=left, right=right, alignment=alignment, block=block)
    return None


def gradients(
    out: Tensor, lse: Tensor, weights: tuple[Tensor, Tensor], given: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Of a weighted sum of out and of the sums of queries that see a key."""
    alive = torch.where(lse == -torch.inf, 0.0, lse)
    return torch.autograd.grad((out * weights[0]).sum() + (alive * weights[1]).sum(), given)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_call(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    lengths = draw.choice(LENGTHS), draw.choice(LENGTHS)
    key_heads, group, batch = draw.choice([1, 2]), draw.choice([1, 2, 3]), draw.choice([1, 2])
    heads = (key_heads * group, key_heads)
    sizes = qkv(*lengths, heads=heads, batch=batch, dim=draw.choice([1, 3, 8]), dtype=torch.float64)
    q, k, v = (one.requires_grad_() for one in sizes)
    mask, scale = drawn_mask(draw, lengths, (batch, heads[0])), draw.choice([None, 1.0, -0.7])
    causal: Causal = draw.choice(CAUSAL)
    seen = torch.ones(1, 1, *lengths, dtype=torch.bool) if mask is None else mask.to_bool()
    if causal:
        seen = seen & diagonal(*lengths, "upper_left" if causal is True else str(causal))
    alive = seen.any(-1)
    weights = torch.randn_like(q), torch.randn(q.shape[:3], dtype=torch.float64)
    out, lse = attended(q, k, v, seen | ~alive[..., None], scale)  # an empty row would have no derivative
    out, lse = torch.where(alive[..., None], out, 0.0), torch.where(alive, lse, -torch.inf)
    wanted = gradients(out, lse, weights, (q, k, v))
    for backend in BACKENDS:
        found = both(q, k, v, mask, causal=causal, scale=scale, backend=backend)
        assert_attends((found[0].detach(), found[1].detach()), (out.detach(), lse.detach()), bound=1e-10)
        for one, other in zip(gradients(*found, weights, (q, k, v)), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        if scale is None:
            torch.testing.assert_close(alone(q, k, v, mask, causal=causal, backend=backend), found[0])

"""Attention and its gradients in float64, formula by formula, with a bound for the error of every element."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.mask import FULL, NONE, PARTIAL, BlockMask

EPS32 = 2.0**-24


class Call(NamedTuple):
    """What a forward and a backward pass are given; seen: bool [B|1, H|1, Sq, Sk]."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    grad_lse: Tensor | None
    seen: Tensor
    scale: float


class Exact(NamedTuple):
    """The right numbers, and how far from them a kernel may be."""

    values: dict[str, Tensor]
    bounds: dict[str, Tensor]


def packed(seen: Tensor, block: int, *, nothing_full: bool = False) -> BlockMask:
    """The block mask of an element mask, put together bit by bit; every second row of bits belongs to nobody.

    nothing_full: blocks that are seen whole or not at all are written as partial ones, as nobody should.
    """
    batch, heads, q_len, k_len = seen.shape
    q_blocks, k_blocks = -(-q_len // block), -(-k_len // block)
    kinds = torch.zeros(batch, heads, q_blocks, k_blocks, dtype=torch.uint8)
    which = torch.zeros(kinds.shape, dtype=torch.int32)
    rows = [torch.randint(-(2**31), 2**31, (block, block // 32)).to(torch.int32)]
    powers = (1 << torch.arange(32)).to(torch.int64)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in kinds.shape)).tolist():
        part = seen[b, h, i * block : (i + 1) * block, j * block : (j + 1) * block]
        if not nothing_full and (part.all() or not part.any()):
            kinds[b, h, i, j] = FULL if part.all() else NONE
            continue
        whole = torch.rand(block, block) < 0.5  # past the lengths anything may stand
        whole[: part.shape[0], : part.shape[1]] = part
        kinds[b, h, i, j], which[b, h, i, j] = PARTIAL, len(rows)
        words = (whole.view(block, block // 32, 32) * powers).sum(-1)
        rows.append(torch.where(words >= 2**31, words - 2**32, words).to(torch.int32))
        rows.append(torch.zeros(block, block // 32, dtype=torch.int32))
    bits = torch.stack(rows) if len(rows) > 1 else None
    return BlockMask(kinds, None if bits is None else which, bits, q_len=q_len, k_len=k_len, block=block)


def exact(call: Call, rounding: float) -> Exact:
    """out, lse, dq, dk and dv; rounding: of the type that p and ds are multiplied in, e.g. 2 ** -11."""
    q, k, v, grad = (tensor.double() for tensor in (call.q, call.k, call.v, call.grad))
    group = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    seen = call.seen.expand(q.shape[0], q.shape[1], -1, -1)
    logits = (q @ keys.mT * call.scale).masked_fill(~seen, -torch.inf)
    lse = torch.logsumexp(logits, -1)
    p = torch.where(seen, torch.exp(logits - lse.masked_fill(lse == -torch.inf, 0.0)[..., None]), 0.0)
    out = p @ values
    dp = grad @ values.mT
    delta = (grad * out).sum(-1) - (0.0 if call.grad_lse is None else call.grad_lse.double())
    ds = p * (dp - delta[..., None])
    largest = float(logits[seen].abs().max()) if bool(seen.any()) else 0.0
    near = 4 * rounding + 16 * EPS32 * largest  # of p: a logit of 1e4 has 1e-3 between it and the next float32
    # p and ds are rounded to float16 for the second product: below 6e-5 to a multiple of its smallest number, 2 ** -24
    grain = torch.where(p > 0.0, 2.0**-25 if call.q.dtype is torch.float16 else 0.0, 0.0)
    sizes = grad.abs() @ values.abs().mT + (grad * out).abs().sum(-1)[..., None] + delta.abs()[..., None]
    of_p, of_ds = p * near + grain, p * near * sizes + grain

    def by_key_head(x: Tensor) -> Tensor:
        return x.view(x.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    scale = abs(call.scale)
    found = {
        "out": (out, of_p @ values.abs()),
        "lse": (lse, torch.full_like(lse, 8 * EPS32 * (largest + 16))),
        "dq": (ds @ keys * call.scale, scale * (of_ds @ keys.abs())),
        "dk": (by_key_head(ds.mT @ q) * call.scale, scale * by_key_head(of_ds.mT @ q.abs())),
        "dv": (by_key_head(p.mT @ grad), by_key_head(of_p.mT @ grad.abs())),
    }
    return Exact({name: pair[0] for name, pair in found.items()}, {name: pair[1] for name, pair in found.items()})


def compared(name: str, found: Tensor, right: Exact) -> str:
    """What is wrong with one result; a bound of 0 means: this very number."""
    wanted, bound = right.values[name], right.bounds[name]
    if found.isnan().any():
        return f"{name}: {int(found.isnan().sum())} elements are NaN or were not written"
    infinite = wanted.isinf()
    if not torch.equal(found.double()[infinite], wanted[infinite]):
        return f"{name}: {int(infinite.sum())} elements should be -inf"
    error = (found.double() - wanted)[~infinite].abs()
    bound = bound[~infinite]
    tiny = 2.0**-24 if found.dtype is torch.float16 else 1e-30  # the smallest float16
    too_far = error > torch.where(bound == 0.0, 0.0, bound + tiny)
    return f"{name}: {int(too_far.sum())} elements, error up to {float(error.max()):.2e}" if too_far.any() else ""

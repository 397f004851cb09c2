"""What attention means, written out in float64 over every pair of query and key, and inputs to try it on."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask

Causal = bool | str


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float | None = None) -> tuple[Tensor, Tensor]:
    """(out, lse) in float64, query head by query head, for seen [B|1, H|1, Sq, Sk]."""
    q, k, v = q.double(), k.double(), v.double()
    factor = q.shape[3] ** -0.5 if scale is None else scale
    seen = seen.expand(q.shape[0], q.shape[1], -1, -1)
    outs, logs = [], []
    for head in range(q.shape[1]):
        shared = head * k.shape[1] // q.shape[1]
        scores = torch.einsum("bqd,bkd->bqk", q[:, head], k[:, shared]) * factor
        scores = torch.where(seen[:, head], scores, -torch.inf)
        logs.append(torch.logsumexp(scores, -1))
        weights = torch.where(seen[:, head], torch.exp(scores - logs[-1][..., None]), 0.0)
        outs.append(torch.einsum("bqk,bkd->bqd", weights, v[:, shared]))
    return torch.stack(outs, 1), torch.stack(logs, 1)


def diagonal(q_len: int, k_len: int, alignment: str) -> Tensor:
    """bool [q_len, k_len]: key at or before the query."""
    shift = k_len - q_len if alignment == "lower_right" else 0
    return torch.arange(k_len) <= torch.arange(q_len)[:, None] + shift


def qkv(
    *sizes: int, heads: tuple[int, int] = (4, 2), batch: int = 2, dim: int = 32, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v for (queries, keys) of random numbers."""
    q_len, k_len = sizes
    q = torch.randn(batch, heads[0], q_len, dim, dtype=dtype)
    k, v = (torch.randn(batch, heads[1], k_len, dim, dtype=dtype) for _ in range(2))
    return q, k, v


def scattered(*shape: int, share: float = 0.4, seed: int = 3) -> Tensor:
    """Random booleans; the first query block of the first list is empty."""
    made = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
    made[0, 0, 0] = False
    return made


def both(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = None, *, causal: Causal = False,
    scale: float | None = None, backend: str = "auto",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, lse) of attention."""
    return attention(q, k, v, mask, causal=causal, scale=scale, backend=backend, return_lse=True)


def alone(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = None, *, causal: Causal = False, backend: str = "auto"
) -> Tensor:
    """The output of attention alone."""
    return attention(q, k, v, mask, causal=causal, backend=backend)


TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def assert_attends(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], *, bound: float | None = None) -> None:
    """Out and lse are what they should be, 0 and -inf where no key is seen."""
    (out, lse), (true_out, true_lse) = found, wanted
    bound = TOLERANCE[out.dtype] if bound is None else bound
    torch.testing.assert_close(out.double(), true_out, rtol=bound, atol=bound)
    empty = true_lse == -torch.inf
    assert bool((lse[empty] == -torch.inf).all())
    assert not bool(out[empty].any())
    torch.testing.assert_close(lse[~empty].double(), true_lse[~empty], rtol=bound, atol=bound)

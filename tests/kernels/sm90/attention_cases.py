"""One call of attention.cu in the emulator, and what it should have given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.sm90 import attention
from tests.kernels.sm90.emulator.machine import emulated_gpu

TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3}


class Sizes(NamedTuple):
    """E.g. two heads that share one of keys and values."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 128


class Run(NamedTuple):
    """How it runs: multiprocessors, seed of the emulator, other texts of the sources, scale of the queries, calls."""

    folder: Path
    multiprocessors: int = 2
    seed: int = 0
    replaced: Mapping[str, str] | None = None
    louder: float = 1.0
    times: int = 1


class Tensors(NamedTuple):
    """The inputs of a call and its outputs, NaN at first; q and out lie as [batch, row, head, column]."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor


def tensors(mask: BlockMask, sizes: Sizes, dtype: torch.dtype, run: Run) -> Tensors:
    """Random numbers."""
    source = torch.Generator().manual_seed(run.seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source).to(dtype)

    batch, heads, kv_heads, head_dim = sizes
    q = normal(batch, mask.q_len, heads, head_dim) * run.louder
    k, v = normal(batch, kv_heads, mask.k_len, head_dim), normal(batch, kv_heads, mask.k_len, head_dim)
    return Tensors(
        q.transpose(1, 2), k, v, torch.full_like(q, math.nan).transpose(1, 2),
        torch.full((batch, heads, mask.q_len), math.nan),
    )  # fmt: skip


def computed(given: Tensors, mask: BlockMask, run: Run) -> None:
    """Fills out and lse by the kernel."""
    with emulated_gpu(run.folder, multiprocessors=run.multiprocessors) as gpu:
        gpu.seed, gpu.replaced = run.seed, run.replaced or {}
        scale = given.q.shape[-1] ** -0.5
        for _ in range(run.times):
            given.out.fill_(math.nan)
            given.lse.fill_(math.nan)
            attention.forward(given.q, given.k, given.v, mask, scale=scale, out=given.out, lse=given.lse)


def expected(given: Tensors, mask: BlockMask) -> tuple[Tensor, Tensor]:
    """Output and logarithms in double precision, by the definition."""
    group = given.q.shape[1] // given.k.shape[1]
    q, k, v = given.q.double(), *(each.double().repeat_interleave(group, 1) for each in (given.k, given.v))
    scores = (q @ k.mT * given.q.shape[-1] ** -0.5).masked_fill(~mask.to_bool(), -math.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v, scores.logsumexp(-1)


def faults(given: Tensors, mask: BlockMask) -> list[str]:
    """What is wrong with out and lse, in words; nothing is left unwritten, rows that see nothing are 0 and -inf."""
    out, lse = expected(given, mask)
    live = torch.isfinite(lse)
    found = []
    if given.out.isnan().any() or given.lse.isnan().any():
        found.append("NaN is left")
    error = float((given.out.double() - out).norm() / out.norm().clamp_min(1e-30))
    if not error <= TOLERANCE[given.q.dtype]:
        found.append(f"relative error {error:.2g}")
    if not bool(((given.lse.double() - lse)[live].abs() <= 1e-3).all()):
        found.append("lse is off")
    if not bool((given.lse[~live] == -math.inf).all() and (given.out[~live] == 0).all()):
        found.append("a row that sees nothing is not 0 and -inf")
    return found

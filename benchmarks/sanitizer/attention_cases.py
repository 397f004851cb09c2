"""Small attentions and their gradients for compute-sanitizer, each held against float64; see cases.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from benchmarks.sanitizer.where import Where, normal
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels.block_attention import reference
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.sm90.attention_variants import GRADIENT_BLOCK, AttentionBuild, GradientBuild
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.gradient import why_not

NORM = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of an output or a gradient: error over its norm
HEADS = 4  # of queries


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """An attention, e.g. blocks of 64, head dimension 128, 300 queries and keys, causal, 4 heads on 2 of keys."""

    block: int
    head_dim: int
    mask: str  # causal, full, window, lists, empty rows, empty columns, cross
    q_len: int
    k_len: int
    bf16: bool = False
    what: str = "attention"

    @property
    def id(self) -> str:
        mask = self.mask.replace(" ", "-")
        words = f"attention/{self.block}/d{self.head_dim}/{mask}/{self.q_len}x{self.k_len}"
        return words + ("/bf16" if self.bf16 else "")

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (AttentionBuild(self.block, self.head_dim, self.bf16).variant,)


@dataclass(frozen=True, slots=True)
class GradientCase:
    """Both passes of gradients, e.g. head dimension 128, 300 queries and keys, causal, 4 heads on 2 of keys."""

    head_dim: int
    mask: str  # as an attention's
    q_len: int
    k_len: int
    bf16: bool = False
    key_heads: int = 2
    with_lse: bool = False  # gradients of the logarithms of the sums come in too
    what: str = "gradient"

    @property
    def block(self) -> int:
        return GRADIENT_BLOCK

    @property
    def id(self) -> str:
        words = [f"gradient/d{self.head_dim}", self.mask.replace(" ", "-"), f"{self.q_len}x{self.k_len}"]
        words += [word for word, there in (("bf16", self.bf16), ("lse", self.with_lse)) if there]
        return "/".join([*words, f"keys{self.key_heads}"])

    @property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(GradientBuild(by_key, self.head_dim, self.bf16).variant for by_key in (True, False))


def attentions() -> Iterator[AttentionCase]:
    """Every build with every kind of list."""
    builds = ((128, 128), (64, 128), (64, 64), (128, 64))
    yield from (AttentionCase(block, head, "causal", 300, 300) for block, head in builds)
    yield from (AttentionCase(block, head, "empty rows", 520, 520) for block, head in builds)
    yield from (AttentionCase(block, head, "cross", 130, 600) for block, head in builds)
    yield from (AttentionCase(block, head, "window", 400, 400, bf16=True) for block, head in builds)
    yield from (AttentionCase(block, head, "full", 64, 77) for block, head in builds)


def gradients() -> Iterator[GradientCase]:
    """Every build; rings of 3 and 6 stages go round, rows and columns without blocks, heads that share keys."""
    yield GradientCase(128, "causal", 300, 300)
    yield GradientCase(64, "causal", 300, 300, bf16=True)
    yield GradientCase(128, "empty columns", 400, 520, bf16=True, with_lse=True)
    yield GradientCase(64, "empty rows", 520, 520)
    yield GradientCase(128, "cross", 130, 600, key_heads=1)
    yield GradientCase(64, "window", 600, 130, with_lse=True)  # most queries see nothing
    yield GradientCase(128, "empty rows", 520, 400, key_heads=4)
    yield GradientCase(64, "lists", 384, 640, bf16=True, key_heads=4)
    yield GradientCase(128, "window", 400, 400, bf16=True)
    yield GradientCase(64, "full", 64, 77)


def mask_of(case: AttentionCase | GradientCase) -> BlockMask:
    """The mask of a case, on the processor."""
    lengths, block = (case.q_len, case.k_len), case.block
    if case.mask == "causal":
        return BlockMask.causal(*lengths, block=block)
    if case.mask == "full":
        return BlockMask.full(*lengths, block=block)
    if case.mask == "window":
        return BlockMask.window(*lengths, left=150, right=20, block=block)
    heads = 1 if case.mask == "cross" else HEADS
    rows, columns = (-(-length // block) for length in lengths)
    kept = torch.rand(1, heads, rows, columns, generator=torch.Generator().manual_seed(rows)) < 0.5
    kept[..., 0, :] = True
    if case.mask == "empty rows":
        kept[:, 1, 0], kept[:, :, rows // 2], kept[:, 3] = False, False, False
    elif case.mask == "empty columns":
        kept[..., columns // 2], kept[:, 2:, :, 0] = False, False  # the last two heads share keys
    return BlockMask.from_bool(kept, block_level=True, q_len=case.q_len, k_len=case.k_len, block=block)


def run_attention(case: AttentionCase, where: Where) -> str:
    """What is wrong with output and logarithms, in words; empty: nothing."""
    dtype = torch.bfloat16 if case.bf16 else torch.float16
    mask = mask_of(case)
    q = normal(1, case.q_len, 4, case.head_dim, dtype=dtype, seed=1)
    k, v = (normal(1, 2, case.k_len, case.head_dim, dtype=dtype, seed=seed) for seed in (2, 3))
    given = [each.to(where.device) for each in (q, k, v)]
    out = torch.full_like(given[0], math.nan).transpose(1, 2)
    lse = torch.full((1, 4, case.q_len), math.nan, device=where.device)
    scale = case.head_dim**-0.5
    there = mask.to(where.device)
    where.attention.forward(given[0].transpose(1, 2), given[1], given[2], there, scale=scale, out=out, lse=lse)
    return _attention_fault(out.cpu(), lse.cpu(), (q.transpose(1, 2), k, v), mask)


def _attention_fault(out: Tensor, lse: Tensor, given: tuple[Tensor, Tensor, Tensor], mask: BlockMask) -> str:
    q, k, v = (given[0].double(), *(each.double().repeat_interleave(2, 1) for each in given[1:]))
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask.to_bool(), -math.inf)
    exact, total = torch.nan_to_num(scores.softmax(-1)) @ v, scores.logsumexp(-1)
    live = torch.isfinite(total)
    if out.isnan().any() or lse.isnan().any():
        return "NaN is left"
    error = float((out.double() - exact).norm() / exact.norm().clamp_min(1e-30))
    if not error <= NORM[out.dtype]:
        return f"the output's error is {error:.2g} of its norm"
    if not bool(((lse.double() - total)[live].abs() <= 2e-3).all()):
        return "the logarithms of the sums are off"
    if not bool((lse[~live] == -math.inf).all() and (out[~live] == 0).all()):
        return "a row that sees no key is not 0 with -inf"
    return ""


def run_gradient(case: GradientCase, where: Where) -> str:
    """What is wrong with dq, dk and dv, in words; empty: nothing."""
    dtype, mask, scale = torch.bfloat16 if case.bf16 else torch.float16, mask_of(case), case.head_dim**-0.5
    q = normal(1, case.q_len, HEADS, case.head_dim, dtype=dtype, seed=1).transpose(1, 2)
    k, v = (normal(1, case.key_heads, case.k_len, case.head_dim, dtype=dtype, seed=seed) for seed in (2, 3))
    grad = normal(*q.shape, dtype=dtype, seed=4)
    grad_lse = normal(*q.shape[:3], dtype=torch.float32, seed=5) if case.with_lse else None
    seen = mask.to_bool()
    q64, k64, v64 = (each.double().requires_grad_() for each in (q, k, v))
    out, lse = (each.detach() for each in reference.attended(q64, k64, v64, seen, scale))
    for_lse = None if grad_lse is None else grad_lse.double()
    wanted = reference.gradients(grad.double(), q64, k64, v64, for_lse, seen, scale)
    there = [each.to(where.device) for each in (q, k, v, out.to(dtype), lse.float())]
    upstream = Upstream(grad.to(where.device), None if grad_lse is None else grad_lse.to(where.device))
    if hurdle := why_not(Forward(*there), mask, scale):
        return f"this is not the Hopper kernel's: {hurdle}"
    with nan_in_new_memory():
        found = where.attention.backward(upstream, Forward(*there), mask.to(where.device), scale=scale)
    return _gradient_fault([each.cpu() for each in found], [each.detach() for each in wanted], seen)


@contextmanager
def nan_in_new_memory() -> Iterator[None]:
    """torch.empty gives NaN meanwhile, so that what a kernel leaves out is seen."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        assert torch.empty(1).isnan().all(), "torch.utils.deterministic.fill_uninitialized_memory is off"
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before, warn_only=warned)


def _gradient_fault(found: list[Tensor], wanted: list[Tensor], seen: Tensor) -> str:
    group = HEADS // found[1].shape[1]
    rows = seen.any(-1).expand(1, HEADS, -1)
    keys = seen.any(-2).expand(1, HEADS, -1).reshape(1, HEADS // group, group, -1).any(2)
    for name, got, want, alive in zip("qkv", found, wanted, (rows, keys, keys), strict=True):
        if got.isnan().any():
            return f"NaN is left in d{name}"
        error = float((got.double() - want).norm() / want.norm().clamp_min(1e-30))
        if not error <= NORM[got.dtype]:
            return f"the error of d{name} is {error:.2g} of its norm"
        if bool((got[~alive] != 0).any()):
            return f"d{name} is not 0 where nothing is seen"
    return ""

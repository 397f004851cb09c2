"""From FlexAttention to firstlight: the same mask, the same result.

    python examples/flex_to_blocks.py                 on the processor: seconds
    python examples/flex_to_blocks.py --device cuda   larger, and both are timed

A mask_mod (documents in a row, a causal window, a sink of a few keys) becomes a FlexAttention BlockMask, and that one a
firstlight BlockMask: full blocks are taken over, the elements of partial ones asked of the mask_mod once.
"""

# ruff: noqa: T201 an example prints
from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from firstlight.kernels import BlockMask, attention, explain_attention


@dataclass(frozen=True)
class Settings:
    """How large the example is."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    window: int
    dtype: torch.dtype


PROCESSOR = Settings(1, 4, 2, 1000, 32, 200, torch.float32)
GPU = Settings(4, 32, 8, 8192, 128, 1024, torch.float16)
SINK = 16


def mask_mod_of(settings: Settings, device: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The mask as a FlexAttention user writes it: one query, one key, yes or no."""
    ends = torch.rand(settings.length, generator=torch.Generator().manual_seed(0)) < 4 / settings.length
    document = ends.cumsum(0).to(device)

    def sees(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        near = (q_idx - kv_idx < settings.window) | (kv_idx < SINK)
        return (kv_idx <= q_idx) & near & (document[q_idx] == document[kv_idx])

    return sees


def inputs(settings: Settings, device: str) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator(device=device).manual_seed(1)
    q, k, v = (
        torch.randn(
            settings.batch, heads, settings.length, settings.head_dim, dtype=settings.dtype, device=device,
            generator=random,
        )
        for heads in (settings.heads, settings.kv_heads, settings.kv_heads)
    )  # fmt: skip
    return q, k, v


def milliseconds(call: Callable[[], object]) -> float:
    """Median of ten calls on the GPU, by events."""
    for _ in range(3):
        call()
    times = []
    for _ in range(10):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)))
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    settings = GPU if device == "cuda" else PROCESSOR
    q, k, v = inputs(settings, device)
    grouped = settings.heads != settings.kv_heads

    # what a FlexAttention user has
    flex_mask = create_block_mask(
        mask_mod_of(settings, device), None, None, settings.length, settings.length, device=device
    )
    flex: Any = torch.compile(flex_attention) if device == "cuda" else flex_attention
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    theirs = flex(q, k, v, block_mask=flex_mask, enable_gqa=grouped)

    # what changes
    mask = BlockMask.from_flex(flex_mask)
    ours = attention(q, k, v, mask)

    assert isinstance(ours, Tensor)
    error = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
    print(f"mask         {mask}")
    print(f"density      {mask.density:.3f} of the blocks, {mask.elements / settings.length**2:.3f} of the elements")
    print(f"same result  relative difference {error:.1e}, largest {float((ours - theirs).abs().max()):.1e}")
    print(f"and back     to_flex() gives the same mask: {BlockMask.from_flex(mask.to_flex()).equals(mask)}")
    choice = explain_attention(q, k, mask)
    print(f"backend      {choice.backend}: {choice.why}")
    if device == "cuda":
        flex_ms = milliseconds(lambda: flex(q, k, v, block_mask=flex_mask, enable_gqa=grouped))
        ours_ms = milliseconds(lambda: attention(q, k, v, mask))
        print(f"time         FlexAttention {flex_ms:.3f} ms, ours {ours_ms:.3f} ms")
    else:
        print("time         not taken on the processor: neither is made for it")
    if error > 5e-3:
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()

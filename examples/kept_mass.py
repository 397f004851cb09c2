"""How much of the attention a block mask keeps, on data with a planted structure.

    python examples/kept_mass.py                    seconds on the processor
    python examples/kept_mass.py --heavy 6 --top 8  more planted blocks, more of them kept

Each query is made to look at three things: the first keys (a sink), the keys just before it, and a few far blocks of
its own. The masks keep the sink and a window, the blocks with the best score of averaged queries and keys, or both; and
once more the window alone, as wide as both together. Mass is the share of the softmax that falls on kept keys, exp(lse
under the mask - lse of all); error that of the output, relative.

The structure is planted, and the masks are the ones that suit it. This says how to measure a mask, and nothing about
the quality of any model: put your own q, k and v in the place of `planted`.
"""

# ruff: noqa: T201 an example prints
from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels import BlockMask, attention

BLOCK = 64
SINK_KEYS = 16


@dataclass(frozen=True)
class Structure:
    """What is planted and how strongly, in logits above the noise."""

    heads: int = 2
    length: int = 2048
    head_dim: int = 64
    heavy: int = 3  # far blocks of each block of queries
    sink: float = 5.0
    near: float = 7.0
    far: float = 6.0


def planted(structure: Structure, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, heads, length, head_dim]: noise, a direction for the sink, phases for nearness, codes of blocks."""
    heads, length, dim = structure.heads, structure.length, structure.head_dim
    blocks = length // BLOCK
    strength = math.sqrt(dim)  # what attention divides logits by
    q, k, v = (torch.randn(1, heads, length, dim, generator=generator) for _ in range(3))
    q, k = 0.5 * q, 0.5 * k
    third = dim // 3
    k[..., :SINK_KEYS, 0] += structure.sink * strength / 4
    q[..., 0] += 4.0
    place = torch.arange(length)[:, None] / BLOCK
    rates = torch.linspace(0.2, 2.0, third // 2)
    phases = torch.cat([(place * rates).cos(), (place * rates).sin()], 1)
    size = math.sqrt(structure.near * strength / (third // 2))
    q[..., 1 : 1 + phases.shape[1]] += size * phases
    k[..., 1 : 1 + phases.shape[1]] += size * phases
    codes = functional.normalize(torch.randn(heads, blocks, dim - third - 1, generator=generator), dim=-1)
    wanted = far_blocks(structure, generator)
    size = math.sqrt(structure.far * strength)
    k[..., third + 1 :] += size * codes.repeat_interleave(BLOCK, 1)
    q[..., third + 1 :] += size * (wanted @ codes).repeat_interleave(BLOCK, 1)
    return q, k, v


def far_blocks(structure: Structure, generator: torch.Generator) -> Tensor:
    """[heads, query blocks, key blocks] of 0 and 1: which earlier blocks each one looks at."""
    blocks = structure.length // BLOCK
    chance = torch.rand(structure.heads, blocks, blocks, generator=generator)
    chance = chance.masked_fill(torch.ones(blocks, blocks).triu(-1).bool(), -1.0)
    best = chance.topk(min(structure.heavy, blocks), dim=-1)
    return torch.zeros_like(chance).scatter_(-1, best.indices, (best.values > 0).float())


def block_scores(q: Tensor, k: Tensor) -> Tensor:
    """[1, heads, query blocks, key blocks]: product of the averages of queries and of keys; the future is -inf."""
    queries, keys = (one.view(*one.shape[:2], -1, BLOCK, one.shape[3]).mean(3) for one in (q, k))
    scores = queries @ keys.mT
    return scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), -math.inf)


def masks(structure: Structure, scores: Tensor, *, top: int, window: int) -> dict[str, BlockMask]:
    """What is compared; all of them causal."""
    length = structure.length
    causal = BlockMask.causal(length, block=BLOCK)
    sink = BlockMask.sink(length, keys=SINK_KEYS, block=BLOCK)
    near = causal & (sink | BlockMask.window(length, left=window, block=BLOCK))
    best = causal & BlockMask.top_k(scores, top, q_len=length, k_len=length, block=BLOCK)
    both = near | best
    wider = window + round((both.density - near.density) * length)
    return {
        "everything before": causal,
        f"sink + window {window}": near,
        f"top {top} blocks": best,
        f"sink + window {window} + top {top}": both,
        f"sink + window {wider}": causal & (sink | BlockMask.window(length, left=wider, block=BLOCK)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heavy", type=int, default=3, help="far blocks that each block of queries looks at")
    parser.add_argument("--top", type=int, default=4, help="blocks that top-k keeps in a row")
    parser.add_argument("--window", type=int, default=128, help="keys before a query that are kept")
    told = parser.parse_args()
    structure = Structure(heavy=told.heavy)
    q, k, v = planted(structure, torch.Generator().manual_seed(0))
    found = attention(q, k, v, causal=True, return_lse=True)
    assert isinstance(found, tuple)
    whole, total = found
    print(
        f"{structure.length} tokens, {structure.heads} heads, blocks of {BLOCK}; planted: a sink of {SINK_KEYS} keys,"
    )
    print(f"nearness, and {structure.heavy} far blocks for each block of queries\n")
    print(f"{'mask':<28}{'blocks a row':>13}{'mass kept':>11}{'worst 5 %':>11}{'output error':>14}")
    for name, mask in masks(structure, block_scores(q, k), top=told.top, window=told.window).items():
        made = attention(q, k, v, mask, return_lse=True)
        assert isinstance(made, tuple)
        out, lse = made
        mass = (lse - total).exp().flatten()
        error = float((out - whole).norm() / whole.norm())
        row = mask.density * mask.kinds.shape[3]
        worst = float(mass.quantile(0.05))
        print(f"{name:<28}{row:>13.1f}{float(mass.mean()):>11.3f}{worst:>11.3f}{error:>14.3f}")
    print("\nPlanted data, and masks that suit it: no claim about the quality of any model.")


if __name__ == "__main__":
    main()

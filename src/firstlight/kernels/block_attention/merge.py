"""Putting together what was attended to in parts: results over disjoint sets of keys become the result over all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.kernels.block_attention.checks import require_parts
from firstlight.kernels.jagged import is_nested, jagged_of


def merge_attention(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(out, lse) over all keys from those over disjoint sets of them, e.g. of two halves of the keys.

    Each part is what attention(..., return_lse=True) returned for the same queries. Computed in fp32 (float64 for
    float64) and rounded once; a query that sees no key in any part gets 0 and -inf. Gradients pass through.
    """
    require_parts(parts)
    if is_nested(parts[0][0]):
        places = jagged_of(parts[0][0], "out of part 0")
        plain = [(jagged_of(out, "out").tokens, jagged_of(lse, "lse").tokens) for out, lse in parts]
        out, lse = merge_attention(plain)
        return places.like(out), places.like(lse)
    dtype, kept = parts[0][0].dtype, parts[0][1].dtype
    precision = torch.float64 if torch.float64 in (dtype, kept) else torch.float32
    logs = torch.stack([lse.to(precision) for _, lse in parts])
    highest = logs.detach().amax(0)
    highest = torch.where(highest == -torch.inf, 0.0, highest)
    shares = (logs - highest).exp()
    total = shares.sum(0)
    empty = total == 0.0
    total = torch.where(empty, 1.0, total)  # log and division stay finite, and their derivatives with them
    out = torch.zeros_like(parts[0][0], dtype=precision)
    for (part, _), share in zip(parts, shares, strict=True):
        out = out + (share / total)[..., None] * part.to(precision)
    lse = (highest + total.log()).masked_fill(empty, -torch.inf)
    return out.to(dtype), lse.to(kept)

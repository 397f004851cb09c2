"""Attention in plain torch, every logit written down: for what neither our kernels nor torch's take."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Extras(NamedTuple):
    """What a layer asks for besides softmax(scale q k') v; 0 or None: nothing."""

    dropout: float = 0.0  # of the weights
    softcap: float | None = None  # logits are softcap * tanh(logits / softcap)
    sinks: Tensor | None = None  # [query heads]: a logit that takes weight and gives nothing
    bias: Tensor | None = None  # added to the logits


def attended(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, scale: float | Tensor, extras: Extras
) -> tuple[Tensor, Tensor]:
    """Output [B, H, Sq, Dv] and weights [B, H, Sq, Sk]; seen: booleans or an additive mask. No key: zeros."""
    group = q.shape[1] // k.shape[1]
    keys, values = (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
    logits = (q @ keys.mT) * scale
    if extras.softcap is not None:
        logits = torch.tanh(logits / extras.softcap) * extras.softcap
    if extras.bias is not None:
        logits = logits + extras.bias
    empty = None
    if seen is not None and seen.dtype == torch.bool:
        empty = ~seen.any(-1, keepdim=True)
        logits = logits.masked_fill(
            ~(seen | empty), -torch.inf
        )  # a row of -inf has no softmax, and its gradient is NaN
    elif seen is not None:
        logits = logits + seen
    if extras.sinks is not None:
        column = extras.sinks.view(1, -1, 1, 1).expand(*logits.shape[:3], 1).to(logits.dtype)
        logits = torch.cat([logits, column], -1)
    weights = logits.softmax(-1, dtype=torch.promote_types(torch.float32, logits.dtype)).to(q.dtype)
    weights = weights[..., : k.shape[2]]
    if empty is not None:
        weights = weights.masked_fill(empty, 0.0)
    if extras.dropout:
        weights = functional.dropout(weights, p=extras.dropout)
    return weights @ values, weights

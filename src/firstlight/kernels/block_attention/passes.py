"""What a backward pass gets: the tensors of its forward pass, and the gradients of what that made."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Forward(NamedTuple):
    """The inputs of a forward pass and its results."""

    q: Tensor  # [B, H, Sq, D]
    k: Tensor  # [B, Hkv, Sk, D]
    v: Tensor
    out: Tensor  # [B, H, Sq, D]
    lse: Tensor  # [B, H, Sq]


class Upstream(NamedTuple):
    """The gradients of the results; lse None: nobody uses it."""

    out: Tensor
    lse: Tensor | None = None

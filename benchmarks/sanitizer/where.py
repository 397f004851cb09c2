"""Where the sanitizer's cases run, and the numbers that they run on."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels import reference, sm90
from firstlight.kernels.block_attention import reference as plain_attention
from firstlight.kernels.sm90 import attention as hopper_attention


@dataclass(frozen=True, slots=True)
class Where:
    """Where cases run: cuda by the Hopper kernels, or cpu by the reference."""

    device: str
    products: ModuleType  # multiply and sample
    attention: ModuleType  # forward and backward


GPU, DRY = Where("cuda", sm90, hopper_attention), Where("cpu", reference, plain_attention)


def normal(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    """The same numbers on every machine."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

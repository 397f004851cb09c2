"""Jagged nested tensors: a batch of sequences of different lengths, whose tokens lie one behind the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput


class Jagged(NamedTuple):
    """The tokens of all sequences along dimension 0, where each begins, and which dimension of the tensor they were."""

    tokens: Tensor
    offsets: Tensor
    dimension: int

    def like(self, tokens: Tensor) -> Tensor:
        """A jagged tensor of these tokens, of as many and as long sequences, with the lengths where they were."""
        made = torch.nested.nested_tensor_from_jagged(tokens, self.offsets)
        return made if self.dimension == 1 else made.transpose(1, self.dimension)


def is_nested(given: object) -> bool:
    """Whether it is a nested tensor of either layout."""
    return isinstance(given, Tensor) and given.is_nested


def jagged_of(nested: Any, name: str) -> Jagged:  # Any: torch has no type for what jagged ones add
    """What a nested tensor is made of; raises for the older layout and where tokens are left out between sequences."""
    if nested.layout != torch.jagged:
        raise UnsupportedInput(
            f"{name} is a nested tensor of layout {nested.layout}; torch.jagged is accepted. Make it with "
            f"torch.nested.nested_tensor(..., layout=torch.jagged)."
        )
    if nested.lengths() is not None:
        raise UnsupportedInput(f"{name} leaves tokens out between its sequences; call {name}.contiguous() once.")
    dimension = next(place for place, size in enumerate(nested.shape) if not isinstance(size, int))
    return Jagged(nested.values().transpose(0, dimension - 1), nested.offsets(), dimension)

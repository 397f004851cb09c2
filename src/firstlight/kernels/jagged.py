"""Jagged nested tensors: a batch of sequences of different lengths, whose tokens lie one behind the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.torch_private import functorch_level, hides_lengths, ragged_dimension


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
    if not isinstance(given, Tensor):
        return False
    return given.is_nested or (not is_compiling() and functorch_level() is not None and hides_lengths(given))


def jagged_of(nested: Any, name: str) -> Jagged:  # Any: torch has no type for what jagged ones add
    """What a nested tensor is made of; raises for the older layout and where tokens are left out between sequences."""
    if not is_compiling() and functorch_level() is not None:
        raise UnsupportedInput(
            f"{name} is a nested tensor under torch.func, where torch cannot tell its lengths; plain tensors are "
            f"accepted. Pass {name}.values(), or take gradients with backward()."
        )
    if nested.layout != torch.jagged:
        raise UnsupportedInput(
            f"{name} is a nested tensor of layout {nested.layout}; torch.jagged is accepted. Make it with "
            f"torch.nested.nested_tensor(..., layout=torch.jagged)."
        )
    if nested.lengths() is not None:
        raise UnsupportedInput(f"{name} leaves tokens out between its sequences; call {name}.contiguous() once.")
    dimension = ragged_dimension(nested)
    return Jagged(nested.values().transpose(0, dimension - 1), nested.offsets(), dimension)


def rows_of(nested: Tensor, name: str) -> Jagged:
    """The same of a tensor whose last dimension is one of numbers, not of lengths: a product sums along it."""
    found = jagged_of(nested, name)
    if found.dimension == nested.dim() - 1:
        raise UnsupportedInput(
            f"{name} is jagged with the lengths in its last dimension; [batch, lengths, columns] is accepted. "
            f"Call {name}.transpose({found.dimension - 1}, {found.dimension})."
        )
    return found


def refuse_nested(**given: Tensor | None) -> None:
    """Raises where a call takes plain tensors alone."""
    for name, tensor in given.items():
        if is_nested(tensor):
            raise UnsupportedInput(
                f"{name} is a nested tensor; plain ones are accepted here. linear and gated_linear take jagged x; "
                f"or pass {name}.values()."
            )


def same_lengths(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of offsets say the same; the host waits unless they are one tensor."""
    return one is other or (one.shape == other.shape and bool((one == other).all()))

"""What a backend is asked to compute; every backend takes the same two requests."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch import Tensor


class Activation(enum.Enum):
    """What is applied to each element of the output, e.g. relu."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"  # the exact form with erf, as torch.nn.functional.gelu's default
    GELU_TANH = "gelu_tanh"
    SILU = "silu"


class Layout(enum.Enum):
    """How the dense operand and the output lie in memory.

    COLUMNS: dense [..., cols, n], out [..., rows, n], both row-major (matmul). TOKENS: dense [n, cols], out [n, rows],
    both row-major (linear): the same product with dense and output transposed.
    """

    COLUMNS = "columns"
    TOKENS = "tokens"


class Second(enum.Enum):
    """What is done with the addend: added before the activation, or the result is multiplied by it."""

    ADDED = "added"
    MULTIPLIED = "multiplied"  # activation(alpha * product + bias) * addend; beta is 1


@dataclass(frozen=True, slots=True)
class Epilogue:
    """out = activation(alpha * product + beta * addend + bias); addend has the output's shape, bias [rows].

    With second MULTIPLIED: activation(alpha * product + bias) * addend.
    """

    alpha: float = 1.0
    beta: float = 0.0
    addend: Tensor | None = None
    bias: Tensor | None = None
    activation: Activation = Activation.NONE
    second: Second = Second.ADDED


PLAIN = Epilogue()

"""The gated product, the first half of most MLPs: activation(x @ W.T + bias) * (x @ G.T + gate_bias)."""

from __future__ import annotations

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import called
from firstlight.kernels.functions import linear, linear_anew
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import Activation, Second
from firstlight.kernels.repeated import again


def gated_linear(
    x: Tensor, w: BlockSparseMatrix, gate: BlockSparseMatrix, bias: Tensor | None = None,
    gate_bias: Tensor | None = None, *, activation: str | Activation | None = "silu", backend: str = "auto",
) -> Tensor:  # fmt: skip
    """activation(x @ W.T + bias) * (x @ G.T + gate_bias), e.g. silu(x W1) * (x W3): x [..., cols of W].

    w and gate have one shape; their patterns and blocks may differ. The gate's product is computed first and rounded to
    x's dtype; the other one is multiplied by it on its way out, so nothing is read or written again.
    """
    for name, matrix in (("w", w), ("gate", gate)):
        if not is_dynamo_compiling() and not isinstance(matrix, BlockSparseMatrix):
            raise UnsupportedInput(f"{name} is {called(matrix)}; a BlockSparseMatrix is accepted.")
    if w.shape != gate.shape:
        raise UnsupportedInput(
            f"w has shape {list(w.shape)} and gate {list(gate.shape)}; two matrices of one shape are accepted, as "
            f"their products are multiplied element by element."
        )
    factor = linear(x, gate, gate_bias, backend=backend)
    asked = (activation, backend, Second.MULTIPLIED)
    if not is_dynamo_compiling():
        done = again(w, x, bias, factor, asked)
        if done is not None:
            return done
    return linear_anew(x, w, bias, factor, asked)

"""The gated product: every backend, gradients, compilers, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, gated_linear
from firstlight.kernels.nn import BlockSparseLinear, GatedBlockSparseLinear
from firstlight.kernels.repeated import prepared_calls

ACTIVATIONS: dict[str | None, Any] = {
    None: lambda x: x, "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}  # fmt: skip


def matrices(dtype: torch.dtype = torch.float64) -> tuple[BlockSparseMatrix, BlockSparseMatrix]:
    """Two patterns and two blocks, one shape."""
    first = BlockSparseMatrix.random(70, 50, block=16, density=0.5, dtype=dtype)
    return first, BlockSparseMatrix.random(70, 50, block=32, density=0.6, dtype=dtype)


def exact(x: Tensor, w: BlockSparseMatrix, gate: BlockSparseMatrix, activation: Any, *biases: Tensor) -> Tensor:
    bias, gate_bias = biases or (torch.zeros((), dtype=x.dtype),) * 2
    product: Tensor = activation(x @ w.to_dense().T + bias) * (x @ gate.to_dense().T + gate_bias)
    return product


@pytest.mark.parametrize("backend", ["reference", "dense", "auto"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_a_gated_product_is_one_product_activated_times_the_other(backend: str, activation: str | None) -> None:
    w, gate = matrices()
    x, biases = torch.randn(3, 7, 50, dtype=torch.float64), torch.randn(2, 70, dtype=torch.float64)
    wanted = exact(x, w, gate, ACTIVATIONS[activation], *biases)
    for _ in range(2):  # the second call goes the short way
        found = gated_linear(x, w, gate, *biases, activation=activation, backend=backend)
        torch.testing.assert_close(found, wanted)
    assert prepared_calls(w) == 1
    torch.testing.assert_close(gated_linear(x, gate, w, activation=None), exact(x, gate, w, ACTIVATIONS[None]))


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_gradients_of_everything_that_goes_in(activation: str) -> None:
    w, gate = matrices()
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 50), (70,), (70,))]
    values = [each.values.requires_grad_() for each in (w, gate)]

    def run(x: Tensor, bias: Tensor, gate_bias: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return gated_linear(x, w.with_values(first), gate.with_values(second), bias, gate_bias, activation=activation)

    assert torch.autograd.gradcheck(run, (*given, *values))


def test_compiled_whole_with_and_without_gradients_and_under_torch_func() -> None:
    w, gate = matrices()
    x = torch.randn(4, 50, dtype=torch.float64)
    run = torch.compile(lambda y: gated_linear(y, w, gate), fullgraph=True, backend="aot_eager")
    wanted = exact(x, w, gate, functional.silu)
    torch.testing.assert_close(run(x), wanted)
    y = x.clone().requires_grad_()
    torch.testing.assert_close(run(y), wanted)
    torch.autograd.backward(run(y).sum())
    assert y.grad is not None
    torch.testing.assert_close(torch.func.grad(lambda z: gated_linear(z, w, gate).sum())(x), y.grad)


def test_a_gated_layer_trains_compiles_and_saves_as_its_two_layers() -> None:
    w, gate = matrices(torch.float32)
    layer = GatedBlockSparseLinear(BlockSparseLinear(w, torch.randn(70)), BlockSparseLinear(gate), activation="gelu")
    x = torch.randn(5, 50)
    wanted = exact(x, w, gate, functional.gelu, layer.first.bias.detach(), torch.zeros(70))  # type: ignore[union-attr]
    torch.testing.assert_close(layer(x), wanted, rtol=1e-4, atol=1e-4)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-4)
    torch.autograd.backward(compiled(x).sum())
    assert layer.gate.values.grad is not None
    assert set(layer.state_dict()) == {
        *(f"first.{name}" for name in ("values", "bias", "crow", "col", "shape")),
        *(f"gate.{name}" for name in ("values", "crow", "col", "shape")),
    }
    assert "activation=gelu" in repr(layer)


def test_autocast_casts_both_products() -> None:
    w, gate = matrices(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gated_linear(torch.randn(4, 50), w, gate).dtype is torch.bfloat16


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    w, gate = matrices()
    x = torch.randn(4, 50, dtype=torch.float64)
    other = BlockSparseMatrix.random(80, 50, block=16, density=0.5, dtype=torch.float64)
    with pytest.raises(
        UnsupportedInput, match=r"w has shape \[70, 50\] and gate \[80, 50\]; two matrices of one shape"
    ):
        gated_linear(x, w, other)
    with pytest.raises(UnsupportedInput, match="gate is a Tensor; a BlockSparseMatrix is accepted"):
        gated_linear(x, w, gate.values)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedInput, match="activation is 'swish'"):
        gated_linear(x, w, gate, activation="swish")
    with pytest.raises(UnsupportedInput, match="first has the activation 'silu'; a layer without one"):
        GatedBlockSparseLinear(BlockSparseLinear(w, activation="silu"), BlockSparseLinear(gate))

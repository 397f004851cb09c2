"""The registered operators: torch's own checks of them, and compiled code against eager code."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, UnsupportedInput, linear, matmul, sampled_matmul
from firstlight.kernels.nn import BlockSparseLinear
from tests.kernels.cases import scattered

COMPILERS = ["eager", "aot_eager"]


def matrix() -> BlockSparseMatrix:
    return BlockSparseMatrix.from_mask(scattered(3, 4), block=16, values=torch.randn(44, 61, dtype=torch.float64))


def multiply_arguments(**changed: object) -> tuple[object, ...]:
    w = matrix().requires_grad_()
    named: dict[str, object] = {
        "values": w.values, "crow": w.pattern.crow, "col": w.pattern.col,
        "dense": torch.randn(2, 5, 61, dtype=torch.float64, requires_grad=True),
        "bias": torch.randn(44, dtype=torch.float64, requires_grad=True), "addend": None,
        "rows": 44, "cols": 61, "block": 16, "transposed": False, "layout": "tokens", "backend": "reference",
        "alpha": 0.5, "training": True, "activation": "relu", "beta": 0.0, "second": "added",
    }  # fmt: skip
    return tuple({**named, **changed}.values())


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {
            "transposed": True, "layout": "columns", "activation": "none", "beta": 2.0,
            "dense": torch.randn(3, 44, 7, dtype=torch.float64, requires_grad=True),
            "addend": torch.randn(3, 61, 7, dtype=torch.float64, requires_grad=True),
            "bias": torch.randn(61, dtype=torch.float64, requires_grad=True),
        },
    ],
    ids=["tokens", "columns"],
)  # fmt: skip
def test_torch_finds_no_fault_with_bsr_multiply(changed: dict[str, object]) -> None:
    torch.library.opcheck(torch.ops.firstlight.bsr_multiply.default, multiply_arguments(**changed))


def test_torch_finds_no_fault_with_bsr_sample() -> None:
    w = matrix()
    a, b = (torch.randn(side, 7, dtype=torch.float64, requires_grad=True) for side in (44, 61))
    given = (w.pattern.crow, w.pattern.col, a, b, 44, 61, 16, False, "columns", "reference", 0.5, False)
    torch.library.opcheck(torch.ops.firstlight.bsr_sample.default, given)


def test_the_operator_refuses_to_lose_the_input_of_a_gelu() -> None:
    with pytest.raises(UnsupportedInput, match="only none and relu with 'added' are accepted then"):
        torch.ops.firstlight.bsr_multiply(*multiply_arguments(activation="gelu"))


def network(w: BlockSparseMatrix, backend: str) -> Callable[..., Tensor]:
    def run(x: Tensor, bias: Tensor, values: Tensor) -> Tensor:
        y = linear(x, w.with_values(values), bias, activation="gelu", backend=backend)
        z = matmul(w.T, y.mT.contiguous(), alpha=0.5)
        return z.sin().sum()

    return run


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_whole_it_gives_the_results_and_gradients_of_eager_mode(compiler: str) -> None:
    compare_compiled(compiler, bits=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++ for the processor; there is no g++")
def test_inductor_gives_the_same() -> None:
    compare_compiled("inductor", bits=False)


def compare_compiled(compiler: str, *, bits: bool) -> None:
    torch._dynamo.reset()
    w = matrix()
    given = (
        torch.randn(2, 5, 61, dtype=torch.float64, requires_grad=True),
        torch.randn(44, dtype=torch.float64, requires_grad=True),
        w.values.clone().requires_grad_(),
    )
    eager = network(w, "reference")
    compiled = torch.compile(eager, fullgraph=True, backend=compiler)
    plain = eager(*given)
    wanted = torch.autograd.grad(plain, given)
    for _ in range(2):
        found = compiled(*given)
        torch.testing.assert_close(found, plain, rtol=0 if bits else 1e-12, atol=0 if bits else 1e-12)
        for one, other in zip(torch.autograd.grad(found, given), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0 if bits else 1e-12, atol=0 if bits else 1e-12)


def test_a_compiled_layer_takes_any_number_of_tokens_and_its_own_changes() -> None:
    torch._dynamo.reset()
    layer = BlockSparseLinear(
        BlockSparseMatrix.from_mask(scattered(3, 4), block=16, values=torch.randn(44, 61)), torch.randn(44)
    )
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for tokens in (5, 6, 9):
        x = torch.randn(tokens, 61)
        found = compiled(x)
        torch.testing.assert_close(found, layer(x))
        torch.autograd.backward(found.square().sum())
        optimizer.step()
        optimizer.zero_grad()


def test_compiled_under_autocast_and_no_grad() -> None:
    torch._dynamo.reset()
    w = BlockSparseMatrix.from_mask(scattered(3, 4), block=16, values=torch.randn(44, 61))
    x = torch.randn(5, 61)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear(y, w, activation="silu")

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        plain = linear(x, w, activation="silu")
    with torch.no_grad():
        found = run(x)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, plain)


def test_sampled_matmul_compiles_whole() -> None:
    torch._dynamo.reset()
    w = matrix()
    a, b = torch.randn(44, 9, dtype=torch.float64), torch.randn(61, 9, dtype=torch.float64)
    compiled = torch.compile(
        lambda p, q: sampled_matmul(p, q.mT, w, alpha=0.5).values, fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(a, b), sampled_matmul(a, b.mT, w, alpha=0.5).values)


def test_export_holds_the_operator() -> None:
    layer = BlockSparseLinear(BlockSparseMatrix.from_mask(scattered(3, 4), block=16, values=torch.randn(44, 61)))
    x = torch.randn(5, 61)
    program = torch.export.export(layer.eval(), (x,))
    assert "firstlight.bsr_multiply" in str(program.graph)
    torch.testing.assert_close(program.module()(x), layer(x))

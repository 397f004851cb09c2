"""Gradients against finite differences in float64, of first and second order, for both layouts and directions."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, linear, matmul, sampled_matmul
from firstlight.kernels.pattern import Pattern
from tests.kernels.cases import scattered


def matrix() -> BlockSparseMatrix:
    mask = scattered(2, 3)
    mask[0] = True
    return BlockSparseMatrix.from_mask(mask, block=16, values=torch.randn(27, 41, dtype=torch.float64))


def double(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("backend", "turned"), list(itertools.product(["reference", "dense"], [False, True])))
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_linear(backend: str, turned: object, activation: str | None) -> None:
    w = matrix()
    rows, cols = w.T.shape if turned else w.shape

    def run(values: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        # gradcheck changes its inputs behind torch's back, which a kept dense copy cannot notice: hand it a new tensor
        m = w.with_values(values * 1)
        return linear(x, m.T if turned else m, bias, activation=activation, backend=backend)

    given = (w.values.clone().requires_grad_(), double(3, 2, cols), double(rows))
    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    if backend == "reference":
        assert torch.autograd.gradgradcheck(run, given, fast_mode=True)


@pytest.mark.parametrize("backend", ["reference", "dense"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_matmul_with_everything(backend: str, batch: tuple[int, ...]) -> None:
    w = matrix()

    def run(values: Tensor, x: Tensor, bias: Tensor, c: Tensor) -> Tensor:
        m = w.with_values(values * 1)
        return matmul(m, x, alpha=0.7, beta=-0.3, c=c, bias=bias, activation="relu", backend=backend)

    given = (w.values.clone().requires_grad_(), double(*batch, 41, 3), double(27), double(*batch, 27, 3))
    assert torch.autograd.gradcheck(run, given, fast_mode=True)


@pytest.mark.parametrize("turned", [False, True])
def test_sampled_matmul(turned: object) -> None:
    w = matrix().T if turned else matrix()
    rows, cols = w.shape

    def run(a: Tensor, b: Tensor) -> Tensor:
        return sampled_matmul(a, b.mT, w, alpha=0.5, backend="reference").values.square()

    assert torch.autograd.gradcheck(run, (double(rows, 4), double(cols, 4)), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (double(rows, 4), double(cols, 4)), fast_mode=True)


def test_only_the_gradients_asked_for_are_computed() -> None:
    w, x = matrix(), torch.randn(3, 41, dtype=torch.float64)
    bias = double(27)
    torch.autograd.backward(linear(x, w, bias, activation="relu").sum())
    assert bias.grad is not None
    assert w.values.grad is None
    x.requires_grad_()
    torch.autograd.backward(linear(x, w).square().sum())
    assert x.grad is not None


def test_padding_of_edge_blocks_gets_no_gradient() -> None:
    w = matrix().requires_grad_()
    torch.autograd.backward(linear(torch.randn(5, 41, dtype=torch.float64), w).square().sum())
    assert w.values.grad is not None
    outside = w.with_values(w.values.grad).to_dense().abs().sum()
    torch.testing.assert_close(w.values.grad.abs().sum(), outside)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_pattern_changed_before_the_backward_pass_is_complained_of(prepared: object) -> None:
    w = BlockSparseMatrix.from_mask(torch.eye(2).bool(), block=16, values=torch.randn(32, 32)).requires_grad_()
    x = torch.randn(3, 32, requires_grad=True)
    if prepared:
        linear(x, w)
    y, sampled = linear(x, w), sampled_matmul(torch.randn(32, 4, requires_grad=True), torch.randn(4, 32), w)
    w.pattern.col.copy_(torch.tensor([1, 0], dtype=torch.int32))
    for out in (y, sampled.values):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.backward(out.sum())
    torch.autograd.backward(linear(x, w).sum())
    torch.testing.assert_close(x.grad, w.to_dense().detach().sum(0).expand(3, -1))


def test_torch_func_complains_of_a_changed_pattern_too() -> None:
    w = BlockSparseMatrix.from_mask(torch.eye(2).bool(), block=16, values=torch.randn(32, 32))
    a, b = torch.randn(32, 4), torch.randn(4, 32)
    pulls = [
        torch.func.vjp(lambda x: linear(x, w).sum(), torch.randn(3, 32))[1],
        torch.func.vjp(lambda y: sampled_matmul(y, b, w).values.sum(), a)[1],
    ]
    w.pattern.col.copy_(torch.tensor([1, 0], dtype=torch.int32))
    for pull in pulls:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            pull(torch.tensor(1.0))


def test_a_pattern_made_in_inference_mode_serves_a_backward_pass() -> None:
    with torch.inference_mode():
        crow, col = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    w = BlockSparseMatrix(torch.randn(2, 16, 16, requires_grad=True), Pattern(crow, col, (32, 32), 16))
    torch.autograd.backward(linear(torch.randn(3, 32), w, backend="reference").sum())
    assert w.values.grad is not None


@pytest.mark.parametrize("way", ["eager", "operators", "torch.func"])
def test_an_infinite_gradient_at_a_dead_unit_is_zero_as_for_torch(way: str) -> None:
    w = BlockSparseMatrix.from_mask(torch.ones(1, 1).bool(), block=16, values=torch.eye(16))
    x, bias, grad = torch.linspace(-1, 1, 16)[None], torch.zeros(16), torch.full((1, 16), torch.inf)

    def run(bias: Tensor) -> Tensor:
        return linear(x, w, bias, activation="relu", backend="reference")

    if way == "torch.func":
        found = torch.func.vjp(run, bias)[1](grad)[0]
    else:
        bias.requires_grad_()
        out = run(bias) if way == "eager" else torch.compile(run, backend="aot_eager", fullgraph=True)(bias)
        (found,) = torch.autograd.grad(out, bias, grad)
    assert torch.equal(found, torch.where(x[0] > 0, torch.inf, 0.0))


def test_values_get_zeros_where_a_batch_of_batches_has_no_columns() -> None:
    w = matrix().requires_grad_()
    torch.autograd.backward(matmul(w, torch.randn(2, 3, 41, 0, dtype=torch.float64)).sum())
    assert w.values.grad is not None
    assert not w.values.grad.any()

"""Gradients of a product and of a sampled product; the two are each other's derivatives, so any order works.

With W [rows, cols] stored at a pattern, Y = alpha * W X + beta * C + bias:
    dX      = alpha * W^T dY          the pattern's other direction over the same values
    dvalues = alpha * (dY X^T) sampled at the pattern
    dC      = beta * dY,  dbias = dY summed over everything but rows
A fused relu is undone from the output (it is positive exactly where its input was); gelu and silu need their input, so
with gradients the product is written first and torch's own activation follows it, and so does a product with a gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from firstlight.kernels.launch import NOTHING, Extras, Request, multiply_now, ready, sample_now
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.prepared import Prepared
from firstlight.kernels.product import Activation, Layout, Second
from firstlight.kernels.reference import activated
from firstlight.kernels.torch_private import applied_directly

GRADIENT = ("the gradient of the output", "x")
KEPT = 3  # tensors that a product keeps for its gradients; behind them those of the pattern


class Engine(Protocol):
    """Something that computes products with gradients: eager functions here, registered operators in ops.py."""

    def multiply(
        self, pattern: Any, values: Tensor, dense: Tensor, request: Request, extras: Extras = ..., /
    ) -> Tensor: ...

    def sample(self, pattern: Any, a: Tensor, b: Tensor, request: Request, /) -> Tensor: ...


class Wanted(NamedTuple):
    """Which gradients are wanted."""

    values: bool
    dense: bool
    bias: bool
    addend: bool


class Gradients(NamedTuple):
    """The gradients that were wanted; None for the others."""

    values: Tensor | None = None
    dense: Tensor | None = None
    bias: Tensor | None = None
    addend: Tensor | None = None


def fused_with_gradients(request: Request) -> bool:
    """Whether what follows the product can be undone from the output alone, e.g. relu."""
    return request.activation in (Activation.NONE, Activation.RELU) and request.second is Second.ADDED


def product_alone(request: Request, extras: Extras) -> tuple[Request, Extras]:
    """The product of a request without what cannot be undone: its activation, and a tensor that multiplies it."""
    multiplied = request.second is Second.MULTIPLIED
    # spelled out: dynamo of older torch releases does not follow _replace of a named tuple
    plain = Request(
        request.layout, request.transposed, Activation.NONE, request.backend, request.alpha,
        0.0 if multiplied else request.beta, training=request.training, names=request.names,
    )  # fmt: skip
    return plain, Extras(extras.bias, None if multiplied else extras.addend)


def followed(product: Tensor, request: Request, extras: Extras) -> Tensor:
    """What was left out, by torch, which keeps what its gradients need."""
    out, factor = activated(product, request.activation), extras.addend
    return out if factor is None or request.second is Second.ADDED else out * factor


def product_gradients(
    engine: Engine, pattern: Any, grad: Tensor, saved: tuple[Tensor | None, Tensor | None, Tensor | None], *,
    request: Request, wanted: Wanted,
) -> Gradients:  # fmt: skip
    """The gradients of one product; saved is (values, dense, the output if relu was fused), None where not needed."""
    values, dense, output = saved
    grad = grad.contiguous()  # the sum for the bias takes its order from the layout; one order, the same bits
    if output is not None:
        # torch's own for relu: 0 at a dead unit, where a product would make NaN of an infinite gradient
        grad = torch.ops.aten.threshold_backward(grad, output.detach(), 0)
    plain = request._replace(activation=Activation.NONE, beta=0.0, names=GRADIENT)
    d_values = d_dense = d_bias = d_addend = None
    if wanted.values:
        assert dense is not None
        # the sampled product takes the operand of the matrix's rows first, whichever way the pattern is turned
        d_values = engine.sample(pattern, grad, dense, plain)
    if wanted.dense:
        assert values is not None
        d_dense = engine.multiply(pattern, values, grad, plain._replace(transposed=not plain.transposed))
    if wanted.bias:
        d_bias = grad.sum(_all_but_rows(grad, request.layout))
    if wanted.addend:
        d_addend = grad * request.beta
    return Gradients(d_values, d_dense, d_bias, d_addend)


def sample_gradients(
    engine: Engine, pattern: Any, grad: Tensor, operands: tuple[Tensor, Tensor], *, request: Request
) -> tuple[Tensor, Tensor]:
    """The gradients of both operands of a sampled product; grad has the shape of the values."""
    a, b = operands
    plain = request._replace(training=True)  # the gradient plays the part of the values
    d_a = engine.multiply(pattern, grad, b, plain)
    d_b = engine.multiply(pattern, grad, a, plain._replace(transposed=not plain.transposed))
    return d_a, d_b


def _all_but_rows(grad: Tensor, layout: Layout) -> list[int]:
    last = grad.dim() - 1
    return list(range(last)) if layout is Layout.TOKENS else [*range(last - 1), last]


class Multiply(torch.autograd.Function):
    """multiply_now with gradients, called directly: a registered operator costs five times as much per call."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, dense: Tensor, bias: Tensor | None, addend: Tensor | None,
        asked: tuple[Pattern, Request, Prepared | None, Any],
    ) -> Tensor:  # fmt: skip
        pattern, request, call, addresses = asked
        if call is None:
            out = multiply_now(pattern, values, dense, request, Extras(bias, addend))
        else:
            out = call.run(values, dense, bias, addend, addresses)
        needs_values, needs_dense, _, _, _ = ctx.needs_input_grad
        relu = request.activation is Activation.RELU
        ctx.save_for_backward(
            values if needs_dense else None, dense if needs_values else None, out if relu else None, *pattern.watched
        )
        ctx.asked = asked
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = ready(grads[0], GRADIENT[0])
        pattern, request, _, _ = ctx.asked
        found = product_gradients(
            EAGER, pattern, grad, ctx.saved_tensors[:KEPT], request=request, wanted=Wanted(*ctx.needs_input_grad[:4])
        )
        return (*found, None)


class Sample(torch.autograd.Function):
    """sample_now with gradients."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, pattern: Pattern, request: Request) -> Tensor:
        ctx.save_for_backward(a, b, *pattern.watched)
        ctx.pattern, ctx.request = pattern, request
        return sample_now(pattern, a, b, request)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        d_a, d_b = sample_gradients(EAGER, ctx.pattern, grads[0], ctx.saved_tensors[:2], request=ctx.request)
        return d_a, d_b, None, None


# torch.func has been ruled out here
_multiply: Callable[..., Tensor] = applied_directly(Multiply)
_sample: Callable[..., Tensor] = applied_directly(Sample)


def recorded(
    pattern: Pattern, values: Tensor, dense: Tensor, extras: Extras, call: Prepared, addresses: tuple[int, int]
) -> Tensor:
    """A prepared product whose gradients are recorded."""
    return _multiply(values, dense, extras.bias, extras.addend, (pattern, call.request, call, addresses))


class EagerEngine:
    """Products in eager mode; gradients are recorded only when something asks for them."""

    @staticmethod
    def multiply(
        pattern: Pattern, values: Tensor, dense: Tensor, request: Request, extras: Extras = NOTHING, /
    ) -> Tensor:
        """One product with its activation, e.g. [4096, 512] x [512, 16]."""
        bias, addend, out = extras
        if not torch.is_grad_enabled() or not (
            values.requires_grad
            or dense.requires_grad
            or (bias is not None and bias.requires_grad)
            or (addend is not None and addend.requires_grad)
        ):
            return multiply_now(pattern, values, dense, request, extras)
        assert out is None, "out= with gradients is refused before"
        dense = ready(dense, request.names[0])  # here and not below, so that backward does not copy it again
        if fused_with_gradients(request):
            return _multiply(values, dense, bias, addend, (pattern, request, None, None))
        plain, left = product_alone(request, extras)
        return followed(_multiply(values, dense, left.bias, left.addend, (pattern, plain, None, None)), request, extras)

    @staticmethod
    def sample(pattern: Pattern, a: Tensor, b: Tensor, request: Request, /) -> Tensor:
        """One sampled product, e.g. values [52, 64, 64]."""
        if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
            return _sample(a, b, pattern, request)
        return sample_now(pattern, a, b, request)


EAGER = EagerEngine()

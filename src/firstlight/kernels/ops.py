"""The products as registered operators on plain tensors: what torch.compile, export, fake tensors and torch.func see.

torch.ops.firstlight.bsr_multiply and bsr_sample take a pattern as its two index tensors and sizes. Eager calls do not
come this way (a registered operator costs about 30 us more per call); their results are the same, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.gradients import Wanted, fused_with_gradients, product_gradients, sample_gradients
from firstlight.kernels.launch import NOTHING, Extras, Request, multiply_now, sample_now
from firstlight.kernels.pattern import pattern_of
from firstlight.kernels.product import Activation, Layout, Second

MULTIPLY = "firstlight::bsr_multiply"
SAMPLE = "firstlight::bsr_sample"
_HOW = "SymInt rows, SymInt cols, int block, bool transposed, str layout, str backend, float alpha, bool training"


class Parts(NamedTuple):
    """A pattern as an operator takes it: crow [block rows + 1], col [stored blocks], and the shape."""

    crow: Tensor
    col: Tensor
    rows: int
    cols: int
    block: int


class OperatorEngine:
    """Products through the registered operators; torch records their gradients."""

    @staticmethod
    def multiply(parts: Parts, values: Tensor, dense: Tensor, request: Request, extras: Extras = NOTHING, /) -> Tensor:
        """One product, e.g. [4096, 512] x [512, 16]."""
        out: Tensor = torch.ops.firstlight.bsr_multiply(
            values, parts.crow, parts.col, dense, extras.bias, extras.addend, parts.rows, parts.cols, parts.block,
            request.transposed, request.layout.value, request.backend, request.alpha, request.training,
            request.activation.value, request.beta, request.second.value,
        )  # fmt: skip
        return out

    @staticmethod
    def sample(parts: Parts, a: Tensor, b: Tensor, request: Request, /) -> Tensor:
        """One sampled product, e.g. values [52, 64, 64]."""
        out: Tensor = torch.ops.firstlight.bsr_sample(
            parts.crow, parts.col, a, b, parts.rows, parts.cols, parts.block, request.transposed,
            request.layout.value, request.backend, request.alpha, request.training,
        )  # fmt: skip
        return out


OPERATORS = OperatorEngine()


def _multiply(values: Tensor, crow: Tensor, col: Tensor, dense: Tensor, *rest: Any) -> Tensor:
    bias, addend, *how = rest
    shape, block, request = _told(how)
    return multiply_now(pattern_of(crow, col, shape, block), values, dense, request, Extras(bias, addend))


def _multiply_shape(values: Tensor, crow: Tensor, col: Tensor, dense: Tensor, *rest: Any) -> Tensor:
    (rows, cols), _, request = _told(rest[2:])
    out_rows = cols if request.transposed else rows
    if request.layout is Layout.TOKENS:
        return dense.new_empty((*dense.shape[:-1], out_rows))
    return dense.new_empty((*dense.shape[:-2], out_rows, dense.shape[-1]))


def _keep_for_multiply(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, crow, col, dense, _, _, *how = inputs
    (ctx.rows, ctx.cols), ctx.block, ctx.request = _told(how)
    if not fused_with_gradients(ctx.request):
        raise UnsupportedInput(
            f"bsr_multiply: activation is {ctx.request.activation.value!r}, addend is {ctx.request.second.value!r} and "
            f"a tensor requires a gradient; only none and relu with 'added' are accepted then. Call "
            f"firstlight.kernels.linear, gated_linear or matmul, which apply it afterwards."
        )
    needs = ctx.needs_input_grad
    relu = ctx.request.activation is Activation.RELU
    ctx.save_for_backward(
        crow, col, values if needs[3] else None, dense if needs[0] else None, output if relu else None
    )


def _multiply_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    crow, col, *saved = ctx.saved_tensors
    parts = Parts(crow, col, ctx.rows, ctx.cols, ctx.block)
    needs = ctx.needs_input_grad
    found = product_gradients(
        OPERATORS, parts, grad, (saved[0], saved[1], saved[2]), request=ctx.request,
        wanted=Wanted(needs[0], needs[3], needs[4], needs[5]),
    )  # fmt: skip
    return (found.values, None, None, found.dense, found.bias, found.addend, *(None,) * 11)


def _sample(crow: Tensor, col: Tensor, a: Tensor, b: Tensor, *how: Any) -> Tensor:
    shape, block, request = _told(how)
    return sample_now(pattern_of(crow, col, shape, block), a, b, request._replace(names=("a", "b")))


def _sample_shape(crow: Tensor, col: Tensor, a: Tensor, b: Tensor, *how: Any) -> Tensor:
    block = how[2]
    return a.new_empty((col.shape[0], block, block))


def _keep_for_sample(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, a, b, *how = inputs
    (ctx.rows, ctx.cols), ctx.block, ctx.request = _told(how)
    ctx.save_for_backward(crow, col, a, b)


def _sample_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    crow, col, a, b = ctx.saved_tensors
    parts = Parts(crow, col, ctx.rows, ctx.cols, ctx.block)
    d_a, d_b = sample_gradients(OPERATORS, parts, grad, (a, b), request=ctx.request)
    return (None, None, d_a, d_b, *(None,) * 8)


def _told(how: Any) -> tuple[tuple[int, int], int, Request]:
    rows, cols, block, transposed, layout, backend, alpha, training, *more = how
    activation, beta, second = more or (Activation.NONE, 0.0, Second.ADDED)
    request = Request(
        Layout(layout), bool(transposed), Activation(activation), backend, alpha, beta, training=bool(training),
        second=Second(second),
    )  # fmt: skip
    return (rows, cols), block, request


def _register() -> None:
    library = torch.library
    library.define(
        MULTIPLY,
        f"(Tensor values, Tensor crow, Tensor col, Tensor dense, Tensor? bias, Tensor? addend, {_HOW}, "
        "str activation, float beta, str second) -> Tensor",
    )
    library.define(SAMPLE, f"(Tensor crow, Tensor col, Tensor a, Tensor b, {_HOW}) -> Tensor")
    library.impl(MULTIPLY, "default", _multiply)
    library.impl(SAMPLE, "default", _sample)
    library.register_fake(MULTIPLY, _multiply_shape)
    library.register_fake(SAMPLE, _sample_shape)
    library.register_autograd(MULTIPLY, _multiply_backward, setup_context=_keep_for_multiply)
    library.register_autograd(SAMPLE, _sample_backward, setup_context=_keep_for_sample)


_register()  # an operator exists from the import of this file on: torch.library knows no other way

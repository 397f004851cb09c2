"""The products under torch.func (grad, vmap over the dense operand): registered operators do not take part in those."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.gradients import KEPT, Wanted, product_gradients, sample_gradients
from firstlight.kernels.launch import NOTHING, Extras, Request, multiply_now, sample_now
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.product import Activation


class TransformedMultiply(torch.autograd.Function):
    """multiply_now in the form that torch.func can look into."""

    @staticmethod
    def forward(
        values: Tensor, dense: Tensor, bias: Tensor | None, addend: Tensor | None, pattern: Pattern, request: Request
    ) -> Tensor:
        return multiply_now(pattern, values, dense, request, Extras(bias, addend))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, dense, _, _, ctx.pattern, ctx.request = inputs
        relu = ctx.request.activation is Activation.RELU
        ctx.save_for_backward(values, dense, output if relu else None, *ctx.pattern.watched)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        found = product_gradients(
            TRANSFORMED, ctx.pattern, grads[0], ctx.saved_tensors[:KEPT], request=ctx.request,
            wanted=Wanted(*ctx.needs_input_grad[:4]),
        )  # fmt: skip
        return (*found, None, None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        """A mapped dense operand is one with one more leading dimension."""
        values, dense, bias, addend, pattern, request = given
        if in_dims[0] is not None or in_dims[2] is not None:
            raise UnsupportedInput(
                "vmap maps the values or the bias; the dense operand and c are accepted. Use a loop."
            )
        dense = _leading(dense, in_dims[1], info.batch_size)
        addend = None if addend is None else _leading(addend, in_dims[3], info.batch_size)
        return TRANSFORMED.multiply(pattern, values, dense, request, Extras(bias, addend)), 0


def _leading(tensor: Tensor, place: int | None, size: int) -> Tensor:
    if place is None:
        return tensor.expand(size, *tensor.shape).contiguous()
    return tensor.movedim(place, 0).contiguous()


class TransformedSample(torch.autograd.Function):
    """sample_now in the form that torch.func can look into."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, pattern: Pattern, request: Request) -> Tensor:
        return sample_now(pattern, a, b, request)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, b, ctx.pattern, ctx.request = inputs
        ctx.save_for_backward(a, b, *ctx.pattern.watched)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (
            *sample_gradients(TRANSFORMED, ctx.pattern, grads[0], ctx.saved_tensors[:2], request=ctx.request),
            None,
            None,
        )


class TransformedEngine:
    """Products under torch.func."""

    @staticmethod
    def multiply(
        pattern: Pattern, values: Tensor, dense: Tensor, request: Request, extras: Extras = NOTHING, /
    ) -> Tensor:
        """One product, e.g. [4096, 512] x [512, 16]."""
        out: Tensor = TransformedMultiply.apply(  # type: ignore[no-untyped-call]
            values, dense, extras.bias, extras.addend, pattern, request
        )
        return out

    @staticmethod
    def sample(pattern: Pattern, a: Tensor, b: Tensor, request: Request, /) -> Tensor:
        """One sampled product, e.g. values [52, 64, 64]."""
        out: Tensor = TransformedSample.apply(a, b, pattern, request)  # type: ignore[no-untyped-call]
        return out


TRANSFORMED = TransformedEngine()

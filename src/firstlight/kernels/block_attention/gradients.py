"""Gradients of attention: one autograd function for eager mode and torch.func, and its own derivative.

Of the gradients of out and lse either may be missing. Derivatives of the gradients are computed in plain torch from
whole matrices of logits: right for any backend, with memory queries * keys for each head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention import reference
from firstlight.kernels.block_attention.again import Call, lse_dtype
from firstlight.kernels.block_attention.launch import attend_now, gradients_now
from firstlight.kernels.torch_private import functorch_level, in_dual_level

KEPT = 5  # tensors that a pass keeps for the next one; behind them those of the mask


class _Attention(torch.autograd.Function):
    """attend_now with gradients of q, k and v, from those of out and lse."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad_out, grad_lse = grads
        if grad_out is None and grad_lse is None:
            return None, None, None, None
        kept = ctx.saved_tensors[:KEPT]
        grad_out = torch.zeros_like(kept[3]) if grad_out is None else grad_out
        if _is_watched():
            dq, dk, dv = AttendBackward.apply(grad_out, grad_lse, *kept, ctx.call)  # type: ignore[no-untyped-call]
        else:
            dq, dk, dv = gradients_now(grad_out, grad_lse, kept, ctx.call)
        for_q, for_k, for_v, _ = ctx.needs_input_grad
        return dq if for_q else None, dk if for_k else None, dv if for_v else None, None


class Attend(_Attention):
    """In eager mode: torch looks up the signature at every call of a function that has a setup_context, in 30 us."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        made = attend_now(q, k, v, call)
        _keep(ctx, (q, k, v, call), made)
        return made


class AttendTransformed(_Attention):
    """Under torch.func, which wants a setup_context."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        return attend_now(q, k, v, call)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _keep(ctx, inputs, output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        return refuse_vmap()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.call = inputs
    ctx.save_for_backward(q, k, v, *output, *ctx.call.seen.watched)  # torch complains of a mask changed since
    ctx.set_materialize_grads(False)


def _is_watched() -> bool:
    """Whether something has to see that gradients are computed now: a derivative of them may be asked for."""
    return torch.is_grad_enabled() or is_compiling() or in_dual_level() or functorch_level() is not None


class AttendBackward(torch.autograd.Function):
    """gradients_now, itself differentiable once."""

    @staticmethod
    def forward(grad_out: Tensor, grad_lse: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        *kept, call = rest
        return gradients_now(grad_out, grad_lse, tuple(kept), call)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grad_out, grad_lse, q, k, v, _, _, ctx.call = inputs
        ctx.save_for_backward(grad_out, grad_lse, q, k, v, *ctx.call.seen.watched)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if functorch_level() is not None:
            raise UnsupportedInput(
                "torch.func asks attention for a derivative of its gradient; first derivatives are accepted there. "
                "Use torch.autograd.grad(..., create_graph=True), or scaled_dot_product_attention."
            )
        kept = ctx.saved_tensors[:KEPT]
        found = AttendSecond.apply(*grads, *kept, ctx.call)  # type: ignore[no-untyped-call]
        turn = iter(found)
        return (*(None if one is None else next(turn) for one in kept), None, None, None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        return refuse_vmap()


class AttendSecond(torch.autograd.Function):
    """What the gradients of dq, dk and dv mean for grad_out, grad_lse (where there is one), q, k and v.

    out and lse, which dq, dk and dv were computed from, are functions of q, k and v: their share is in these.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        *tensors, call = given
        precision = lse_dtype(tensors[0])
        grads = [one.to(precision) for one in tensors[:3]]
        saved: list[Tensor | None] = tensors[3:]
        fresh = [None if one is None else one.detach().to(precision).requires_grad_() for one in saved]
        grad_out, grad_lse, q, k, v = fresh
        assert grad_out is not None, "it is made before it is saved"
        assert q is not None
        assert k is not None
        assert v is not None
        with torch.autocast(q.device.type, enabled=False):
            made = reference.gradients(grad_out, q, k, v, grad_lse, call.seen.mask.to_bool(), call.scale)
            found = torch.autograd.grad(made, [one for one in fresh if one is not None], grads)
        wanted = [one for one in saved if one is not None]
        return tuple(one.to(given.dtype) for one, given in zip(found, wanted, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise UnsupportedInput(
            "a third derivative of attention was asked for; first and second ones are accepted. For higher ones use "
            "torch.nn.functional.scaled_dot_product_attention with torch.nn.attention.SDPBackend.MATH."
        )


def refuse_vmap() -> None:
    """Attention has its own batch and head dimensions."""
    raise UnsupportedInput(
        "attention was called under torch.func.vmap; it is accepted without. Make the mapped dimension part of the "
        "batch: q.flatten(0, 1) before the call and .unflatten after it."
    )


def recorded(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """attend_now, its gradients recorded."""
    kind = Attend if functorch_level() is None else AttendTransformed
    made: tuple[Tensor, Tensor] = kind.apply(q, k, v, call)  # type: ignore[no-untyped-call]
    return made

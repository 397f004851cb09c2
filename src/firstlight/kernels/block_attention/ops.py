"""Attention as registered operators on plain tensors: what torch.compile, export and fake tensors see.

torch.ops.firstlight.block_attention takes a mask as its tensors and sizes (kinds None: every key, less what causal
hides) and returns (out, lse); block_attention_backward gives its gradients. Eager calls do not come this way; their
results are the same, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.again import Call, lse_dtype, out_like
from firstlight.kernels.block_attention.launch import attend_now, call_for, gradients_now
from firstlight.kernels.block_attention.mask import BlockMask, mask_of
from firstlight.kernels.block_attention.seen import seen_by

ATTENTION = "firstlight::block_attention"
BACKWARD = "firstlight::block_attention_backward"
_HOW = (
    "Tensor? kinds, Tensor? which, Tensor? bits, SymInt q_len, SymInt k_len, int block, SymInt most, str causal, "
    "float scale, str backend"
)


class OperatorArguments(NamedTuple):
    """The arguments of the operators behind the tensors, in their order."""

    kinds: Tensor | None
    which: Tensor | None
    bits: Tensor | None
    q_len: int
    k_len: int
    block: int
    most: int
    causal: str
    scale: float
    backend: str


def operated(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, causal: str, *, scale: float, backend: str
) -> tuple[Tensor, Tensor]:
    """out and lse through the operator."""
    if mask is None:
        how = OperatorArguments(None, None, None, q.shape[2], k.shape[2], 0, 0, causal, scale, backend)
    else:
        how = OperatorArguments(
            mask.kinds, mask.which, mask.bits, mask.q_len, mask.k_len, mask.block, mask.most, causal, scale, backend
        )
    made: tuple[Tensor, Tensor] = torch.ops.firstlight.block_attention(q, k, v, *how)
    return made


def _attend(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return attend_now(q, k, v, _call(q, k, OperatorArguments(*rest)))


def _attend_shape(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return out_like(q), q.new_empty(q.shape[:3], dtype=lse_dtype(q))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, kinds, which, bits, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, kinds, which, bits)
    ctx.set_materialize_grads(False)


def _attend_backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    none = (None,) * len(OperatorArguments._fields)
    if grad_out is None and grad_lse is None:
        return (None, None, None, *none)
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    found = torch.ops.firstlight.block_attention_backward(grad_out, grad_lse, q, k, v, out, lse, *tensors, *ctx.rest)
    return (*(one if asked else None for one, asked in zip(found, ctx.needs_input_grad, strict=False)), *none)


def _gradients(grad_out: Tensor, grad_lse: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, out, lse, *how = rest
    dq, dk, dv = gradients_now(grad_out, grad_lse, (q, k, v, out, lse), _call(q, k, OperatorArguments(*how)))
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


def _gradients_shape(grad_out: Tensor, grad_lse: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = rest[:3]
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _refuse_second(ctx: Any, *grads: Any) -> Any:
    raise UnsupportedInput(
        "a derivative of the gradient of attention was asked of compiled code; first derivatives are accepted there. "
        "Call attention outside of torch.compile, with torch.autograd.grad(..., create_graph=True)."
    )


def _call(q: Tensor, k: Tensor, how: OperatorArguments) -> Call:
    mask = None
    if how.kinds is not None:
        mask = mask_of(how.kinds, how.which, how.bits, how.q_len, how.k_len, how.block, how.most)
    return call_for(q, seen_by(q, k, mask, how.causal), how.scale, how.backend, kv_heads=k.shape[1])


def _register() -> None:
    library = torch.library
    library.define(ATTENTION, f"(Tensor q, Tensor k, Tensor v, {_HOW}) -> (Tensor, Tensor)")
    library.define(
        BACKWARD,
        f"(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_HOW}) "
        "-> (Tensor, Tensor, Tensor)",
    )
    library.impl(ATTENTION, "default", _attend)
    library.impl(BACKWARD, "default", _gradients)
    library.register_fake(ATTENTION, _attend_shape)
    library.register_fake(BACKWARD, _gradients_shape)
    library.register_autograd(ATTENTION, _attend_backward, setup_context=_keep)
    library.register_autograd(BACKWARD, _refuse_second)


_register()  # an operator exists from the import of this file on: torch.library knows no other way

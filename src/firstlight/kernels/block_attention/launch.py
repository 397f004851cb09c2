"""One attention call, now: inputs made ready, outputs allocated, the chosen backend called; no gradient is recorded."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from firstlight.kernels.block_attention import choose, dense
from firstlight.kernels.block_attention.again import Call, is_elsewhere, lse_dtype, out_like
from firstlight.kernels.block_attention.checks import ready, ready_gradient
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.block_attention.seen import Attended
from firstlight.kernels.memo import being_captured
from firstlight.kernels.torch_private import FakeTensor

_HERE = nullcontext()


def call_for(q: Tensor, seen: Attended, scale: float, backend: str, *, kv_heads: int, recorded: int = 0) -> Call:
    """The call with its backends chosen; recorded: 1 where gradients will be asked for."""
    if backend != "auto" and q.is_cuda and not isinstance(q, FakeTensor):
        return Call(seen, scale, *choose.named(backend, q.get_device(), q.dtype, q.shape[3], seen.block))
    question = choose.question_of(q, seen, scale, kv_heads=kv_heads, recorded=recorded)
    found = choose.answered(backend, question)
    is_settled = found.is_settled or not seen.is_new() or being_captured(q)
    taken = (found.settled if is_settled else found.at_first).backend
    return Call(seen, scale, taken, choose.backward_of(taken, question, asked=backend), is_settled=is_settled)


def attend_now(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """out, laid out in memory as q is, and lse [batch, heads, queries]."""
    known = call.known
    if known is not None and known.readable and (made := known.attend(q, k, v, call.seen.mask)) is not None:
        return made
    if not q.numel():
        return out_like(q), q.new_full(q.shape[:3], -torch.inf, dtype=lse_dtype(q))
    if call.forward == "dense":
        return _dense_now(q, k, v, call)
    out, lse = out_like(q), q.new_empty(q.shape[:3], dtype=lse_dtype(q))
    backend = choose.module(call.forward)
    q, k, v = ready(q, "q"), ready(k, "k"), ready(v, "v")
    with _on(q):
        backend.forward(q, k, v, call.seen.mask, scale=call.scale, out=out, lse=lse)
    return out, lse


def _dense_now(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """Without a mask where torch knows its shape by name, and without a copy where torch lays the output out alike."""
    out, lse = dense.attended_with_lse(q, k, v, call.seen, call.scale)
    if not (q.is_contiguous() and out.is_contiguous()):
        out = out_like(q).copy_(out)
    return out, lse


def gradients_now(
    grad_out: Tensor, grad_lse: Tensor | None, kept: tuple[Tensor, ...], call: Call
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv; kept are q, k, v, out and lse of the forward pass."""
    q, k, v, out, lse = kept
    if not q.numel():
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    backend = choose.module(call.backward)
    grad_out = ready_gradient(grad_out)
    grad_lse = None if grad_lse is None else grad_lse.to(lse.dtype).contiguous()
    q, k, v = ready(q, "q"), ready(k, "k"), ready(v, "v")
    with _on(q):
        found: tuple[Tensor, Tensor, Tensor] = backend.backward(
            Upstream(grad_out, grad_lse), Forward(q, k, v, out, lse), call.seen.mask, scale=call.scale
        )
    return found


def _on(q: Tensor) -> AbstractContextManager[None] | torch.cuda.device:
    """A kernel is launched on the current device."""
    device = q.get_device()
    return torch.cuda.device(device) if is_elsewhere(device) else _HERE

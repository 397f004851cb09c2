"""One attention call, now: inputs made ready, outputs allocated, the chosen backend called; no gradient is recorded."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention import choose, dense
from firstlight.kernels.block_attention.checks import ready, ready_gradient
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.block_attention.seen import Seen


class Call(NamedTuple):
    """What is asked of attention besides its tensors, and who computes it."""

    seen: Seen
    scale: float
    forward: str  # backend, e.g. dense
    backward: str  # sm90, triton or reference


def call_for(q: Tensor, seen: Seen, scale: float, backend: str) -> Call:
    """The call with its backends chosen."""
    question = choose.question_of(q, seen, scale)
    taken = choose.answer(backend, question).backend
    return Call(seen, scale, taken, choose.backward_of(taken, question, asked=backend))


def attend_now(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """out, laid out in memory as q is, and lse [batch, heads, queries]."""
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


def out_like(q: Tensor) -> Tensor:
    """Room for the output, laid out as q is where the head dimension is contiguous there, else contiguous."""
    made = torch.empty_like(q)
    return made if made.stride(3) == 1 else q.new_empty(q.shape)


def lse_dtype(q: Tensor) -> torch.dtype:
    """float32, and float64 for float64: what the sums are kept in."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _on(q: Tensor) -> torch.cuda.device:
    """A kernel is launched on the current device."""
    return torch.cuda.device(q.get_device())  # a negative number, for the processor, changes nothing

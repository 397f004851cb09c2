"""Who attends over sequences of different lengths: ours, ours and torch's over a padded batch, FlashAttention-4."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.ragged.cases import Case, Setting, padded, unpadded
from benchmarks.rivals.cases import HEAD_DIM, Answer
from benchmarks.rivals.runner import Gradients, Runner
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from firstlight.kernels import attention, ragged_attention

Three = tuple[Tensor, Tensor, Tensor]
Turn = Callable[[Tensor], Tensor]


def _as_it_is(given: Tensor) -> Tensor:
    return given


def ours(case: Case, setting: Setting, *, backend: str = "sm90", new: bool = False) -> Runner:
    """ragged_attention; new: with offsets of its own in every call, for which the mask is made anew each time."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        offsets = setting.offsets.clone() if new else setting.offsets
        return ragged_attention(q, k, v, offsets, causal=True, backend=backend)

    return _runner(case, (setting.q, setting.k, setting.v), setting.grad, attend, _as_it_is)


def ours_padded(case: Case, setting: Setting, *, backend: str = "sm90") -> Runner:
    """attention over a batch padded to its longest sequence, which is padded already when the clock starts."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v, causal=True, backend=backend)
        return out

    return _over_padding(case, setting, attend)


def torch_padded(case: Case, setting: Setting, *, kernel: SDPBackend = SDPBackend.CUDNN_ATTENTION) -> Runner:
    """torch's attention over the same padded batch."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(kernel):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=case.group > 1)

    return _over_padding(case, setting, attend)


def flash4_varlen(case: Case, setting: Setting, *, deterministic: bool = False) -> Runner:
    """FlashAttention-4 with cu_seqlens, its inner functions without autograd."""
    forward, backward = flash4_calls(case, setting, deterministic=deterministic)
    if not case.backward:
        return Runner(forward, lambda: Answer(_queries(case, forward()[0]), None))
    out, lse = forward()[:2]

    def gradients() -> Gradients:
        dq, dk, dv = backward(out, lse)[:3]
        return dq, dk, dv

    return _of_gradients(case, gradients, out, _as_it_is)


def flash4_calls(
    case: Case, setting: Setting, *, deterministic: bool = False
) -> tuple[Callable[[], Any], Callable[[Tensor, Tensor], Any]]:
    """Its forward pass, and its backward pass of an output and its sums."""
    from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

    longest = max(case.lengths)
    asked = {
        "cu_seqlens_q": setting.offsets, "cu_seqlens_k": setting.offsets, "max_seqlen_q": longest,
        "max_seqlen_k": longest, "causal": True, "softmax_scale": HEAD_DIM**-0.5,
    }  # fmt: skip
    q, k, v, grad = setting[:4]

    def backward(out: Tensor, lse: Tensor) -> Any:
        return _flash_attn_bwd(q, k, v, out, grad, lse, deterministic=deterministic, **asked)

    return partial(_flash_attn_fwd, q, k, v, return_lse=True, **asked), backward


def _over_padding(case: Case, setting: Setting, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Runner:
    q, k, v, grad = (padded(case, each) for each in setting[:4])
    return _runner(case, (q, k, v), grad, attend, partial(unpadded, case))


def _runner(
    case: Case, given: Three, grad: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], turn: Turn
) -> Runner:
    """The forward pass, or the backward pass of one that was made before; turn: to [tokens, heads, head dim]."""
    if not case.backward:
        return Runner(lambda: attend(*given), lambda: Answer(_queries(case, turn(attend(*given))), None))
    q, k, v = (each.detach().requires_grad_() for each in given)
    out = attend(q, k, v)

    def gradients() -> Gradients:
        dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
        return dq, dk, dv

    return _of_gradients(case, gradients, out, turn)


def _of_gradients(case: Case, gradients: Callable[[], Gradients], out: Tensor, turn: Turn) -> Runner:
    def answer() -> Answer:
        dq, dk, dv = (turn(each) for each in gradients())
        return Answer(_queries(case, turn(out)), (_queries(case, dq), _keys(dk), _keys(dv)))

    return Runner(gradients, answer)


def _queries(case: Case, tokens: Tensor) -> Tensor:
    """The query heads that are held against float64."""
    return tokens.detach()[:, : case.group].double()


def _keys(tokens: Tensor) -> Tensor:
    return tokens.detach()[:, :1].double()

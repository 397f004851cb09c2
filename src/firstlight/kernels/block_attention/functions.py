"""attention over the blocks of a mask, and why which backend was taken.

Three ways in, one result. In eager mode the backend is called directly; with gradients through an autograd function;
under torch.compile and fake tensors through the operators of ops.py. Under torch.autocast q, k and v are cast to the
autocast dtype first, as torch does for its own attention. An eager call like an earlier one takes what was found
then (again.py).
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.kernels.block_attention import dense
from firstlight.kernels.block_attention.again import again, remember
from firstlight.kernels.block_attention.checks import (
    alignment_of,
    refuse_dropout,
    require_inputs,
    require_mask,
    scale_for,
)
from firstlight.kernels.block_attention.choose import explained, question_of
from firstlight.kernels.block_attention.gradients import recorded
from firstlight.kernels.block_attention.launch import attend_now, call_for
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.ops import operated
from firstlight.kernels.block_attention.seen import seen_by
from firstlight.kernels.choice.answer import Choice
from firstlight.kernels.eager import cast_to, is_ordinary, is_traced, under_autocast
from firstlight.kernels.jagged import is_nested
from firstlight.kernels.torch_private import autocast_anywhere, functorch_level


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = ..., *, causal: bool | str = ...,
    scale: float | None = ..., return_lse: Literal[False] = ..., dropout_p: float = ..., backend: str = ...,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = ..., *, causal: bool | str = ...,
    scale: float | None = ..., return_lse: Literal[True], dropout_p: float = ..., backend: str = ...,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = ..., *, causal: bool | str = ...,
    scale: float | None = ..., return_lse: bool, dropout_p: float = ..., backend: str = ...,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None = None, *, causal: bool | str = False,
    scale: float | None = None, return_lse: bool = False, dropout_p: float = 0.0, backend: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(scale * q k') v over the keys that the mask lets each query see; out [B, H, Sq, D].

    q [B, H, Sq, D]; k, v [B, Hkv, Sk, D] with H a multiple of Hkv: query head h reads key head h // (H / Hkv) under its
    own part of the mask. causal: True or 'upper_left' (query i sees keys 0 to i, torch's is_causal), 'lower_right' (the
    last query sees the last key); what the mask hides stays hidden. return_lse: also the natural log of the sum of
    exponentials, float32 [B, H, Sq] (float64 of float64), which merge_attention takes. A query without keys gets 0 and
    -inf. Keys and values must be finite where they are hidden too: torch's kernels, which auto may take, read them.
    Jagged nested tensors [B, H, lengths, D], where causal counts within each sequence, give jagged ones; a mask is then
    one of all tokens. Sequences of different lengths in one plain tensor: ragged_attention.
    """
    refuse_dropout(dropout_p)
    ordinary = not is_compiling() and is_ordinary(q, k, v, None)
    if (q.is_nested or k.is_nested or v.is_nested) if ordinary else (is_nested(q) or is_nested(k) or is_nested(v)):
        from firstlight.kernels.ragged import ragged_attention

        return ragged_attention(q, k, v, mask=mask, causal=causal, scale=scale, return_lse=return_lse, backend=backend)
    wanted = ordinary and torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    asked = (alignment_of(causal), scale, backend, wanted)
    call = again(q, k, v, mask, asked) if ordinary else None
    if call is None:
        q, k, v = _for_autocast(q, k, v)
        require_inputs(q, k, v)
        wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        if mask is not None:
            require_mask(mask, q, k)
        factor = scale_for(scale, q)
        if _is_one_operator(q, k, v):
            out, lse = operated(q, k, v, mask, asked[0], scale=factor, backend=backend)
            return (out, lse) if return_lse else out
        seen = seen_by(q, k, mask, asked[0])
        call = call_for(q, seen, factor, backend, kv_heads=k.shape[1], recorded=int(wanted))
        if ordinary:
            call = remember(q, k, v, mask, asked, call)
    transformed = not ordinary and functorch_level() is not None
    if call.forward == "dense" and not return_lse and not transformed and q.numel():  # torch's kernels want a query
        return dense.attended(q, k, v, call.seen, call.scale)  # torch records its own gradients
    out, lse = recorded(q, k, v, call) if wanted or transformed else attend_now(q, k, v, call)
    return (out, lse) if return_lse else out


def explain_attention(
    q: Tensor, k: Tensor, mask: BlockMask | None = None, *, v: Tensor | None = None, causal: bool | str = False,
    scale: float | None = None, backend: str = "auto",
) -> Choice:  # fmt: skip
    """Which backend attention takes for these tensors, and why: Choice('dense', 'torch knows causal attention ...').

    Where gradients will be recorded, of q, k or v, both passes count: give v where it alone requires one.
    """
    alignment = alignment_of(causal)
    v = k if v is None else v
    if is_nested(q) or is_nested(k) or is_nested(v):
        from firstlight.kernels.ragged import as_one_batch

        q, k, v, mask = as_one_batch(q, k, v, mask, causal=causal)
        alignment = ""
    q, k, v = _for_autocast(q, k, v)
    require_inputs(q, k, v)
    if mask is not None:
        require_mask(mask, q, k)
    factor = scale_for(scale, q)
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    seen = seen_by(q, k, mask, alignment)
    return explained(backend, question_of(q, seen, factor, kv_heads=k.shape[1], recorded=int(wanted)))


def _is_one_operator(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether something besides eager execution and torch.func has to see the call as one operator."""
    if is_compiling():
        return True
    traced = is_traced(q, k, v)  # which refuses tangents too
    return functorch_level() is None and (traced or q.is_meta)


def _for_autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As they are, or in the autocast dtype: there float32 queries, turned by positions, meet bfloat16 values."""
    tensors = isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)
    return (_cast(q), _cast(k), _cast(v)) if tensors and _under_autocast(q) else (q, k, v)


def _under_autocast(q: Tensor) -> bool:
    if not is_compiling() and not autocast_anywhere():  # the quick question; dynamo knows only the other one
        return False
    return not q.is_meta and under_autocast(q)


def _cast(tensor: Tensor) -> Tensor:
    return cast_to(torch.get_autocast_dtype(tensor.device.type), tensor)

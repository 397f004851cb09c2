"""Sequences of different lengths in one call, without padding: tokens one behind the other, or jagged nested tensors.

Attention over them is attention over all their tokens under a mask in which nobody sees another's keys
(block_attention/packed.py): the same kernels, and blocks that no sequence needs cost nothing. Products look at one
token at a time, so they take a jagged tensor's tokens as they lie.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.checks import alignment_of
from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.checks import called, require_same_device, require_tensor
from firstlight.kernels.jagged import is_nested, jagged_of
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import TensorMemo, being_captured


class _Kept(NamedTuple):
    """A mask that was made here, and what a reader has to use first."""

    mask: BlockMask
    held: Held | None


_MASKS: TensorMemo[_Kept] = TensorMemo()


@overload
def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor | None = ..., offsets_k: Tensor | None = ..., *,
    mask: BlockMask | None = ..., causal: bool | str = ..., left: int | None = ..., scale: float | None = ...,
    return_lse: Literal[False] = ..., backend: str = ...,
) -> Tensor: ...  # fmt: skip
@overload
def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor | None = ..., offsets_k: Tensor | None = ..., *,
    mask: BlockMask | None = ..., causal: bool | str = ..., left: int | None = ..., scale: float | None = ...,
    return_lse: Literal[True], backend: str = ...,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor | None = ..., offsets_k: Tensor | None = ..., *,
    mask: BlockMask | None = ..., causal: bool | str = ..., left: int | None = ..., scale: float | None = ...,
    return_lse: bool, backend: str = ...,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets_q: Tensor | None = None, offsets_k: Tensor | None = None, *,
    mask: BlockMask | None = None, causal: bool | str = False, left: int | None = None, scale: float | None = None,
    return_lse: bool = False, backend: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """attention within each sequence: q [tokens, H, D], k and v [tokens, Hkv, D], sequences one behind the other.

    offsets: where each begins and the last one ends (FlashAttention's cu_seqlens), whole numbers on q's device, e.g.
    tensor([0, 300, 1000]); offsets_k where keys are not as many. causal (True or 'upper_left', 'lower_right') and left
    (no key further back) count within each sequence. The mask is kept while the offsets live; give mask= one of
    BlockMask.packed to hide anything else, and in compiled code and CUDA graphs. q, k and v may be jagged nested
    tensors [B, H, length, D] instead, which bring their offsets. Returns out, with return_lse also lse [H, tokens].
    """
    if is_nested(q) or is_nested(k) or is_nested(v):
        return _of_jagged(
            q, k, v, (offsets_q, offsets_k), mask=mask, causal=causal, left=left, scale=scale, return_lse=return_lse,
            backend=backend,
        )  # fmt: skip
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor(tensor, name)
        if tensor.dim() != 3:
            raise UnsupportedInput(
                f"{name} has shape {list(tensor.shape)}; [tokens, heads, head dim] is accepted, or a jagged nested "
                f"tensor. For a batch of one length call attention."
            )
    if mask is None:
        mask = _mask(q, k, (offsets_q, offsets_k), causal=causal, left=left)
    elif offsets_q is not None or offsets_k is not None or causal is not False or left is not None:
        raise UnsupportedInput(
            "mask is given, and offsets, causal= or left= too; one of them is accepted. Give them to BlockMask.packed."
        )
    q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
    if not return_lse:
        return attention(q, k, v, mask, scale=scale, backend=backend)[0].transpose(0, 1)
    out, lse = attention(q, k, v, mask, scale=scale, return_lse=True, backend=backend)
    return out[0].transpose(0, 1), lse[0]


def _of_jagged(
    q: Tensor, k: Tensor, v: Tensor, offsets: tuple[Tensor | None, Tensor | None], *, mask: BlockMask | None,
    return_lse: bool, **asked: Any,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not is_nested(tensor):
            raise UnsupportedInput(
                f"{name} is {called(tensor)} and others are nested; pass all of them jagged, or none."
            )
    if offsets != (None, None):
        raise UnsupportedInput("offsets are given and q, k and v are jagged, which have their own. Leave offsets out.")
    queries, keys, values = (jagged_of(each, name) for each, name in ((q, "q"), (k, "k"), (v, "v")))
    for name, each, tensor in (("q", queries, q), ("k", keys, k), ("v", values, v)):
        if each.dimension != 2 or tensor.dim() != 4:
            raise UnsupportedInput(
                f"{name} is jagged with {tensor.dim()} dimensions, lengths in dimension {each.dimension}; "
                f"[batch, heads, lengths, head dim] is accepted. Of [batch, lengths, heads, head dim] call "
                f".transpose(1, 2)."
            )
    if values.offsets is not keys.offsets and not torch.equal(values.offsets, keys.offsets):
        raise UnsupportedInput("k and v have other lengths; the same are accepted. Make both with one offsets tensor.")
    if mask is None:
        asked["offsets_q"] = queries.offsets
        asked["offsets_k"] = None if keys.offsets is queries.offsets else keys.offsets
    tokens = [each.tokens for each in (queries, keys, values)]
    made = ragged_attention(tokens[0], tokens[1], tokens[2], mask=mask, return_lse=return_lse, **asked)
    return queries.like(made) if isinstance(made, Tensor) else (queries.like(made[0]), queries.like(made[1].mT))


def _mask(
    q: Tensor, k: Tensor, offsets: tuple[Tensor | None, Tensor | None], *, causal: bool | str, left: int | None
) -> BlockMask:
    """The mask of these offsets, made once; the host waits for it then."""
    offsets_q, offsets_k = offsets
    if offsets_q is None:
        raise UnsupportedInput(
            "neither offsets_q nor mask is given; one is accepted. Pass where each sequence begins and the last one "
            "ends, e.g. tensor([0, 300, 1000])."
        )
    if is_compiling():
        raise UnsupportedInput(
            "offsets are given under torch.compile, which cannot read them. Pass mask=, made outside."
        )
    for name, given in (("offsets_q", offsets_q), ("offsets_k", offsets_k)):
        if given is not None:
            require_tensor(given, name)
            require_same_device(q, "q", given, name)
    tag = (alignment_of(causal), left)
    other = offsets_q if offsets_k is None else offsets_k
    found = _MASKS.get(offsets_q, other, tag)
    if found is None:
        if being_captured(offsets_q):
            raise UnsupportedInput(
                "offsets are given while a CUDA graph is captured, which cannot read them. Call once before the "
                "capture, or pass mask=BlockMask.packed(...), made before it."
            )
        with torch.inference_mode(mode=False):
            made = BlockMask.packed(offsets_q, offsets_k, causal=causal, left=left)
        found = _Kept(made, held_after(*made.parts))
        _MASKS.put(offsets_q, other, found, tag)
    else:
        use(found.held)
    for name, tensor, length in (("q", q, found.mask.q_len), ("k", k, found.mask.k_len)):
        if tensor.shape[0] != length:
            raise UnsupportedInput(
                f"{name} has {tensor.shape[0]} tokens and its offsets end at {length}; the same number is accepted."
            )
    return found.mask

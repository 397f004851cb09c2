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
from torch.nn.functional import pad

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import ordinary
from firstlight.kernels.block_attention.checks import alignment_of
from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.packed import require_offsets
from firstlight.kernels.checks import called, require_same_device, require_tensor
from firstlight.kernels.jagged import Jagged, is_nested, jagged_of, same_lengths
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import TensorMemo, being_captured, keepable
from firstlight.kernels.torch_private import without_functorch


class _Kept(NamedTuple):
    """A mask that was made here, what a reader has to use first, and the offsets as they were, where they are compared.

    Compared are those that the host reads without waiting, as numpy and other processes change them uncounted, and
    those of inference mode, which count no changes: the host waits for those, but for nothing to be made anew.
    """

    mask: BlockMask
    held: Held | None
    were: tuple[Tensor, Tensor] | None

    def is_of(self, offsets_q: Tensor, offsets_k: Tensor) -> bool:
        """Whether the offsets are still what the mask was made of; True where changes are counted."""
        if self.were is None:
            return True
        if being_captured(offsets_q):
            return False  # nothing can be read there
        one, other = self.were
        return _same(one, offsets_q) and (offsets_q is offsets_k or _same(other, offsets_k))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


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
    tensors [B, H, length, D] instead, which bring their offsets. Returns out, with return_lse also lse [H, tokens]; of
    jagged ones both are jagged. Sequences may be empty, and all of them.
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
        if 0 in (q.shape[0], k.shape[0]):
            return _beside_a_token(
                (q, k, v), _required(q, k, (offsets_q, offsets_k)), causal=causal, left=left, scale=scale,
                return_lse=return_lse, backend=backend,
            )  # fmt: skip
        mask = _mask(q, k, (offsets_q, offsets_k), causal=causal, left=left)
    else:
        _require_mask(mask, q, k)
        if offsets_q is not None or offsets_k is not None or causal is not False or left is not None:
            raise UnsupportedInput(
                "mask is given, and offsets, causal= or left= too; one of them is accepted. Give them to "
                "BlockMask.packed."
            )
    q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
    if not return_lse:
        return attention(q, k, v, mask, scale=scale, backend=backend)[0].transpose(0, 1)
    out, lse = attention(q, k, v, mask, scale=scale, return_lse=True, backend=backend)
    return out[0].transpose(0, 1), lse[0]


def _beside_a_token(
    given: tuple[Tensor, Tensor, Tensor], offsets: tuple[Tensor, Tensor], **asked: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """The same with one token more, alone in a sequence of its own: a mask needs one, and it changes no other."""
    q, k, v = (pad(each, (0, 0, 0, 0, 0, 1)) for each in given)
    longer = [torch.cat([each, each[-1:] + 1]) for each in offsets]
    made = ragged_attention(q, k, v, longer[0], longer[1], **asked)
    return made[:-1] if isinstance(made, Tensor) else (made[0][:-1], made[1][:, :-1])


def _of_jagged(
    q: Tensor, k: Tensor, v: Tensor, offsets: tuple[Tensor | None, Tensor | None], *, mask: BlockMask | None,
    return_lse: bool, **asked: Any,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    if offsets != (None, None):
        raise UnsupportedInput("offsets are given and q, k and v are jagged, which have their own. Leave offsets out.")
    queries, keys, values = _jagged(q, k, v)
    if mask is None:
        asked["offsets_q"], asked["offsets_k"] = queries.offsets, keys.offsets
    tokens = [each.tokens for each in (queries, keys, values)]
    made = ragged_attention(tokens[0], tokens[1], tokens[2], mask=mask, return_lse=return_lse, **asked)
    return queries.like(made) if isinstance(made, Tensor) else (queries.like(made[0]), queries.like(made[1].mT))


def as_one_batch(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, *, causal: bool | str
) -> tuple[Tensor, Tensor, Tensor, BlockMask]:
    """What attention over jagged q, k and v asks of a kernel: all tokens [1, heads, tokens, head dim], and the mask."""
    queries, keys, values = _jagged(q, k, v)
    if mask is None:
        mask = _mask(queries.tokens, keys.tokens, (queries.offsets, keys.offsets), causal=causal, left=None)
    else:
        _require_mask(mask, queries.tokens, keys.tokens)
    whole = [each.tokens.transpose(0, 1)[None] for each in (queries, keys, values)]
    return whole[0], whole[1], whole[2], mask


def _jagged(q: Tensor, k: Tensor, v: Tensor) -> tuple[Jagged, Jagged, Jagged]:
    given = (("q", q), ("k", k), ("v", v))
    for name, tensor in given:
        if not is_nested(tensor):
            raise UnsupportedInput(
                f"{name} is {called(tensor)} and others are nested; pass all of them jagged, or none."
            )
    queries, keys, values = (jagged_of(tensor, name) for name, tensor in given)
    for (name, tensor), each in zip(given, (queries, keys, values), strict=True):
        if each.dimension != 2 or tensor.dim() != 4:
            raise UnsupportedInput(
                f"{name} is jagged with {tensor.dim()} dimensions, lengths in dimension {each.dimension}; "
                f"[batch, heads, lengths, head dim] is accepted. Of [batch, lengths, heads, head dim] call "
                f".transpose(1, 2)."
            )
    if not same_lengths(values.offsets, keys.offsets):
        raise UnsupportedInput("k and v have other lengths; the same are accepted. Make both with one offsets tensor.")
    return queries, keys, values


def _require_mask(mask: object, q: Tensor, k: Tensor) -> None:
    """Raises where attention's own words would not do: it knows of no sequences."""
    if isinstance(mask, BlockMask) and (mask.q_len, mask.k_len) != (q.shape[0], k.shape[0]):
        raise UnsupportedInput(
            f"mask is for {mask.q_len} queries and {mask.k_len} keys, and the sequences have {q.shape[0]} and "
            f"{k.shape[0]} in all; the same numbers are accepted. Make it with BlockMask.packed(offsets_q, offsets_k): "
            f"of any other mask, sequences may see each other's keys."
        )


def _required(
    q: Tensor, k: Tensor, offsets: tuple[Tensor | None, Tensor | None]
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The offsets of queries and of keys; raises unless they are ones for so many tokens. The host waits."""
    offsets_q, offsets_k = _given(q, offsets)
    for name, tensor, each in (("q", q, offsets_q), ("k", k, offsets_k)):
        _require_end(name, tensor, require_offsets(each, f"offsets_{name}")[-1])
    return offsets_q, offsets_k


def _require_end(name: str, tensor: Tensor, end: int) -> None:
    if tensor.shape[0] != end:
        raise UnsupportedInput(
            f"{name} has {tensor.shape[0]} tokens and its offsets end at {end}; the same number is accepted."
        )


def _given(q: Tensor, offsets: tuple[Tensor | None, Tensor | None]) -> tuple[Tensor, Tensor]:
    """The offsets of queries and of keys, which are the same where the latter are not given."""
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
    return offsets_q, offsets_q if offsets_k is None else offsets_k


def _mask(
    q: Tensor, k: Tensor, offsets: tuple[Tensor | None, Tensor | None], *, causal: bool | str, left: int | None
) -> BlockMask:
    """The mask of these offsets, made once; the host waits for it then."""
    offsets_q, offsets_k = _given(q, offsets)
    tag = (alignment_of(causal), left)
    found = _MASKS.get(offsets_q, offsets_k, tag)
    if found is not None:
        use(found.held)
    if found is None or not found.is_of(offsets_q, offsets_k):
        found = _made(offsets_q, offsets_k, causal=causal, left=left)
        if keepable(offsets_q, found.mask.kinds):
            put = _MASKS.put if found.were is None else _MASKS.put_compared
            put(offsets_q, offsets_k, found, tag)
    _require_end("q", q, found.mask.q_len)
    _require_end("k", k, found.mask.k_len)
    return found.mask


def _made(offsets_q: Tensor, offsets_k: Tensor, *, causal: bool | str, left: int | None) -> _Kept:
    compared = not offsets_q.is_cuda or offsets_q.is_inference() or offsets_k.is_inference()
    other = None if offsets_k is offsets_q else offsets_k
    with without_functorch(), ordinary():
        made = BlockMask.packed(offsets_q, other, causal=causal, left=left)
        were = (offsets_q.clone(), offsets_k.clone()) if compared else None
        return _Kept(made, held_after(*made.parts, *(were or ())), were)

"""A call of attention that was made before, again: what does not change between calls is kept, what can is looked at.

The first call of a kind goes the long way (functions.py: checks, what is seen, the choice of a backend) and leaves what
was found with its mask. A later call with tensors of the same shapes, layouts, types and device finds it: all that a
check or a choice depends on is part of the key, or is dropped with `mask.derived` when the mask is changed in place.
This file decides nothing and raises nothing; what it does not know goes the long way again.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention import choose
from firstlight.kernels.block_attention.checks import is_readable
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import Attended, seen_by
from firstlight.kernels.choice import answer as answers
from firstlight.kernels.prepared import ALIGNED, MOST_CALLS, empty_on
from firstlight.kernels.torch_private import Empty, current_device

Asked = tuple[str, float | None, str, bool]  # causal, scale and backend as the caller gave them; gradients wanted
_CALLS = "attention calls"
_UNMASKED: dict[Any, Known] = {}  # calls without a mask


class Call(NamedTuple):
    """What is asked of attention besides its tensors, and who computes it."""

    seen: Attended
    scale: float
    forward: str  # backend, e.g. dense
    backward: str  # sm90, triton or reference
    known: Known | None = None  # from an earlier call like this one
    is_settled: bool = True  # later calls take the same backends


class Room(NamedTuple):
    """Sizes, strides and type of a tensor to be made."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Known(NamedTuple):
    """What is known of calls with such tensors; no tensor and no mask, which holds this."""

    scale: float
    forward: str
    backward: str
    shape: str  # of Seen
    masked: bool  # what is seen is the caller's mask itself; else a plain shape or
    combined: bool  # the mask and causal
    readable: bool  # our kernels can read q, k and v as they lie, if they start at multiples of 16 bytes
    device: int  # CUDA ordinal, -1 for the processor
    empty: Empty
    out: Room
    lse: Room

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> tuple[Tensor, Tensor] | None:
        """out and lse; None: the caller goes the long way, as something must be copied or another device is current."""
        assert self.readable, self
        if (q.data_ptr() | k.data_ptr() | v.data_ptr()) & ALIGNED or is_elsewhere(self.device):
            return None
        out, lse = self.empty(*self.out), self.empty(*self.lse)
        choose.module(self.forward).forward(q, k, v, mask, scale=self.scale, out=out, lse=lse)
        return out, lse


def is_elsewhere(device: int) -> bool:
    """Whether another CUDA device than this one is current; never for the processor, -1."""
    return device >= 0 and current_device() != device


def again(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, asked: Asked) -> Call | None:
    """The call, if one like it was made before; for plain eager execution on plain tensors alone."""
    if not _is_kept(mask, asked):
        return None
    known = _calls_of(mask).get(_key(q, k, v, asked))
    if known is None:
        return None
    if known.combined:
        seen = seen_by(q, k, mask, asked[0])
    else:
        seen = Attended(known.shape, q.shape[2], k.shape[2], q.device, mask if known.masked else None)
    return Call(seen, known.scale, known.forward, known.backward, known)


def remember(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, asked: Asked, call: Call) -> Call:
    """Keeps what the long way found for tensors that passed its checks, and takes the short way with it at once."""
    interpreted = call.forward == "triton" and q.get_device() < 0  # an environment variable allows it
    if interpreted or not call.is_settled or not _is_kept(mask, asked):
        return call
    kept = _calls_of(mask)
    if len(kept) >= MOST_CALLS:
        kept.clear()
    masked = mask is not None and call.seen.sees(mask)
    batch, heads, queries, _ = q.shape
    readable = call.forward != "dense" and q.numel() > 0 and is_readable(q) and is_readable(k) and is_readable(v)
    lse = Room((batch, heads, queries), (heads * queries, queries, 1), lse_dtype(q))
    known = kept[_key(q, k, v, asked)] = Known(
        call.scale, call.forward, call.backward, call.seen.shape, masked, not masked and not call.seen.is_plain,
        readable, q.get_device(), empty_on(q.device), _room_for_out(q), lse,
    )  # fmt: skip
    return Call(call.seen, call.scale, call.forward, call.backward, known)


def out_like(q: Tensor) -> Tensor:
    """Room for the output, laid out as q is where the head dimension is contiguous there, else contiguous."""
    made = torch.empty_like(q)
    return made if made.stride(3) == 1 else q.new_empty(q.shape)


def _room_for_out(q: Tensor) -> Room:
    """What out_like(q) makes, without making it."""
    return _room_like(tuple(q.shape), q.stride(), q.dtype)


@functools.lru_cache(maxsize=1024)  # tensors without memory are made by Python code of torch's, in 0.1 ms
def _room_like(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Room:
    made = out_like(torch.empty_strided(shape, strides, dtype=dtype, device="meta"))
    return Room(tuple(made.shape), made.stride(), made.dtype)


def lse_dtype(q: Tensor) -> torch.dtype:
    """float32, and float64 for float64: what the sums are kept in."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _is_kept(mask: BlockMask | None, asked: Asked) -> bool:
    """Whether a change of the mask would be noticed, and scale and backend are what they should be."""
    _, scale, backend, _ = asked
    if (scale is not None and type(scale) is not float) or type(backend) is not str:
        return False
    return mask is None or (type(mask) is BlockMask and mask.counts_changes)


def _calls_of(mask: BlockMask | None) -> dict[Any, Known]:
    if mask is None:
        return _UNMASKED
    kept: dict[Any, Known] = mask.derived.setdefault(_CALLS, {})
    return kept


def _key(q: Tensor, k: Tensor, v: Tensor, asked: Asked) -> Any:
    return (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device,
        v.device, asked, answers.generation,
    )  # fmt: skip

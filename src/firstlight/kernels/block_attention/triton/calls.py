"""From the tensors of a call to what the kernels take: problem, sizes, strides, and the kernel compiled for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.lists import AnyLists, Lists
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.triton.arguments import POINTER, ListPointers, Sizes
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.block_attention.triton.plan import Problem, spec_of, tile_for
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile
from firstlight.kernels.tf32 import tf32_allowed
from firstlight.kernels.triton_backend.launch import Launching, Runner, launching
from firstlight.kernels.triton_backend.problem import gpu_of

INT32_END = 1 << 31
MOST_ENTRIES = 1 << 28  # of the lists: kernels count their steps, up to 8 of them a block, in int32


class Ready(NamedTuple):
    """A compiled kernel and its tile."""

    run: Runner
    tile: Tile


P = TypeVar("P")
_READY: dict[tuple[Pass, Problem], Ready] = {}
_KEPT = "triton launches"
_MOST_KEPT = 256
_taken = 0  # counts take_tile: what was kept before is not taken


def compiled_with(which: Pass, problem: Problem, tile: Tile | None = None) -> Ready:
    """The kernel of a problem with the table's tile, or with one under trial."""
    if tile is None:
        tile = tile_for(which, problem, gpu_of(problem.device).family)
    return Ready(runner_for(spec_of(which, problem, tile), problem.device), tile)


def ready_for(which: Pass, problem: Problem) -> Ready:
    """The kernel that calls of this problem take; compiled at the first."""
    found = _READY.get((which, problem))
    if found is None:
        found = _READY[which, problem] = compiled_with(which, problem)
    return found


def take_tile(which: Pass, problem: Problem, tile: Tile | None) -> None:
    """Lets later calls of a problem take this tile, for trying others; None: the table's."""
    global _taken
    _READY[which, problem] = compiled_with(which, problem, tile)
    _taken += 1  # last: what is kept from then on has this tile


def kept_with(mask: BlockMask, key: Hashable, make: Callable[[], P]) -> P:
    """What is launched for calls with this key, made at the first and kept with the mask.

    The key names all that it depends on besides the mask: the choice of a kernel takes longer than launching it.
    """
    if not mask.counts_changes:
        return make()
    kept: dict[Any, P] = mask.derived.setdefault(_KEPT, {})
    whole = (_taken, key)
    found = kept.get(whole)
    if found is None:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        found = kept[whole] = make()
    return found


def require_runnable(q: Tensor) -> None:
    """Raises where no kernel can be compiled or started: what was given, what is accepted, what to do."""
    if q.dtype not in POINTER:
        raise UnsupportedInput(
            f"backend 'triton': q is {q.dtype}; float16, bfloat16 and float32 are accepted. "
            "Convert q, k and v, or pass backend='reference'."
        )
    if not 16 <= q.shape[-1] <= 256:
        raise UnsupportedInput(
            f"backend 'triton': the head dimension is {q.shape[-1]}; 16 to 256 are accepted. "
            "Pad q, k and v with zeros and pass the scale, or pass backend='reference'."
        )
    if not q.is_cuda and launching() is not Launching.INTERPRETED:
        raise UnsupportedInput(
            f"backend 'triton': tensors are on {q.device}; a CUDA device is accepted. "
            "Move them there, or pass backend='reference' or 'dense'."
        )


def problem_of(mask: BlockMask, operands: tuple[Tensor, ...], strides: tuple[int, ...], *, scale: float) -> Problem:
    """What the kernels of a call are compiled for; operands begin with q and k."""
    q, k = operands[:2]
    if mask.most > MOST_ENTRIES:
        raise UnsupportedInput(
            f"backend 'triton': the mask may keep {mask.most} blocks; at most {MOST_ENTRIES} are accepted. "
            "Call it for fewer heads at a time."
        )
    return Problem(
        dtype=q.dtype,
        head_dim=q.shape[3],
        block=mask.block,
        group=q.shape[1] // k.shape[1],
        has_bits=mask.bits is not None,
        ragged_q=q.shape[2] % mask.block != 0,
        ragged_k=k.shape[2] % mask.block != 0,
        scale_first=scale <= 0.0,
        wide=max(strides[2::3]) * mask.block + q.shape[3] >= INT32_END,
        tf32=takes_tf32(q),
        has_grad_lse=False,
        aligned=are_aligned(strides, operands),
        device=q.device,
    )


def takes_tf32(q: Tensor) -> bool:
    """Whether the products of a call round their operands to tf32."""
    return q.dtype is torch.float32 and tf32_allowed()


def sizes_of(q: Tensor, k: Tensor, mask: BlockMask, scale: float) -> Sizes:
    """Shapes of a call."""
    batches, heads = mask.kinds.shape[:2]
    return Sizes(
        heads=q.shape[1],
        kv_heads=k.shape[1],
        q_len=q.shape[2],
        k_len=k.shape[2],
        q_blocks=-(-q.shape[2] // mask.block),
        k_blocks=-(-k.shape[2] // mask.block),
        list_batch=heads if batches > 1 else 0,
        list_head=1 if heads > 1 else 0,
        scale=scale,
    )


def pointers_of(lists: AnyLists, mask: BlockMask) -> ListPointers:
    """The lists as kernels take them."""
    apart = lists if isinstance(lists, Lists) else lists.apart
    return ListPointers(*apart, apart.masks if mask.bits is None else mask.bits.contiguous())


def rows_contiguous(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its last dimension is not contiguous or a row is 2**31 elements from the next."""
    stride = tensor.stride()
    return tensor if stride[3] == 1 and stride[2] < INT32_END else tensor.contiguous()


def like(tensor: Tensor) -> Tensor:
    """Room for a gradient, in the tensor's layout."""
    made = torch.empty_like(tensor)
    return made if made.stride(3) == 1 else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def strides_of(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    """Strides of batch, head and row of each tensor, one after the other."""
    return tuple([stride for tensor in tensors for stride in tensor.stride()[:3]])


def start_aligned(tensors: tuple[Tensor, ...]) -> bool:
    """Whether the tensors start at multiples of 16 bytes."""
    bits = 0
    for tensor in tensors:
        bits |= tensor.data_ptr()
    return not bits & 15


def are_aligned(strides: tuple[int, ...], tensors: tuple[Tensor, ...]) -> bool:
    """Whether the tensors start at multiples of 16 bytes and the strides are multiples of 16 elements."""
    return math.gcd(16, *strides, *[tensor.data_ptr() for tensor in tensors]) == 16

"""Block-sparse attention forward on Hopper: attention.cu with its arguments; backward: gradient.py.

`forward` and `backward` are what every attention backend has; see firstlight.kernels.block_attention. Tensors are
read where they lie (any strides that are multiples of 16 bytes, the head dimension contiguous), through tensor maps of
five dimensions.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.backends import SM90, why_not_arch
from firstlight.kernels.block_attention.lists import AnyLists, lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.lifetimes import DEFAULT_STREAM
from firstlight.kernels.sm90.arguments import AttentionFields, attention_bytes
from firstlight.kernels.sm90.attention_maps import rows_map, steps_everywhere
from firstlight.kernels.sm90.attention_variants import BLOCKS, HEAD_DIMS, THREADS, AttentionBuild
from firstlight.kernels.sm90.driver import Kernel, Launch
from firstlight.kernels.sm90.gradient import backward
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.problem import multiprocessors
from firstlight.kernels.sm90.workspace import Control, control_of
from firstlight.kernels.torch_private import current_device, raw_stream

WARP_ROWS = 16  # that a warp stores at once
MOST_ITEMS = (1 << 31) - (1 << 16)  # a thread block looks up to that far behind the last one
LOG2_E = math.log2(math.e)
__all__ = ["backward", "forward", "why_not"]
_KEPT = "sm90 launches"
_MOST_KEPT = 256  # about 2 kB each
_raw_stream = raw_stream


class Shape(NamedTuple):
    """Sizes of one call, e.g. Shape(batch=2, heads=8, kv_heads=2, q_len=1000, k_len=1000, head_dim=128)."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    k_len: int
    head_dim: int


def why_not(device: int, dtype: torch.dtype, head_dim: int, block: int) -> str:
    """What keeps this kernel from running, e.g. 'the head dimension is 96, ...'; empty: nothing."""
    if head_dim not in HEAD_DIMS:
        return f"the head dimension is {head_dim}, and the Hopper kernel takes 64 and 128"
    if block not in BLOCKS:
        return f"the blocks are {block} x {block}, and the Hopper kernel takes 64 and 128"
    return why_not_arch(SM90, device, dtype)


def forward(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> None:
    """out [B, H, Sq, D] and lse [B, H, Sq], fully overwritten, on the current stream; the same bits at every call."""
    if out.numel() == 0:
        return
    if not 0.0 < scale < math.inf:
        raise UnsupportedInput(
            f"backend 'sm90': scale is {scale}; a positive number is accepted. Use backend='triton'."
        )
    if k.shape[2] == 0:
        out.zero_()
        lse.fill_(-math.inf)
        return
    q, k, v = _stepped(q), _stepped(k), _stepped(v)
    if q.is_cuda and q.get_device() != current_device():  # torch.cuda's, without its look for a first use
        with torch.cuda.device(q.device):  # a kernel is launched on the current device
            _start(q, k, v, mask, scale=scale, out=out, lse=lse)
    else:
        _start(q, k, v, mask, scale=scale, out=out, lse=lse)


def _stepped(tensor: Tensor) -> Tensor:
    return tensor if steps_everywhere(tensor) else tensor.contiguous()


class _Ready(NamedTuple):
    """A launch and what it names by address, which has to live as long."""

    launch: Launch
    lists: AnyLists
    control: Control


def _start(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> None:
    """Launches are kept with the mask by all that they depend on: in a loop the same addresses come back."""
    stream = _raw_stream(q.get_device())
    captured = stream != DEFAULT_STREAM and torch.cuda.is_current_stream_capturing()
    if captured or not mask.counts_changes:
        made = _made(q, k, v, mask, scale=scale, out=out, lse=lse)  # a name: its lists have to live until the launch
        made.launch.start(stream)
        return
    kept: dict[Any, _Ready] = mask.derived.setdefault(_KEPT, {})
    key = (
        q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr(), q.shape, k.shape, q.stride(),
        k.stride(), v.stride(), out.stride(), q.dtype, scale, stream,
    )  # fmt: skip
    found = kept.get(key)
    if found is None:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        found = kept[key] = _made(q, k, v, mask, scale=scale, out=out, lse=lse)
    found.launch.start(stream)


def _made(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> _Ready:
    """Compiles the kernel the first time."""
    shape = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    build = AttentionBuild(mask.block, shape.head_dim, q.dtype is torch.bfloat16)
    kernel = _kernel(build, q.get_device())
    lists = lists_of(mask)
    q_blocks = -(-shape.q_len // mask.block)
    items = shape.batch * shape.heads * q_blocks
    if items > MOST_ITEMS:
        raise UnsupportedInput(
            f"backend 'sm90': there are {items} blocks of queries; {MOST_ITEMS} are accepted. Use a smaller batch."
        )
    maps = (rows_map(q, mask.block), rows_map(k, mask.block), rows_map(v, mask.block), rows_map(out, WARP_ROWS))
    mask_batch, mask_heads = mask.kinds.shape[0], mask.kinds.shape[1]
    control = control_of(q.device, _raw_stream(q.get_device()), arrivals=0)
    batch_step, head_step, row_step, _ = out.stride()
    fields = AttentionFields(
        *lists.places, 0 if mask.bits is None else mask.bits.data_ptr(), out.data_ptr(), lse.data_ptr(), control.queue,
        batch_step, head_step, row_step, items, q_blocks, shape.heads, shape.heads // shape.kv_heads, shape.q_len,
        shape.k_len, mask_heads if mask_batch > 1 else 0, 1 if mask_heads > 1 else 0, 0, scale * LOG2_E,
    )  # fmt: skip
    grid = (min(-(-items // build.engines), multiprocessors(q.get_device())), 1, 1)
    launch = Launch(kernel, attention_bytes(maps, fields), grid=grid, threads=THREADS)
    return _Ready(launch, lists, control)


@functools.lru_cache(maxsize=64)
def _kernel(build: AttentionBuild, device: int) -> Kernel:
    return loaded(build.variant, device=device, shared_bytes=build.shared_bytes)

"""Gradients of block-sparse attention on Hopper: gradient.cu with its arguments, twice.

Blocks of 128; others, as all that why_not names, are Triton's, and so are the sums of every query row that both passes
need. No atomics but the queue's: the same bits at every call.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.block_attention.lists import AnyLists, lists_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.sm90 import gradient_once
from firstlight.kernels.sm90.arguments import GradientFields, gradient_bytes
from firstlight.kernels.sm90.attention_maps import mappable, rows_map
from firstlight.kernels.sm90.attention_variants import (
    GRADIENT_BLOCK,
    GRADIENT_TILE,
    HEAD_DIMS,
    THREADS,
    GradientBuild,
)
from firstlight.kernels.sm90.driver import Kernel, Launch
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.problem import multiprocessors
from firstlight.kernels.sm90.workspace import control_of
from firstlight.kernels.torch_private import raw_stream

WARP_ROWS = 16  # that a warp stores at once
MOST_ITEMS = (1 << 31) - (1 << 16)
LOG2_E = math.log2(math.e)
_raw_stream = raw_stream


class Sums(NamedTuple):
    """Of every query row: its logarithm of sums in powers of two, and sum(grad * out); [B * H, multiple of 128]."""

    logs: Tensor
    deltas: Tensor


def why_not(made: Forward, mask: BlockMask, scale: float) -> str:
    """What keeps this kernel from these gradients, e.g. 'blocks of 64'; empty: nothing."""
    q, k = made.q, made.k
    if mask.block != GRADIENT_BLOCK:
        return f"blocks of {mask.block}"
    if q.shape[3] not in HEAD_DIMS or q.dtype not in (torch.float16, torch.bfloat16):
        return f"{q.dtype} with a head dimension of {q.shape[3]}"
    if not 0.0 < scale < math.inf:
        return f"a scale of {scale}"
    blocks = q.shape[0] * q.shape[1] * max(-(-q.shape[2] // mask.block), -(-k.shape[2] // mask.block))
    return "" if 0 < blocks <= MOST_ITEMS and k.shape[2] else "no keys, or too many blocks"


def backward(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv; exactly 0 for rows that see no key and keys that nobody sees."""
    from firstlight.kernels.block_attention.triton import backward as by_triton

    if why_not(made, mask, scale):
        return by_triton(upstream, made, mask, scale=scale)
    q, k, v, grad = (mappable(given) for given in (made.q, made.k, made.v, upstream.out.to(made.q.dtype)))
    sums = padded(*row_sums(upstream._replace(out=grad), made._replace(q=q, k=k, v=v), mask, scale=scale))
    dq, dk, dv = (_room(given) for given in (made.q, made.k, made.v))
    if gradient_once.takes(q, k, mask):
        given = gradient_once.Given(q, k, v, grad, *sums)
        gradient_once.start(
            given, gradient_once.Gradients(dq, dk, dv), mask, scale=scale, stream=_raw_stream(q.get_device())
        )
        return dq, dk, dv
    start = _Start(q, k, mask, sums, scale)
    start.by_key((k, v, q, grad, dk, dv))
    start.by_query((q, grad, k, v, dq, dq))
    return dq, dk, dv


def _room(given: Tensor) -> Tensor:
    """For a gradient, laid out as its tensor is where a tensor map can be made of that, else contiguous."""
    made = torch.empty_like(given)
    return made if mappable(made) is made else torch.empty(given.shape, dtype=given.dtype, device=given.device)


def row_sums(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor]:
    """(logs, deltas) [B, H, Sq]; +inf and 0 for a row that saw no key."""
    from firstlight.kernels.block_attention.triton.backward import row_sums as by_triton

    if made.q.is_cuda:
        return by_triton(upstream, made, mask, scale=scale)
    empty = made.lse == -math.inf
    deltas = (made.out.float() * upstream.out.float()).sum(-1)
    deltas = deltas if upstream.lse is None else deltas - upstream.lse
    return torch.where(empty, math.inf, made.lse * LOG2_E), torch.where(empty, 0.0, deltas)


def padded(logs: Tensor, deltas: Tensor) -> Sums:
    """Rows up to a multiple of the block: +inf, so that nothing comes of them, and 0."""
    more = -logs.shape[2] % GRADIENT_BLOCK
    if more:
        logs, deltas = functional.pad(logs, (0, more), value=math.inf), functional.pad(deltas, (0, more))
    return Sums(logs.contiguous(), deltas.contiguous())


class _Start:
    """Both launches of one call."""

    def __init__(self, q: Tensor, k: Tensor, mask: BlockMask, sums: Sums, scale: float) -> None:
        self._q, self._k, self._mask, self._sums, self._scale = q, k, mask, sums, scale

    def by_query(self, tensors: tuple[Tensor, ...]) -> None:
        """dq."""
        self._launch(tensors, lists_of(self._mask), length=self._q.shape[2], by_key=False)

    def by_key(self, tensors: tuple[Tensor, ...]) -> None:
        """dk and dv."""
        self._launch(tensors, turned_lists_of(self._mask), length=self._k.shape[2], by_key=True)

    def _launch(self, tensors: tuple[Tensor, ...], lists: AnyLists, *, length: int, by_key: bool) -> None:
        q, k, mask = self._q, self._k, self._mask
        device, group = q.get_device(), q.shape[1] // k.shape[1]
        batch, heads = q.shape[0], (k if by_key else q).shape[1]
        build = GradientBuild(by_key, q.shape[3], q.dtype is torch.bfloat16)
        blocks = -(-length // GRADIENT_BLOCK)
        items = batch * heads * blocks
        control = control_of(q.device, _raw_stream(device), arrivals=0)
        f, g, x, y, first, second = tensors
        maps = (
            rows_map(f, GRADIENT_BLOCK), rows_map(g, GRADIENT_BLOCK), rows_map(x, GRADIENT_TILE),
            rows_map(y, GRADIENT_TILE), rows_map(first, WARP_ROWS, halves=1), rows_map(second, WARP_ROWS, halves=1),
        )  # fmt: skip
        mask_batch, mask_heads = mask.kinds.shape[0], mask.kinds.shape[1]
        step = 1 if mask_heads > 1 else 0
        fields = GradientFields(
            *lists.places, 0 if mask.bits is None else mask.bits.data_ptr(), self._sums.logs.data_ptr(),
            self._sums.deltas.data_ptr(),
            control.queue, items, blocks, heads, group, self._sums.logs.shape[2], k.shape[2],
            mask_heads if mask_batch > 1 else 0, step * group if by_key else step, step, 0,
            self._scale, self._scale * LOG2_E,
        )  # fmt: skip
        grid = (min(items, multiprocessors(device)), 1, 1)
        launch = Launch(_kernel(build, device), gradient_bytes(maps, fields), grid=grid, threads=THREADS)
        launch.start(_raw_stream(device))


@functools.lru_cache(maxsize=64)
def _kernel(build: GradientBuild, device: int) -> Kernel:
    return loaded(build.variant, device=device, shared_bytes=build.shared_bytes)

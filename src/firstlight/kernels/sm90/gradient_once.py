"""All three gradients in one pass by key blocks: gradient_once.cu with its arguments, and gradient_rows.cu for dq.

Five products where gradient.py's two passes issue seven. What a key block adds to dq goes to sums in float32 in memory,
in ascending order of the key blocks, each in its turn; so the bits are the same at every call. `takes` says where.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.lists import ranks_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.sm90.arguments import (
    GradientOnceFields,
    GradientRowsFields,
    gradient_once_bytes,
    gradient_rows_bytes,
)
from firstlight.kernels.sm90.attention_maps import rows_map
from firstlight.kernels.sm90.attention_variants import (
    GRADIENT_BLOCK,
    GRADIENT_TILE,
    ONCE_HEAD_DIM,
    THREADS,
    OnceBuild,
)
from firstlight.kernels.sm90.compile import find_compiler
from firstlight.kernels.sm90.driver import Kernel, start_once
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.problem import multiprocessors
from firstlight.kernels.sm90.workspace import control_of

LOG2_E = math.log2(math.e)
PARTS = GRADIENT_BLOCK // GRADIENT_TILE  # turns of a block of queries
ROWS_THREADS = 256
MOST_RANKS = (1 << 31) - 1  # the kernel counts them in 32 bits
WIDE_SHARE = 0.2  # of all blocks: causal and wider masks
LEAST_ROW, LEAST_ROW_OF_MANY = 8, 16  # blocks a row below it; measured: results/attention-gradients-order-h200.json
OLDEST_COMPILER = (12, 9)  # ptxas before it puts the products one behind the other (C7515), with nothing under them
MOST_BITS_OF_ONE = 32  # ways in which a window, a sink and causal together see a block in part


class Order(NamedTuple):
    """In which order work is done: less waiting for turns against more found in L2."""

    abreast: int  # heads whose key blocks are handed out side by side
    upward: bool  # lists are walked from their beginning, not from their end


class Gradients(NamedTuple):
    """What a pass fills."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


class Given(NamedTuple):
    """What it reads; logs and deltas as gradient.Sums."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    logs: Tensor
    deltas: Tensor


def takes(q: Tensor, k: Tensor, mask: BlockMask) -> bool:
    """Whether one pass is the faster of what gradient.why_not lets through: full, causal, windows of 8 blocks a row.

    Those have one list for all heads, and all blocks or some that are seen in part. Scattered lists let key blocks
    wait for turns, and the sums in memory find no place in L2; so do short rows, and sequences one behind the other,
    whose key blocks meet at the same queries. Heads that share keys share an item: fewer items than multiprocessors
    leave some idle, where two passes have one of them by query heads. And the compiler has to do it justice.
    """
    blocks = mask.kinds.numel()
    drawn = mask.kinds.shape[:2].numel() == 1 and (mask.bits is not None or mask.most == blocks)
    if not (drawn and q.shape[3] == ONCE_HEAD_DIM and q.shape[2] > 0 and blocks <= MOST_RANKS):
        return False
    if k.shape[1] < q.shape[1] and q.shape[0] * k.shape[1] * mask.kinds.shape[3] <= multiprocessors(q.get_device()):
        return False
    if not built_well():
        return False
    row = mask.most / mask.kinds.shape[2]
    return _share(mask) >= WIDE_SHARE or row >= (LEAST_ROW_OF_MANY if _is_many(mask) else LEAST_ROW)


@functools.lru_cache(maxsize=1)
def built_well() -> bool:
    """Whether the compiler that is here keeps the products of gradient_once.cu under way together; asked once."""
    return tuple(map(int, find_compiler().version.split("."))) >= OLDEST_COMPILER  # of "12" alone it is not known: no


def order_for(mask: BlockMask) -> Order:
    """By the share of blocks: full, causal and windows as measured, see docs/kernels/attention.md."""
    share = _share(mask)
    if share > 0.9:
        return Order(4, upward=False)
    if share < WIDE_SHARE:
        return Order(32, upward=not _is_many(mask))
    return Order(16, upward=False)


def _share(mask: BlockMask) -> float:
    return mask.most / max(mask.kinds.numel(), 1)


def _is_many(mask: BlockMask) -> bool:
    """Whether blocks are seen in part in many ways: many sequences, not one window or causal mask."""
    return mask.bits is not None and mask.bits.shape[0] > MOST_BITS_OF_ONE


def start(given: Given, made: Gradients, mask: BlockMask, *, scale: float, stream: int) -> None:
    """Both launches on a stream, the current one."""
    q, k = given.q, given.k
    (batch, heads, q_len), k_len, device = q.shape[:3], k.shape[2], q.get_device()
    build = OnceBuild(q.dtype is torch.bfloat16)
    tiles = -(-q_len // GRADIENT_BLOCK) * PARTS
    sums = torch.empty(batch * heads * tiles * GRADIENT_TILE * q.shape[3], dtype=torch.float32, device=q.device)
    control = control_of(q.device, stream, arrivals=batch * heads * tiles)
    lists, ranks, group = turned_lists_of(mask), ranks_of(mask), heads // k.shape[1]
    blocks = -(-k_len // GRADIENT_BLOCK)
    items = batch * k.shape[1] * blocks
    maps = (
        rows_map(k, GRADIENT_BLOCK), rows_map(given.v, GRADIENT_BLOCK), rows_map(q, GRADIENT_TILE),
        rows_map(given.grad, GRADIENT_TILE),
    )  # fmt: skip
    mask_batch, mask_heads = mask.kinds.shape[0], mask.kinds.shape[1]
    dk_steps, dv_steps, dq_steps = (each.stride() for each in (made.dk, made.dv, made.dq))
    step, order = 1 if mask_heads > 1 else 0, order_for(mask)
    fields = GradientOnceFields(
        lists.starts.data_ptr(), lists.columns.data_ptr(), lists.masks.data_ptr(), ranks.data_ptr(),
        0 if mask.bits is None else mask.bits.data_ptr(), given.logs.data_ptr(), given.deltas.data_ptr(),
        sums.data_ptr(), control.arrivals, made.dk.data_ptr(), made.dv.data_ptr(), control.queue,
        dk_steps[0], dk_steps[1], dk_steps[2],
        dv_steps[0], dv_steps[1], dv_steps[2], items, blocks, k.shape[1], group, given.logs.shape[2], k_len,
        mask_heads if mask_batch > 1 else 0, step * group, step, tiles // PARTS, order.abreast, int(order.upward),
        0, scale, scale * LOG2_E,
    )  # fmt: skip
    grid = (min(items, multiprocessors(device)), 1, 1)
    start_once(_kernel(build, device), gradient_once_bytes(maps, fields), stream, grid=grid, threads=THREADS)
    rows = GradientRowsFields(
        sums.data_ptr(),
        control.arrivals,
        made.dq.data_ptr(),
        dq_steps[0],
        dq_steps[1],
        dq_steps[2],
        heads,
        tiles,
        q_len,
        0,
        scale,
    )
    rows_kernel, rows_grid = loaded(build.rows, device=device), (batch * heads * tiles, 1, 1)
    start_once(rows_kernel, gradient_rows_bytes(rows), stream, grid=rows_grid, threads=ROWS_THREADS)


@functools.lru_cache(maxsize=64)
def _kernel(build: OnceBuild, device: int) -> Kernel:
    return loaded(build.variant, device=device, shared_bytes=build.shared_bytes)

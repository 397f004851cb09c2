"""The lists of a mask on a GPU in three launches, and nothing for the host to wait for.

The first counts the blocks of each list. The second sums the counts up, in its first program, and ranks the lists by
them, in the others. The third writes the lists.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.kernels.block_attention import lists as by_torch
from firstlight.kernels.block_attention.lists import Lists
from firstlight.kernels.block_attention.triton.arguments import FillSizes, FillTensors, OrderSizes, OrderTensors
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.triton_backend.launch import Constant, Spec

WARPS = 4  # one where blocks of a list lie next to each other: the places of its blocks are then found in a warp
CHUNK = 512  # blocks looked at in one step, of one list or of several short ones
MOST_RANKED = 4096  # blocks of a head; comparing each with each grows with their square, sorting does not


class FillHow(NamedTuple):
    """What the kernels are compiled for: lists of a program, blocks looked at in one step."""

    lists: int
    chunk: int
    turned: bool  # by key block: the lists lie next to each other in memory, not their blocks
    has_which: bool


class OrderHow(NamedTuple):
    """What the second kernel is compiled for: lists ranked by a program, those compared with, counts summed at once."""

    rows: int
    chunk: int
    sums: int


ORDER = OrderHow(8, 512, 4096)


@triton.jit
def blocks_at(sizes, how: tl.constexpr):
    """(list numbers, which exist, where the first block of each is, blocks in a list, from one block to the next)."""
    number = tl.program_id(0) * how.lists + tl.arange(0, how.lists)
    if how.turned:
        rows, blocks, step = sizes.k_blocks, sizes.q_blocks, sizes.k_blocks
        first = (number // rows).to(tl.int64) * rows * blocks + number % rows
    else:
        rows, blocks, step = sizes.q_blocks, sizes.k_blocks, 1
        first = number.to(tl.int64) * blocks
    return number, number < rows * sizes.heads, first, blocks, step


@triton.jit
def count_blocks(tensors, sizes, how: tl.constexpr):
    """How many blocks of each list are not NONE, and behind them those of all lists of each program."""
    number, there, first, blocks, step = blocks_at(sizes, how)
    lists: tl.constexpr = how.lists
    chunk: tl.constexpr = how.chunk
    used = tl.zeros((lists, chunk), tl.int32)  # added up across threads once, not in every step
    for begin in range(0, blocks, chunk):
        block = begin + tl.arange(0, chunk)
        inside = there[:, None] & (block < blocks)[None, :]
        at = first[:, None] + block[None, :].to(tl.int64) * step
        used += (tl.load(tensors.kinds + at, mask=inside, other=0) != 0).to(tl.int32)
    counts = tl.sum(used, 1)
    tl.store(tensors.counts + number, counts, mask=there)
    tl.store(tensors.counts + lists_in(sizes, how) + tl.program_id(0), tl.sum(counts, 0))


@triton.jit
def lists_in(sizes, how: tl.constexpr):
    """Lists of all heads."""
    return (sizes.k_blocks if how.turned else sizes.q_blocks) * sizes.heads


@triton.jit
def sum_up(totals, number, chunk: tl.constexpr):
    """Replaces each of the totals by the sum of those before it; one program does it."""
    before = 0
    for begin in range(0, number, chunk):
        place = begin + tl.arange(0, chunk)
        here = tl.load(totals + place, mask=place < number, other=0)
        tl.store(totals + place, before + tl.cumsum(here, 0) - here, mask=place < number)
        before += tl.sum(here, 0)


@triton.jit
def rank_lists(tensors, sizes, part, how: tl.constexpr):
    """Each list at its rank in its head: how many are longer, and how many earlier ones as long."""
    rows: tl.constexpr = how.rows
    chunk: tl.constexpr = how.chunk
    of_head = part // sizes.parts * sizes.blocks
    block = part % sizes.parts * rows + tl.arange(0, rows)
    there = block < sizes.blocks
    length = tl.load(tensors.counts + of_head + block, mask=there, other=0)[:, None]
    before = tl.zeros((rows, chunk), tl.int32)
    for begin in range(0, sizes.blocks, chunk):
        other = begin + tl.arange(0, chunk)  # past the last block: empty and later, so before none
        theirs = tl.load(tensors.counts + of_head + other, mask=other < sizes.blocks, other=0)[None, :]
        earlier = other[None, :] < block[:, None]
        before += ((theirs > length) | ((theirs == length) & earlier)).to(tl.int32)
    tl.store(tensors.order + of_head + tl.sum(before, 1), block, mask=there)


@triton.jit
def order_lists(tensors, sizes, how: tl.constexpr):
    """The sums of the programs' counts, and the order of the lists of each head: neither waits for the other."""
    if tl.program_id(0) == 0:
        sum_up(tensors.counts + sizes.lists, sizes.totals, how.sums)
    else:
        rank_lists(tensors, sizes, tl.program_id(0) - 1, how)


@triton.jit
def fill_blocks(tensors, sizes, how: tl.constexpr):
    """Where each list starts, its blocks, ascending, and their rows of bits, -1 for those that are not partial."""
    number, there, first, blocks, step = blocks_at(sizes, how)
    lists: tl.constexpr = how.lists
    chunk: tl.constexpr = how.chunk
    counts = tl.load(tensors.counts + number, mask=there, other=0)
    ends = tl.load(tensors.counts + lists_in(sizes, how) + tl.program_id(0)) + tl.cumsum(counts, 0)
    taken = ends - counts
    # a bound that is too low must not write elsewhere, nor say that it was written
    tl.store(tensors.starts + number, tl.minimum(taken, sizes.most), mask=there)
    tl.store(tensors.starts + number + 1, tl.minimum(ends, sizes.most), mask=number == lists_in(sizes, how) - 1)
    for begin in range(0, blocks, chunk):
        block = begin + tl.arange(0, chunk)
        inside = there[:, None] & (block < blocks)[None, :]
        at = first[:, None] + block[None, :].to(tl.int64) * step
        kinds = tl.load(tensors.kinds + at, mask=inside, other=0)
        used = (kinds != 0).to(tl.int32)
        to = taken[:, None] + tl.cumsum(used, 1) - used
        fits = (used != 0) & (to < sizes.most)
        tl.store(tensors.columns + to, tl.broadcast_to(block[None, :], (lists, chunk)), mask=fits)
        if how.has_which:
            rows = tl.load(tensors.which + at, mask=kinds == 1, other=-1)
        else:
            rows = tl.full((lists, chunk), -1, tl.int32)
        tl.store(tensors.masks + to, rows, mask=fits)
        taken += tl.sum(used, 1)


def fill(kinds: Tensor, which: Tensor | None, most: int) -> Lists:
    """The lists by query block; see firstlight.kernels.block_attention.lists.Lists."""
    width = min(CHUNK, max(32, triton.next_power_of_2(kinds.shape[3])))
    return _filled(kinds, which, most, FillHow(CHUNK // width, width, turned=False, has_which=which is not None))


def fill_turned(kinds: Tensor, which: Tensor | None, most: int) -> Lists:
    """The same by key block, from the same tensors: nothing is transposed in memory."""
    return _filled(kinds, which, most, FillHow(32, 64, turned=True, has_which=which is not None))


def _filled(kinds: Tensor, which: Tensor | None, most: int, how: FillHow) -> Lists:
    kinds = kinds.contiguous()
    batch, heads, q_blocks, k_blocks = kinds.shape
    shape, device = (batch * heads, k_blocks if how.turned else q_blocks), kinds.device
    rows, grid = shape[0] * shape[1], -(-(shape[0] * shape[1]) // how.lists)
    columns = torch.empty(max(most, 1), dtype=torch.int32, device=device)  # most of it may never be used
    masks = torch.empty_like(columns)
    if kinds.numel() == 0:
        starts = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        return Lists(starts, columns, masks, by_torch.order_of(starts, shape))
    starts = torch.empty(rows + 1, dtype=torch.int32, device=device)
    counts = torch.empty(rows + grid, dtype=torch.int32, device=device)
    tensors = FillTensors(kinds, starts if which is None else which.contiguous(), counts, starts, columns, masks)
    sizes = FillSizes(q_blocks, k_blocks, batch * heads, most)
    runner_for(count_spec(how), device)(grid, (tensors, sizes, None))
    order = sum_and_order(counts, shape)
    runner_for(fill_spec(how), device)(grid, (tensors, sizes, None))
    return Lists(starts, columns, masks, by_torch.order_of(starts, shape) if order is None else order)


def sum_and_order(counts: Tensor, shape: tuple[int, int]) -> Tensor | None:
    """The order of lists of `shape`, (heads, lists of a head), that have these counts; None: too many to be ranked.

    What follows the lists' counts becomes the sum of all before it, e.g. 0, 3, 5 for 3, 2, 4.
    """
    heads, blocks = shape
    lists, parts = heads * blocks, -(-blocks // ORDER.rows)
    ranked = blocks <= MOST_RANKED
    order = torch.empty(shape, dtype=torch.int32, device=counts.device) if ranked else None
    tensors = OrderTensors(counts, counts if order is None else order)
    sizes = OrderSizes(blocks, lists, counts.shape[0] - lists, parts)
    grid = 1 + (heads * parts if ranked else 0)
    runner_for(order_spec(ORDER), counts.device)(grid, (tensors, sizes, None))
    return order


_TYPES = (FillTensors("*u8", *("*i32",) * 5), FillSizes(*("i32",) * 4))
_ORDER_TYPES = (OrderTensors("*i32", "*i32"), OrderSizes(*("i32",) * 4))


def count_spec(how: FillHow) -> Spec:
    """The counting kernel as it is compiled."""
    return Spec(count_blocks, (*_TYPES, Constant(how)), (), warps=WARPS if how.turned else 1, stages=1)


def fill_spec(how: FillHow) -> Spec:
    """The filling kernel as it is compiled."""
    return Spec(fill_blocks, (*_TYPES, Constant(how)), (), warps=WARPS if how.turned else 1, stages=1)


def order_spec(how: OrderHow) -> Spec:
    """The kernel that sums and orders as it is compiled."""
    return Spec(order_lists, (*_ORDER_TYPES, Constant(how)), (), warps=WARPS, stages=1)

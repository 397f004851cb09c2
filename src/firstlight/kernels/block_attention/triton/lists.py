"""The lists of a mask on a GPU: small kernels around torch's running sum, and nothing for the host to wait for."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.kernels.block_attention import lists as by_torch
from firstlight.kernels.block_attention.triton.arguments import FillSizes, FillTensors
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.triton_backend.launch import Constant, Spec

WARPS = 4
MOST_RANKED = 4096  # blocks of a head; comparing each with each grows with their square, sorting does not


class FillHow(NamedTuple):
    """What the kernels are compiled for: lists of a program, blocks looked at in one step."""

    lists: int
    chunk: int
    turned: bool  # by key block: the lists lie next to each other in memory, not their blocks
    has_which: bool


class OrderHow(NamedTuple):
    """What the ordering kernel is compiled for: blocks of a program, blocks they are compared with in one step."""

    rows: int
    chunk: int


ORDER = OrderHow(8, 512)


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
    """starts[1 + list] = how many blocks of it are not NONE; torch sums them up."""
    number, there, first, blocks, step = blocks_at(sizes, how)
    lists: tl.constexpr = how.lists
    counts = tl.zeros((lists,), tl.int32)
    for begin in range(0, blocks, how.chunk):
        block = begin + tl.arange(0, how.chunk)
        inside = there[:, None] & (block < blocks)[None, :]
        at = first[:, None] + block[None, :].to(tl.int64) * step
        kinds = tl.load(tensors.kinds + at, mask=inside, other=0)
        counts += tl.sum((kinds != 0).to(tl.int32), 1)
    tl.store(tensors.starts + 1 + number, counts, mask=there)


@triton.jit
def fill_blocks(tensors, sizes, how: tl.constexpr):
    """The blocks of each list, ascending, and their rows of bits, -1 for those that are not partial."""
    number, there, first, blocks, step = blocks_at(sizes, how)
    lists: tl.constexpr = how.lists
    chunk: tl.constexpr = how.chunk
    taken = tl.load(tensors.starts + number, mask=there, other=0)
    for begin in range(0, blocks, how.chunk):
        block = begin + tl.arange(0, how.chunk)
        inside = there[:, None] & (block < blocks)[None, :]
        at = first[:, None] + block[None, :].to(tl.int64) * step
        kinds = tl.load(tensors.kinds + at, mask=inside, other=0)
        used = (kinds != 0).to(tl.int32)
        to = taken[:, None] + tl.cumsum(used, 1) - used
        fits = (used != 0) & (to < sizes.most)  # a bound that is too low must not write elsewhere
        tl.store(tensors.columns + to, tl.broadcast_to(block[None, :], (lists, chunk)), mask=fits)
        if how.has_which:
            rows = tl.load(tensors.which + at, mask=kinds == 1, other=-1)
        else:
            rows = tl.full((lists, chunk), -1, tl.int32)
        tl.store(tensors.masks + to, rows, mask=fits)
        taken += tl.sum(used, 1)


@triton.jit
def lengths_at(starts, number, there):
    """How long lists are; 0 for those that are not there."""
    return tl.load(starts + number + 1, mask=there, other=0) - tl.load(starts + number, mask=there, other=0)


@triton.jit
def order_blocks(starts, order, blocks, how: tl.constexpr):
    """Each block at its rank in its head: how many lists are longer, and how many earlier ones as long."""
    rows: tl.constexpr = how.rows
    chunk: tl.constexpr = how.chunk
    parts = (blocks + rows - 1) // rows
    of_head = tl.program_id(0) // parts * blocks
    block = tl.program_id(0) % parts * rows + tl.arange(0, rows)
    there = block < blocks
    length = lengths_at(starts, of_head + block, there)[:, None]
    before = tl.zeros((rows, chunk), tl.int32)
    for begin in range(0, blocks, chunk):
        other = begin + tl.arange(0, chunk)  # past the last block: empty and later, so before none
        theirs = lengths_at(starts, of_head + other, other < blocks)[None, :]
        earlier = other[None, :] < block[:, None]
        before += ((theirs > length) | ((theirs == length) & earlier)).to(tl.int32)
    tl.store(order + of_head + tl.sum(before, 1), block, mask=there)


def fill(kinds: Tensor, which: Tensor | None, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """(starts, columns, masks) of the lists by query block; see firstlight.kernels.block_attention.lists.Lists."""
    return _filled(kinds, which, most, FillHow(4, 256, turned=False, has_which=which is not None))


def fill_turned(kinds: Tensor, which: Tensor | None, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same by key block, from the same tensors: nothing is transposed in memory."""
    return _filled(kinds, which, most, FillHow(32, 64, turned=True, has_which=which is not None))


def _filled(kinds: Tensor, which: Tensor | None, most: int, how: FillHow) -> tuple[Tensor, Tensor, Tensor]:
    kinds = kinds.contiguous()
    batch, heads, q_blocks, k_blocks = kinds.shape
    rows, device, room = batch * heads * (k_blocks if how.turned else q_blocks), kinds.device, max(most, 1)
    starts = torch.zeros(rows + 1, dtype=torch.int32, device=device)
    columns = torch.empty(room, dtype=torch.int32, device=device)  # most of it may never be used
    masks = torch.empty(room, dtype=torch.int32, device=device)
    if kinds.numel() == 0:
        return starts, columns, masks
    tensors = FillTensors(kinds, starts if which is None else which.contiguous(), starts, columns, masks)
    sizes, grid = FillSizes(q_blocks, k_blocks, batch * heads, most), -(-rows // how.lists)
    runner_for(count_spec(how), device)(grid, (tensors, sizes, None))
    torch.cumsum(starts, 0, dtype=torch.int32, out=starts)
    runner_for(fill_spec(how), device)(grid, (tensors, sizes, None))
    return starts if most >= kinds.numel() else starts.clamp_(max=most), columns, masks


def order_of(starts: Tensor, shape: tuple[int, int]) -> Tensor:
    """The order of `shape`, (heads, blocks of a head): what order_of of lists.py gives, by one kernel."""
    heads, blocks = shape
    if blocks > MOST_RANKED:
        return by_torch.order_of(starts, shape)
    order = torch.empty(shape, dtype=torch.int32, device=starts.device)
    if order.numel() != 0:
        grid = heads * -(-blocks // ORDER.rows)
        runner_for(order_spec(ORDER), starts.device)(grid, (starts, order, blocks, None))
    return order


_TYPES = (FillTensors("*u8", *("*i32",) * 4), FillSizes(*("i32",) * 4))


def count_spec(how: FillHow) -> Spec:
    """The counting kernel as it is compiled."""
    return Spec(count_blocks, (*_TYPES, Constant(how)), (), warps=WARPS, stages=1)


def fill_spec(how: FillHow) -> Spec:
    """The filling kernel as it is compiled."""
    return Spec(fill_blocks, (*_TYPES, Constant(how)), (), warps=WARPS, stages=1)


def order_spec(how: OrderHow) -> Spec:
    """The ordering kernel as it is compiled."""
    return Spec(order_blocks, ("*i32", "*i32", "i32", Constant(how)), (), warps=WARPS, stages=1)

"""The lists of a mask on a GPU: two small kernels around torch's running sum, and nothing for the host to wait for."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.kernels.block_attention.triton.arguments import FillSizes, FillTensors
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.triton_backend.launch import Constant, Spec

WARPS = 4


class FillHow(NamedTuple):
    """What the kernels are compiled for: lists of a program, blocks looked at in one step."""

    lists: int
    chunk: int
    turned: bool  # by key block: the lists lie next to each other in memory, not their blocks
    has_which: bool


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
    """The blocks of each list and their rows of bits, ascending."""
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
            which = tl.load(tensors.which + at, mask=inside, other=0)
            tl.store(tensors.masks + to, tl.where(kinds == 1, which, -1), mask=fits)
        taken += tl.sum(used, 1)


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
    columns = torch.zeros(room, dtype=torch.int32, device=device)
    masks = torch.full((room,), -1, dtype=torch.int32, device=device)
    if kinds.numel() == 0:
        return starts, columns, masks
    tensors = FillTensors(kinds, starts if which is None else which.contiguous(), starts, columns, masks)
    sizes, grid = FillSizes(q_blocks, k_blocks, batch * heads, most), -(-rows // how.lists)
    runner_for(count_spec(how), device)(grid, (tensors, sizes, None))
    torch.cumsum(starts, 0, dtype=torch.int32, out=starts)
    runner_for(fill_spec(how), device)(grid, (tensors, sizes, None))
    return starts.clamp_(max=most), columns, masks


_TYPES = (FillTensors("*u8", *("*i32",) * 4), FillSizes(*("i32",) * 4))


def count_spec(how: FillHow) -> Spec:
    """The counting kernel as it is compiled."""
    return Spec(count_blocks, (*_TYPES, Constant(how)), (), warps=WARPS, stages=1)


def fill_spec(how: FillHow) -> Spec:
    """The filling kernel as it is compiled."""
    return Spec(fill_blocks, (*_TYPES, Constant(how)), (), warps=WARPS, stages=1)

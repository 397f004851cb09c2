"""The k best-scored blocks of each row on a GPU: a search for the k-th score instead of a sort, in one launch.

Scores are compared as whole numbers in the same order. A row stays in registers while the search halves the range in
which its k-th score lies; it ends as soon as k scores are above. Where more are equal to the k-th than there is room
for, the first ones are taken, as a stable sort does.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.kernels.block_attention.bits import FULL
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.triton_backend.launch import Constant, Spec

LONGEST_ROW = 8192  # blocks; longer rows do not fit the registers of a program that runs beside others
ONE_WARP = 2048  # blocks of a row that one warp takes, 64 to a thread: it need not wait for others at every count
A_WARP = 1024  # blocks for each warp of longer rows; with 64 to a thread those of 8192 spill
A_PROGRAM = 256  # blocks of a program where rows are shorter
SHORTEST = 16  # columns of a tile
NEVER = tl.constexpr(-(2**31))  # NaN, -inf and what is not there; no other score is as low


class Format(NamedTuple):
    """How scores lie in memory: as whole numbers of which type, all bits but the sign, the bits of infinity."""

    whole: torch.dtype
    magnitude: int
    infinity: int


FORMATS = {
    torch.float32: Format(torch.int32, 0x7FFFFFFF, 0x7F800000),
    torch.float16: Format(torch.int16, 0x7FFF, 0x7C00),
    torch.bfloat16: Format(torch.int16, 0x7FFF, 0x7F80),
}
_POINTER = {torch.int32: "*i32", torch.int16: "*i16"}


class SelectHow(NamedTuple):
    """What the kernel is compiled for: rows and columns of a tile, and two numbers of Format."""

    rows: int
    width: int
    magnitude: int
    infinity: int


@triton.jit
def keys_of(bits, how: tl.constexpr):
    """Whole numbers in the order of the scores; equal for 0.0 and -0.0."""
    bits = bits.to(tl.int32)
    size = bits & how.magnitude
    # a negative score has the larger number the nearer it is to zero; -0.0 comes out as 0
    key = tl.where(bits < 0, -size, size)
    return tl.where((size > how.infinity) | (key == -how.infinity), NEVER, key)


@triton.jit
def below(low, high, step):
    """How far below `high` to look next: a step, or half the way to `low`; their sum may need 33 bits."""
    half = (low & high) + ((low ^ high) >> 1)
    return tl.minimum(step, high - half)


@triton.jit
def select_blocks(scores, kinds, rows, blocks, k, full, how: tl.constexpr):
    """kinds = full where a score is among the k highest of its row, 0 elsewhere; k is 1 or more."""
    height: tl.constexpr = how.rows
    row = tl.program_id(0) * height + tl.arange(0, height)
    block = tl.arange(0, how.width)
    inside = (row < rows)[:, None] & (block < blocks)[None, :]
    at = row[:, None].to(tl.int64) * blocks + block[None, :]
    # a NaN where there is nothing
    key = keys_of(tl.load(scores + at, mask=inside, other=how.magnitude), how)
    # `found` keys, at least as many as wanted, are low or more; `above` keys, fewer, are high or more
    low = tl.full((height,), -how.infinity, tl.int32)
    high = tl.max(key, 1) + 1
    found = tl.sum((key >= low[:, None]).to(tl.int32), 1)
    above = tl.zeros((height,), tl.int32)
    wanted = tl.minimum(found, k)
    # the k-th score is not far below the highest: steps down from there, each twice as long, until halving is shorter
    step = tl.full((height,), how.magnitude - how.infinity + 1, tl.int32)  # half the highest score, the first time
    down = below(low, high, step)
    while tl.max(((found > wanted) & (high - down > low)).to(tl.int32), 0) != 0:
        middle = high - down
        count = tl.sum((key >= middle[:, None]).to(tl.int32), 1)
        enough = count >= wanted
        low, found = tl.where(enough, middle, low), tl.where(enough, count, found)
        high, above = tl.where(enough, high, middle), tl.where(enough, above, count)
        step = tl.minimum(step, 1 << 29) * 2
        down = below(low, high, step)
    chosen = key >= low[:, None]
    if tl.max(found - wanted, 0) != 0:  # low is the k-th score, and more are equal to it than fit
        equal = key == low[:, None]
        rank = tl.cumsum(equal.to(tl.int32), 1)
        chosen = (chosen & (equal == 0)) | (equal & (rank <= (wanted - above)[:, None]))
    tl.store(kinds + at, tl.where(chosen, full, 0).to(tl.uint8), mask=inside)


def fits(scores: Tensor) -> bool:
    """Whether the kernel takes rows as long as these, of this type."""
    return scores.dtype in FORMATS and scores.shape[3] <= LONGEST_ROW


def best_blocks(scores: Tensor, k: int) -> Tensor:
    """uint8 kinds of scores [B, H, Qb, Kb]: FULL for the k best blocks of each row, e.g. [[2, 0]] for [[1.0, nan]]."""
    kinds = torch.empty(scores.shape, dtype=torch.uint8, device=scores.device)
    if k == 0:
        return kinds.zero_()
    how, whole = how_for(scores), FORMATS[scores.dtype].whole
    rows, blocks = scores.shape[:3].numel(), scores.shape[3]
    args = (scores.contiguous().view(whole), kinds, rows, blocks, min(k, blocks), FULL, None)
    runner_for(select_spec(how, whole), scores.device)(-(-rows // how.rows), args)
    return kinds


def how_for(scores: Tensor) -> SelectHow:
    """The tile for scores of this type and row length, e.g. 1 row of 2048 columns for 1713 blocks."""
    width = max(SHORTEST, triton.next_power_of_2(scores.shape[3]))
    kept = FORMATS[scores.dtype]
    return SelectHow(max(1, A_PROGRAM // width), width, kept.magnitude, kept.infinity)


def select_spec(how: SelectHow, whole: torch.dtype) -> Spec:
    """The kernel as it is compiled."""
    types = (_POINTER[whole], "*u8", *("i32",) * 4, Constant(how))
    return Spec(select_blocks, types, (), warps=1 if how.width <= ONE_WARP else how.width // A_WARP, stages=1)

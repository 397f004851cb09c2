"""Which builds of attention.cu and gradient.cu there are, and what memory each takes."""

from __future__ import annotations

from typing import NamedTuple

from firstlight.kernels.sm90.compile import Variant

BLOCKS = (128, 64)
HEAD_DIMS = (128, 64)
THREADS = 384
BARRIER_BYTES = 1024
ROWS = 128  # query rows of a thread block
_ELEMENT = 2
GRADIENT_BLOCK = 128  # the only one
GRADIENT_TILE = 64  # rows of a stage
_STAGES = {128: 3, 64: 6}  # by head dimension
ONCE_HEAD_DIM = 128  # the only one in one pass
_ONCE_STAGES, _ONCE_DEPTH = 2, 2  # stages in the ring; stages whose part of dq may be on its way
# (tiles in a ring, query tiles) of an engine, by block and head dimension: what fits into 227 KiB. With blocks of 64
# the queries move on into registers, so one place is free again before the next is wanted.
_ROOM = {(128, 128): (4, 2), (128, 64): (8, 2), (64, 128): (5, 1), (64, 64): (8, 1)}


class AttentionBuild(NamedTuple):
    """What attention.cu is compiled for, e.g. AttentionBuild(block=128, head_dim=128, bf16=False)."""

    block: int
    head_dim: int
    bf16: bool

    @property
    def engines(self) -> int:
        """Query blocks that a thread block works on at once."""
        return ROWS // self.block

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a launch, e.g. 230400."""
        slots, seats = _ROOM[self.block, self.head_dim]
        row = self.head_dim * _ELEMENT
        tiles, queries = self.engines * slots * self.block * row, seats * ROWS * row
        return tiles + queries + ROWS * row + BARRIER_BYTES

    @property
    def variant(self) -> Variant:
        """The source and macros; each of the two products stands in the code twice."""
        slots, seats = _ROOM[self.block, self.head_dim]
        defines = (
            ("BLOCK", self.block), ("HEAD", self.head_dim), ("BF16", int(self.bf16)), ("SLOTS", slots), ("SEATS", seats)
        )  # fmt: skip
        return Variant("attention", defines, hgmma=2 * (self.head_dim // 16) + 2 * (self.block // 16))


class GradientBuild(NamedTuple):
    """What gradient.cu is compiled for, e.g. GradientBuild(by_key=True, head_dim=128, bf16=False)."""

    by_key: bool
    head_dim: int
    bf16: bool

    @property
    def shared_bytes(self) -> int:
        """Two seats of two operands, stages of two tiles with their sums, barriers."""
        row = self.head_dim * _ELEMENT
        stage = 2 * GRADIENT_TILE * row + 2 * GRADIENT_TILE * 4
        return 4 * GRADIENT_BLOCK * row + _STAGES[self.head_dim] * stage + BARRIER_BYTES

    @property
    def variant(self) -> Variant:
        """The source and macros; each product stands in the code once."""
        defines = (
            ("KEYSIDE", int(self.by_key)), ("HEAD", self.head_dim), ("BF16", int(self.bf16)),
            ("STAGES", _STAGES[self.head_dim]),
        )  # fmt: skip
        sums = 2 if self.by_key else 1
        return Variant("gradient", defines, hgmma=2 * (self.head_dim // 16) + sums * (GRADIENT_TILE // 16))


class OnceBuild(NamedTuple):
    """What gradient_once.cu and gradient_rows.cu are compiled for, e.g. OnceBuild(bf16=False)."""

    bf16: bool

    @property
    def shared_bytes(self) -> int:
        """A seat of two operands, stages of two tiles with their sums, D of two stages, sums on their way, barriers."""
        row = ONCE_HEAD_DIM * _ELEMENT
        stage = 2 * GRADIENT_TILE * row + 2 * GRADIENT_TILE * 4
        differences, sums = GRADIENT_BLOCK * GRADIENT_TILE * _ELEMENT, GRADIENT_TILE * ONCE_HEAD_DIM * 4
        seat = 2 * GRADIENT_BLOCK * row
        return seat + _ONCE_STAGES * stage + 2 * differences + _ONCE_DEPTH * sums + BARRIER_BYTES

    @property
    def variant(self) -> Variant:
        """The source and macros; each of the five products stands in the code once."""
        defines = (
            ("HEAD", ONCE_HEAD_DIM), ("BF16", int(self.bf16)), ("STAGES", _ONCE_STAGES), ("DEPTH", _ONCE_DEPTH)
        )  # fmt: skip
        contracted = 2 * ONCE_HEAD_DIM + 2 * GRADIENT_TILE + GRADIENT_BLOCK
        return Variant("gradient_once", defines, hgmma=contracted // 16)

    @property
    def rows(self) -> Variant:
        """What makes dq of the sums."""
        return Variant("gradient_rows", (("HEAD", ONCE_HEAD_DIM), ("BF16", int(self.bf16))))


def once_builds() -> tuple[OnceBuild, ...]:
    """Both."""
    return OnceBuild(bf16=False), OnceBuild(bf16=True)


def gradient_builds() -> tuple[GradientBuild, ...]:
    """All eight."""
    return tuple(
        GradientBuild(by_key, head_dim, bf16)
        for by_key in (False, True)
        for head_dim in HEAD_DIMS
        for bf16 in (False, True)
    )


def attention_builds() -> tuple[AttentionBuild, ...]:
    """All eight."""
    return tuple(
        AttentionBuild(block, head_dim, bf16) for block in BLOCKS for head_dim in HEAD_DIMS for bf16 in (False, True)
    )

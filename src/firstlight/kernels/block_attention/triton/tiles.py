"""Which tiles an attention kernel takes: data, by GPU family, element size, block and head dimension.

Chosen with the compilers alone: the largest tile that fits shared memory and registers with and without partial blocks
and ragged ends (tests/kernels/block_attention/test_att_triton_compiled.py reads what they give). Not timed on a GPU
yet: benchmarks/attention/tune.py times `candidates` there and prints the fastest as rows of these tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from firstlight.kernels.triton_backend.tiles import Family


class Pass(enum.Enum):
    """The kernels that have a tile."""

    FORWARD = "forward"
    DQ = "dq"
    DKDV = "dkdv"


class Tile(NamedTuple):
    """Query rows, keys, warps and buffers, e.g. 128 rows x 64 keys, 8 warps, 3 buffers."""

    bm: int
    bn: int
    warps: int
    stages: int


Widths = dict[int, Tile]  # by the head dimension rounded up to a power of two; 64 stands for 16 and 32 too
Table = dict[Pass, dict[int, Widths]]  # by block

# 16-bit elements.
# SM90: a warpgroup computes 64 rows, so 128 rows are 8 warps. What bounds a tile are registers: a thread of the forward
# kernel holds 64 numbers of the sum and 64 logits at width 128, one of dkdv 128 numbers of two sums and 64 of p and dp.
_SM90: Table = {
    Pass.FORWARD: {
        128: {64: Tile(128, 128, 8, 3), 128: Tile(128, 128, 8, 2), 256: Tile(128, 64, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 64, 8, 2)},
    },
    Pass.DQ: {
        128: {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 3), 256: Tile(64, 64, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 64, 8, 2)},
    },
    Pass.DKDV: {
        128: {64: Tile(64, 128, 8, 3), 128: Tile(64, 128, 8, 3), 256: Tile(32, 64, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(32, 64, 4, 3), 256: Tile(32, 64, 8, 2)},
    },
}
# SM80: operands that stay (q, or k and v) live in registers too, so tiles are smaller.
_SM80: Table = {
    Pass.FORWARD: {
        128: {64: Tile(128, 128, 8, 3), 128: Tile(128, 64, 8, 3), 256: Tile(128, 32, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 32, 4, 3)},
    },
    Pass.DQ: {
        128: {64: Tile(128, 64, 8, 3), 128: Tile(64, 64, 8, 2), 256: Tile(64, 64, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 2), 256: Tile(64, 64, 8, 2)},
    },
    Pass.DKDV: {
        128: {64: Tile(32, 128, 8, 3), 128: Tile(64, 64, 8, 2), 256: Tile(32, 64, 8, 1)},
        64: {64: Tile(32, 64, 4, 3), 128: Tile(64, 64, 8, 2), 256: Tile(32, 64, 8, 1)},
    },
}
# SM86: the same with 99 KiB.
_SM86: Table = {
    Pass.FORWARD: {
        128: {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 2), 256: Tile(64, 32, 4, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 32, 8, 2)},
    },
    Pass.DQ: {
        128: {64: Tile(128, 64, 8, 3), 128: Tile(64, 64, 8, 2), 256: Tile(64, 32, 8, 1)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 8, 2), 256: Tile(64, 32, 8, 1)},
    },
    Pass.DKDV: {
        128: {64: Tile(32, 128, 8, 3), 128: Tile(64, 64, 8, 2), 256: Tile(32, 32, 8, 1)},
        64: {64: Tile(32, 64, 4, 3), 128: Tile(64, 64, 8, 2), 256: Tile(32, 32, 8, 1)},
    },
}
# SM100: sums live in tensor memory, 512 columns of it.
_SM100: Table = {
    Pass.FORWARD: {
        128: {64: Tile(128, 128, 8, 3), 128: Tile(128, 128, 8, 2), 256: Tile(128, 64, 8, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 32, 4, 3)},
    },
    Pass.DQ: {
        128: {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 2), 256: Tile(64, 64, 4, 2)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(64, 64, 4, 2)},
    },
    Pass.DKDV: {
        128: {64: Tile(64, 128, 8, 3), 128: Tile(64, 128, 8, 3), 256: Tile(32, 64, 8, 1)},
        64: {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(32, 64, 8, 1)},
    },
}
_TABLES: dict[Family, Table] = {Family.SM80: _SM80, Family.SM86: _SM86, Family.SM90: _SM90, Family.SM100: _SM100}

# float32, every family and block: fused multiply-adds, unrolled, so that large tiles cost minutes of compiling; tf32
# where torch's settings allow it.
_FLOAT32: dict[Pass, Widths] = {
    Pass.FORWARD: {64: Tile(32, 32, 4, 2), 128: Tile(32, 32, 4, 2), 256: Tile(16, 16, 4, 2)},
    Pass.DQ: {64: Tile(32, 32, 4, 1), 128: Tile(32, 32, 4, 1), 256: Tile(16, 16, 4, 1)},
    Pass.DKDV: {64: Tile(16, 32, 4, 1), 128: Tile(16, 32, 4, 1), 256: Tile(16, 16, 4, 1)},
}


def width_of(head_dim: int) -> int:
    """The head dimension rounded up to a power of two, e.g. 128 for 96."""
    return max(16, 1 << (head_dim - 1).bit_length())


def choose_tile(which: Pass, family: Family, *, element_bytes: int, head_dim: int, block: int) -> Tile:
    """The table's tile, e.g. 128 x 128 with 8 warps and 2 buffers for a float16 forward pass at 128 on an H200."""
    widths = _FLOAT32[which] if element_bytes == 4 else _TABLES[family][which][block]
    return widths[max(64, width_of(head_dim))]


def candidates(which: Pass, *, block: int) -> Iterator[Tile]:
    """Tiles worth timing for 16-bit elements; the compiler says which of them fit."""
    large, small = ("bn", "bm") if which is Pass.DKDV else ("bm", "bn")  # the side that stays is not the smaller one
    for stays, walks, warps, stages in product((128, 64), (128, 64, 32), (4, 8), (1, 2, 3, 4)):
        if stays <= block and walks <= min(block, stays * 2):
            yield Tile(**{large: stays, small: walks, "warps": warps, "stages": stages})

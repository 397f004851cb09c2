"""Which tile a product takes: data, by GPU family, block, element size, number of tokens, layout and density."""

from __future__ import annotations

import enum
from typing import NamedTuple

from firstlight.kernels.product import Layout


class Family(enum.Enum):
    """GPUs that share a table; what counts is shared memory per program and which matrix instructions there are."""

    SM80 = "sm80"  # 163 KiB, mma.sync, cp.async: A100
    SM86 = "sm86"  # 99 KiB, mma.sync: 8.6, 8.9, 12.x (which also has TMA)
    SM90 = "sm90"  # 227 KiB, wgmma, TMA: H100, H200
    SM100 = "sm100"  # 227 KiB, tcgen05, TMA: B200


SHARED_BYTES = {Family.SM80: 166_912, Family.SM86: 101_376, Family.SM90: 232_448, Family.SM100: 232_448}


class Walk(enum.Enum):
    """What one program owns."""

    ROWS = "rows"  # one block row, entry by entry
    GROUPS = "groups"  # several block rows, over the union of their columns: packed first, see groups.py


class Tile(NamedTuple):
    """How a product is cut, e.g. 128 rows x 256 tokens, 64 elements per step, 8 warps, 4 buffers."""

    walk: Walk
    height: int  # rows of W per program: the block, or block rows of a group times the block
    bn: int  # tokens per program
    bk: int  # elements of the contraction per step
    warps: int
    stages: int
    super_tile: int  # token tiles that all rows go through before the next ones, so that their slab stays in L2
    tokens_first: bool = False  # the accumulator is [tokens, rows]
    turned: bool = (
        False  # groups, linear layout: the dense operand is transposed first, so that its rows are gathered whole
    )


class Row(NamedTuple):
    """A tile, up to how many tokens and which density it is taken, and in which layout (None: in both)."""

    tokens_to: int
    tile: Tile
    layout: Layout | None = None
    density_to: float = 1.0

    def fits(self, tokens: int, layout: Layout, density: float) -> bool:
        return tokens <= self.tokens_to and density <= self.density_to and self.layout in (None, layout)


ANY = 1 << 62
_R, _G = Walk.ROWS, Walk.GROUPS
Table = dict[int, tuple[Row, ...]]

# 16-bit elements. The first row that fits is taken.
# SM90: the fastest on an H200 of the candidates in results/kernels-tuning-h200.json: 8192 x 8192, 8192 tokens in both
# layouts at densities 0.1 and 0.5 (blocks 32 and 16: 0.3), fewer tokens in the linear layout at 0.1. A row has a
# density where that buys more than 3 %; where two tiles meet is interpolated: by rows in the entries, by groups in the
# share of columns that a group uses. Between measured numbers of tokens stands the tile with which 8192 rows still
# give every multiprocessor two programs.
_LINEAR, _COLUMNS = Layout.TOKENS, Layout.COLUMNS
_SM90: Table = {
    128: (
        Row(16, Tile(_R, 128, 16, 64, 4, 6, 1)),
        Row(64, Tile(_R, 128, 32, 128, 4, 4, 1)),
        Row(256, Tile(_R, 128, 64, 64, 4, 4, 4)),
        Row(512, Tile(_R, 128, 128, 64, 4, 3, 4)),
        Row(ANY, Tile(_R, 128, 256, 64, 8, 4, 4), _COLUMNS),
        Row(ANY, Tile(_R, 128, 128, 64, 4, 3, 8), _LINEAR),
    ),
    64: (
        Row(16, Tile(_R, 64, 16, 64, 4, 4, 1)),
        Row(64, Tile(_R, 64, 32, 64, 4, 6, 1)),
        Row(256, Tile(_R, 64, 64, 64, 4, 5, 4)),
        Row(512, Tile(_R, 64, 128, 64, 4, 3, 4)),
        Row(ANY, Tile(_R, 64, 256, 32, 4, 4, 2), _COLUMNS),
        Row(ANY, Tile(_R, 64, 256, 32, 4, 4, 2), _LINEAR, 0.25),
        Row(ANY, Tile(_R, 64, 256, 64, 8, 4, 2), _LINEAR),
    ),
    32: (
        Row(16, Tile(_R, 32, 16, 32, 1, 6, 1)),
        Row(64, Tile(_R, 32, 32, 32, 2, 6, 1)),
        Row(1024, Tile(_R, 32, 128, 32, 4, 6, 4, tokens_first=True)),
        Row(ANY, Tile(_R, 32, 256, 32, 8, 5, 2, tokens_first=True), _COLUMNS),
        Row(ANY, Tile(_R, 32, 256, 32, 8, 5, 2, tokens_first=True), _LINEAR, 0.25),
        Row(ANY, Tile(_G, 128, 256, 64, 8, 3, 4), _LINEAR),
    ),
    16: (
        Row(16, Tile(_R, 16, 16, 16, 1, 6, 1)),
        Row(64, Tile(_R, 16, 64, 16, 2, 6, 1)),
        Row(512, Tile(_R, 16, 128, 16, 4, 6, 2, tokens_first=True)),
        Row(1024, Tile(_G, 64, 256, 64, 4, 4, 4), _LINEAR),
        Row(ANY, Tile(_G, 128, 256, 64, 8, 3, 4), _LINEAR),
        Row(ANY, Tile(_R, 16, 256, 16, 8, 6, 2, tokens_first=True), _COLUMNS, 0.15),
        Row(ANY, Tile(_G, 64, 256, 32, 4, 5, 4), _COLUMNS, 0.25),
        Row(ANY, Tile(_G, 128, 256, 64, 8, 4, 2), _COLUMNS),
    ),
}
# Not measured: the starting points from which the SM90 table was found.
_SM100: Table = {
    128: (
        Row(16, Tile(_R, 128, 16, 128, 4, 4, 1)),
        Row(32, Tile(_R, 128, 32, 128, 4, 4, 1)),
        Row(64, Tile(_R, 128, 64, 64, 4, 5, 1)),
        Row(256, Tile(_R, 128, 128, 64, 4, 3, 2)),
        Row(ANY, Tile(_R, 128, 256, 64, 8, 4, 4)),
    ),
    64: (
        Row(16, Tile(_R, 64, 16, 64, 4, 6, 1)),
        Row(32, Tile(_R, 64, 32, 64, 4, 6, 1)),
        Row(64, Tile(_R, 64, 64, 64, 4, 5, 1)),
        Row(256, Tile(_R, 64, 128, 64, 4, 4, 2)),
        Row(ANY, Tile(_R, 64, 256, 64, 4, 5, 4)),
    ),
    32: (
        Row(16, Tile(_R, 32, 16, 32, 2, 6, 1)),
        Row(32, Tile(_R, 32, 32, 32, 2, 6, 1)),
        Row(512, Tile(_R, 32, 64, 32, 4, 6, 1)),
        Row(ANY, Tile(_G, 64, 256, 64, 4, 4, 4)),
    ),
    16: (
        Row(16, Tile(_R, 16, 16, 16, 1, 6, 1)),
        Row(32, Tile(_R, 16, 32, 16, 1, 6, 1)),
        Row(512, Tile(_R, 16, 64, 16, 2, 6, 1)),
        Row(ANY, Tile(_G, 64, 256, 64, 4, 4, 4)),
    ),
}
_SM80: Table = {
    128: (
        Row(16, Tile(_R, 128, 16, 64, 4, 4, 1)),
        Row(64, Tile(_R, 128, 64, 64, 4, 4, 1)),
        Row(ANY, Tile(_R, 128, 128, 64, 8, 4, 4)),
    ),
    64: (
        Row(16, Tile(_R, 64, 16, 64, 4, 5, 1)),
        Row(64, Tile(_R, 64, 64, 64, 4, 5, 1)),
        Row(ANY, Tile(_R, 64, 128, 64, 4, 4, 4)),
    ),
    32: (
        Row(16, Tile(_R, 32, 16, 32, 2, 5, 1)),
        Row(512, Tile(_R, 32, 64, 32, 4, 5, 1)),
        Row(ANY, Tile(_G, 64, 128, 64, 4, 4, 4)),
    ),
    16: (
        Row(16, Tile(_R, 16, 16, 16, 1, 5, 1)),
        Row(512, Tile(_R, 16, 64, 16, 2, 5, 1)),
        Row(ANY, Tile(_G, 64, 128, 64, 4, 4, 4)),
    ),
}
_SM86: Table = {
    128: (
        Row(16, Tile(_R, 128, 16, 64, 4, 4, 1)),
        Row(64, Tile(_R, 128, 64, 32, 4, 4, 1)),
        Row(ANY, Tile(_R, 128, 128, 32, 8, 4, 4)),
    ),
    64: (
        Row(16, Tile(_R, 64, 16, 64, 4, 5, 1)),
        Row(64, Tile(_R, 64, 64, 64, 4, 4, 1)),
        Row(ANY, Tile(_R, 64, 128, 64, 4, 3, 4)),
    ),
    32: (
        Row(16, Tile(_R, 32, 16, 32, 2, 5, 1)),
        Row(512, Tile(_R, 32, 64, 32, 4, 5, 1)),
        Row(ANY, Tile(_G, 64, 128, 64, 4, 3, 4)),
    ),
    16: (
        Row(16, Tile(_R, 16, 16, 16, 1, 5, 1)),
        Row(512, Tile(_R, 16, 64, 16, 2, 5, 1)),
        Row(ANY, Tile(_G, 64, 128, 64, 4, 3, 4)),
    ),
}
# 32-bit elements, every family: exact float32 has no matrix instruction, so registers bound the tile; tf32 is the same.
_FLOAT32: Table = {
    128: (Row(16, Tile(_R, 128, 16, 32, 4, 3, 1)), Row(ANY, Tile(_R, 128, 64, 16, 8, 3, 4))),
    64: (Row(16, Tile(_R, 64, 16, 32, 4, 3, 1)), Row(ANY, Tile(_R, 64, 64, 32, 8, 3, 4))),
    32: (Row(16, Tile(_R, 32, 16, 32, 2, 3, 1)), Row(ANY, Tile(_R, 32, 64, 32, 4, 3, 4))),
    16: (Row(16, Tile(_R, 16, 16, 16, 1, 3, 1)), Row(ANY, Tile(_R, 16, 64, 16, 2, 3, 4))),
}
TABLES: dict[Family, Table] = {
    Family.SM80: _SM80,
    Family.SM86: _SM86,
    Family.SM90: _SM90,
    Family.SM100: _SM100,
}


class SampledTile(NamedTuple):
    """How one sampled block is computed: tokens per step, warps, buffers."""

    bk: int
    warps: int
    stages: int


_SAMPLED_SM90 = {
    128: SampledTile(64, 8, 4),
    64: SampledTile(64, 4, 5),
    32: SampledTile(64, 2, 5),
    16: SampledTile(64, 1, 5),
}
_SAMPLED_SM86 = {
    128: SampledTile(32, 8, 4),
    64: SampledTile(64, 4, 4),
    32: SampledTile(64, 2, 4),
    16: SampledTile(64, 1, 4),
}
SAMPLED: dict[Family, dict[int, SampledTile]] = {
    Family.SM80: _SAMPLED_SM86 | {128: SampledTile(64, 8, 4)},
    Family.SM86: _SAMPLED_SM86,
    Family.SM90: _SAMPLED_SM90,
    Family.SM100: _SAMPLED_SM90,
}
SAMPLED_FLOAT32 = {
    128: SampledTile(16, 8, 3),
    64: SampledTile(32, 4, 3),
    32: SampledTile(32, 2, 3),
    16: SampledTile(32, 1, 3),
}


def family_of(capability: tuple[int, int]) -> Family:
    """The table for a GPU, e.g. SM90 for (9, 0) and SM86 for (8, 9)."""
    if capability[0] == 9:
        return Family.SM90
    if capability[0] in (10, 11):
        return Family.SM100
    return Family.SM80 if capability in ((8, 0), (8, 7)) else Family.SM86


def choose_tile(family: Family, block: int, *, element_bytes: int, tokens: int, layout: Layout, density: float) -> Tile:
    """The tile for a product with that many tokens, e.g. 128 x 256 x 64 for block 128 and 8192 tokens on an H200.

    density: stored blocks over all blocks, which the host knows without looking at the lists.
    """
    table = (TABLES[family] if element_bytes == 2 else _FLOAT32)[block]
    return next(row.tile for row in table if row.fits(tokens, layout, density))


def choose_sampled_tile(family: Family, block: int, *, element_bytes: int) -> SampledTile:
    """The tile for one sampled block."""
    return (SAMPLED[family] if element_bytes == 2 else SAMPLED_FLOAT32)[block]

"""Which kernels there are: every build of multiply, sample, turn, pitch, lists and mask_lists (.cu) there is."""

from __future__ import annotations

from typing import NamedTuple

from firstlight.kernels.pattern import BLOCKS
from firstlight.kernels.sm90.compile import Variant

THREADS = 384  # roles.cuh
TURN_THREADS = 128  # turn.cu
TURN_SIDE = 64
PITCH_THREADS = 256  # pitch.cu
HEIGHT = 128  # rows of W in an item
A_BYTES = HEIGHT * 64 * 2  # roles.cuh: one stage's share of the stored blocks
CHUNK_BYTES = 64 * 64 * 2
BARRIER_BYTES = 1024
MOST_SHARED_BYTES = 232_448  # of a thread block on sm_90: 227 KiB
NARROWEST_BY_TOKEN = 64  # smaller blocks read X with its tokens contiguous, but for those of 32 with short rows
SHORT_ROWS = 32


class Tile(NamedTuple):
    """Tokens of an item, stages of the ring, chunks of the result with staging room of their own."""

    tokens: int
    stages: int
    store_chunks: int
    cluster: int = 1  # thread blocks side by side that load W for each other

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a launch, e.g. 230400."""
        stage = A_BYTES + self.tokens * 128
        return self.stages * stage + 2 * self.store_chunks * CHUNK_BYTES + BARRIER_BYTES


NARROW = Tile(tokens=64, stages=8, store_chunks=1)
WIDE = Tile(tokens=256, stages=4, store_chunks=2)
PAIR = Tile(tokens=256, stages=4, store_chunks=2, cluster=2)  # for blocks of 64 and 128
SAMPLED = Tile(tokens=256, stages=4, store_chunks=0)
TILES = (WIDE, PAIR, NARROW)
TURN = Variant("turn")
LISTS = Variant("lists")  # a launch for each phase
LISTS_CLUSTER = 8  # thread blocks that make lists in one launch: as many as every GPU of compute capability 9.0 takes
LISTS_AT_ONCE = Variant("lists", (("CLUSTER", LISTS_CLUSTER),))
MASK_LISTS = Variant("mask_lists", (("CLUSTER", LISTS_CLUSTER),))
PITCH = Variant("pitch")


class Build(NamedTuple):
    """What multiply.cu is compiled for besides the tile."""

    block: int
    bf16: bool
    tokens: bool  # X is [n, cols] and the result [n, rows]; else [batch, cols, n] and [batch, rows, n]
    turned: bool  # each stored block is used as its transpose
    short_rows: bool = False  # X is [n, cols] and read so with blocks of 32 too, in rows of 64 bytes


def multiply_variant(build: Build, tile: Tile) -> Variant:
    """multiply.cu for a build and a tile."""
    x_by_token = build.tokens and (build.block >= NARROWEST_BY_TOKEN or build.short_rows)
    defines: tuple[tuple[str, str | int], ...] = (
        ("BLOCK", build.block), ("TOKENS", tile.tokens), ("BF16", int(build.bf16)), ("X_BY_TOKEN", int(x_by_token)),
        ("OUT_BY_TOKEN", int(build.tokens)), ("TURNED", int(build.turned)), ("STAGES", tile.stages),
        ("STORE_CHUNKS", tile.store_chunks),
    )  # fmt: skip
    if tile.cluster > 1:
        defines += (("CLUSTER", tile.cluster),)
    return Variant("multiply", defines, hgmma=_products(build.block))


def _products(block: int) -> int:
    """How many wgmma instructions the machine code has: four or fewer for a step, twice where its code stands twice."""
    if block < NARROWEST_BY_TOKEN:  # two sets of registers take turns
        return 2 * (block // 16)
    return 8  # an item's first products stand apart: they need no zeros to add to


def sample_variant(block: int, *, bf16: int, by_token: int) -> Variant:
    """sample.cu for a block; bf16 and by_token are 0 or 1."""
    assert not by_token or block >= NARROWEST_BY_TOKEN, f"block is {block}"
    defines = (
        ("BLOCK", block), ("TOKENS", SAMPLED.tokens), ("BF16", bf16), ("BY_TOKEN", by_token),
        ("STAGES", SAMPLED.stages), ("STORE_CHUNKS", SAMPLED.store_chunks),
    )  # fmt: skip
    return Variant("sample", defines, hgmma=4)


def all_variants() -> tuple[Variant, ...]:
    """Every variant with the number of wgmma instructions its machine code must have; 105 of them."""
    either = (0, 1)
    short = [
        multiply_variant(Build(SHORT_ROWS, bool(bf16), tokens=True, turned=bool(turned), short_rows=True), tile)
        for bf16 in either for turned in either for tile in (WIDE, NARROW)
    ]  # fmt: skip
    multiplying = [
        multiply_variant(Build(block, bool(bf16), bool(tokens), bool(turned)), tile)
        for block in BLOCKS for bf16 in either for tokens in either for turned in either
        for tile in TILES if tile is not PAIR or block >= NARROWEST_BY_TOKEN
    ]  # fmt: skip
    sampling = [
        sample_variant(block, bf16=bf16, by_token=by_token)
        for block in BLOCKS for bf16 in either for by_token in either if not by_token or block >= NARROWEST_BY_TOKEN
    ]  # fmt: skip
    return (*multiplying, *short, *sampling, TURN, PITCH, LISTS, LISTS_AT_ONCE, MASK_LISTS)

"""The list of kernels: each once, each within what a multiprocessor has."""

from __future__ import annotations

import pytest

from firstlight.kernels.sm90.attention_variants import attention_builds, gradient_builds, once_builds
from firstlight.kernels.sm90.compile import SOURCES
from firstlight.kernels.sm90.variants import (
    A_BYTES,
    CHUNK_BYTES,
    MOST_SHARED_BYTES,
    SAMPLED,
    THREADS,
    TILES,
    TURN_SIDE,
    TURN_THREADS,
    Build,
    Tile,
    all_variants,
    multiply_variant,
    sample_variant,
)


def test_every_variant_is_listed_once() -> None:
    variants = all_variants()
    assert len(variants) == len(set(variants)) == 105
    sources = {variant.source for variant in variants} | {build.variant.source for build in attention_builds()}
    sources |= {build.variant.source for build in gradient_builds()}
    sources |= {variant.source for build in once_builds() for variant in (build.variant, build.rows)}
    assert sources == {path.stem for path in SOURCES.glob("*.cu")}
    assert multiply_variant(Build(64, bf16=True, tokens=True, turned=False), TILES[0]) in variants
    assert sample_variant(16, bf16=0, by_token=0) in variants


def test_the_wgmma_counts_follow_from_block_and_tile() -> None:
    told = [(variant.source, dict(variant.defines), variant.hgmma) for variant in all_variants()]
    counts = {(source, defines.get("BLOCK"), defines.get("TOKENS")): count for source, defines, count in told}
    large = [counts.pop(("multiply", block, tokens)) for block in (64, 128) for tokens in (64, 256)]
    assert large == [8, 8, 8, 8]  # an item's first products stand by themselves
    assert [counts.pop((source, None, None)) for source in ("turn", "pitch", "lists", "mask_lists")] == [0] * 4
    assert [counts.pop(("multiply", 16, tokens)) for tokens in (64, 256)] == [2, 2]
    assert set(counts.values()) == {4}


def test_only_products_read_blocks_below_64_by_token_and_of_these_only_32() -> None:
    for variant in all_variants():
        told = dict(variant.defines)
        if told.get("X_BY_TOKEN"):
            assert int(told["BLOCK"]) >= 32
        if told.get("BY_TOKEN"):
            assert int(told["BLOCK"]) >= 64
    with pytest.raises(AssertionError, match="block is 32"):
        sample_variant(32, bf16=0, by_token=1)


@pytest.mark.parametrize("tile", [*TILES, SAMPLED])
def test_a_tile_fits_into_shared_memory(tile: Tile) -> None:
    assert tile.shared_bytes <= MOST_SHARED_BYTES
    assert tile.store_chunks <= tile.tokens // 64


def test_the_numbers_are_those_of_the_source() -> None:
    turn = (SOURCES / "turn.cu").read_text(encoding="utf-8")
    assert f"constexpr int THREADS = {TURN_THREADS};" in turn
    assert f"constexpr int SIDE = {TURN_SIDE}," in turn
    roles = (SOURCES / "roles.cuh").read_text(encoding="utf-8")
    assert f"constexpr int THREADS = {THREADS};" in roles
    assert "constexpr int A_BYTES = 128 * 64 * 2;" in roles
    assert A_BYTES == 128 * 64 * 2
    assert "constexpr int CHUNK_BYTES = 64 * 64 * 2;" in roles
    assert CHUNK_BYTES == 64 * 64 * 2

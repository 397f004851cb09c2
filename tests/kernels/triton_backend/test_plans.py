"""Tiles are well formed, rows are split where that helps, and what cannot run says so."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch

from firstlight.errors import UnsupportedInput
from firstlight.kernels import triton_backend
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import PLAIN, Layout
from firstlight.kernels.triton_backend.problem import require_one_dtype
from firstlight.kernels.triton_backend.rows_plan import portion_limit, rows_traits
from firstlight.kernels.triton_backend.tiles import Family, Tile, Walk, choose_tile, family_of
from tests.kernels.triton_backend.specs import PLAIN as PROBLEM

BLOCKS = (16, 32, 64, 128)
TUNING = Path(__file__).parents[3] / "results" / "kernels-tuning-h200.json"


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_every_tile_is_made_of_whole_blocks(family: Family, element_bytes: int) -> None:
    asked = product(BLOCKS, (1, 16, 17, 64, 256, 257, 1024, 8192, 1 << 20), Layout, (0.0, 0.1, 0.2, 0.3, 1.0))
    for block, tokens, layout, density in asked:
        tile = choose_tile(family, block, element_bytes=element_bytes, tokens=tokens, layout=layout, density=density)
        assert tile.bn in (16, 32, 64, 128, 256)
        if tile.walk is Walk.ROWS:
            assert tile.height == block
            assert block % tile.bk == 0
        else:
            assert tile.height % block == 0
            assert tile.bk % block == 0


def measured() -> dict[tuple[int, str, float], dict[tuple[object, ...], float]]:
    """Milliseconds by tile for each block, layout and density that was tried with 8192 tokens."""
    times: dict[tuple[int, str, float], dict[tuple[object, ...], float]] = {}
    for row in json.loads(TUNING.read_text())["candidates"]:
        if row["tokens"] == 8192:
            times.setdefault((row["block"], row["layout"], row["density"]), {})[tuple(row["tile"])] = row["ms"]
    return times


@pytest.mark.parametrize(("block", "layout", "density"), measured())
def test_an_h200_takes_what_was_fastest_on_it(block: int, layout: str, density: float) -> None:
    """Within 3 % of the best candidate that was measured on 8192 x 8192."""
    times = measured()[block, layout, density]
    tile = choose_tile(Family.SM90, block, element_bytes=2, tokens=8192, layout=Layout(layout), density=density)
    chosen = (tile.walk.value, *tile[1:])
    assert times[chosen] <= 1.03 * min(times.values())


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((8, 0), Family.SM80),
        ((8, 9), Family.SM86),
        ((9, 0), Family.SM90),
        ((10, 0), Family.SM100),
        ((12, 0), Family.SM86),
    ],
)
def test_a_gpu_takes_the_table_of_its_shared_memory(capability: tuple[int, int], family: Family) -> None:
    assert family_of(capability) is family


def test_rows_are_split_for_few_tokens_and_not_for_many() -> None:
    small, large = Tile(Walk.ROWS, 128, 16, 64, 4, 4, 1), Tile(Walk.ROWS, 128, 256, 64, 8, 4, 4)
    few = PROBLEM._replace(n=16, entries=2048)
    assert 0 < portion_limit(few, small, multiprocessors=132) < 32
    assert portion_limit(PROBLEM._replace(entries=2048), large, multiprocessors=132) == 0


def test_a_very_sparse_matrix_has_its_long_rows_split() -> None:
    tile = Tile(Walk.ROWS, 64, 256, 64, 4, 4, 4)
    sparse = PROBLEM._replace(block=64, entries=128 * 2)  # two blocks in a row of 128, if they were even
    assert portion_limit(sparse, tile, multiprocessors=132) == 24
    assert portion_limit(sparse._replace(entries=128 * 13), tile, multiprocessors=132) == 0


def test_boxes_are_not_used_where_a_row_is_no_multiple_of_16_bytes() -> None:
    tile = Tile(Walk.ROWS, 128, 256, 64, 8, 4, 4)
    how = rows_traits(PROBLEM._replace(n=8191), tile, has_boxes=True)
    assert (how.block_tiles, how.dense_tiles, how.out_tiles) == (True, False, False)


def test_boxes_are_not_used_where_one_would_reach_into_the_next_batch() -> None:
    tile = Tile(Walk.ROWS, 128, 256, 64, 8, 4, 4)
    how = rows_traits(PROBLEM._replace(batch=2, cols=8200), tile, has_boxes=True)
    assert (how.block_tiles, how.dense_tiles, how.out_tiles) == (True, False, True)


def test_offsets_inside_a_tile_are_64_bits_where_they_have_to_be() -> None:
    tile = Tile(Walk.ROWS, 128, 256, 64, 8, 4, 4)
    assert not rows_traits(PROBLEM, tile, has_boxes=True).wide
    assert rows_traits(PROBLEM._replace(n=1 << 24), tile, has_boxes=True).wide


def test_tensors_on_the_processor_are_refused_with_what_to_do() -> None:
    matrix = BlockSparseMatrix.random(64, 64, block=16, density=0.5, dtype=torch.float16)
    dense, out = torch.zeros(64, 8).half(), torch.zeros(64, 8).half()
    with pytest.raises(UnsupportedInput, match="tensors are on cpu; a CUDA device is accepted"):
        triton_backend.multiply(matrix.index, matrix.values, dense, out, layout=Layout.COLUMNS, epilogue=PLAIN)


def test_operands_of_two_types_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match=r"values are torch\.float16, the dense operand is torch\.bfloat16"):
        require_one_dtype(torch.float16, torch.bfloat16, torch.bfloat16)

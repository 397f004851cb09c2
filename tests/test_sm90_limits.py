"""What the schedule of a product moves, counted by hand on small matrices; the largest of three times is the limit."""

from __future__ import annotations

import pytest
import torch
from benchmarks.matmul.products import Product
from benchmarks.matmul.sm90.limits import L2_BYTES_PER_S, Rates, Traffic, limit_of, traffic_of

from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.product import Layout


def matrix(block: int, places: list[tuple[int, int]], rows: int, cols: int) -> BlockSparseMatrix:
    mask = torch.zeros(-(-rows // block), -(-cols // block), dtype=torch.bool)
    for row, col in places:
        mask[row, col] = True
    values = torch.ones(len(places), block, block, dtype=torch.float16)
    return BlockSparseMatrix.from_mask(mask, block=block, values=values, shape=(rows, cols))


def test_blocks_of_128_read_a_tile_of_x_for_every_stored_block() -> None:
    product = Product(128, Layout.TOKENS, "fp16", 256, 384, 1024, 0.5)
    found = traffic_of(product, matrix(128, [(0, 0), (0, 2), (1, 2)], 256, 384))
    assert found.x_bytes == 3 * 128 * 1024 * 2
    assert found.w_bytes == 3 * 128 * 128 * 2 * 4  # four tiles of 256 tokens
    assert found.l2_bytes == found.x_bytes + found.w_bytes // 2  # which two thread blocks load for each other
    assert found.hbm_bytes == 2 * (3 * 128 * 128 + 2 * 128 * 1024 + 256 * 1024)  # column 1 is used by no block
    assert found.issued_flops == 2 * 3 * 128 * 128 * 1024


def test_small_blocks_share_a_tile_of_x_and_pay_for_the_rows_beside_them() -> None:
    product = Product(32, Layout.COLUMNS, "fp16", 128, 128, 64, 0.25)
    # rows 0 and 1 are one half of 64 and share column 0; row 3 is the other half
    found = traffic_of(product, matrix(32, [(0, 0), (1, 0), (3, 0), (3, 2)], 128, 128))
    assert found.x_bytes == 2 * 32 * 64 * 2
    assert found.w_bytes == 4 * 32 * 32 * 2
    assert found.issued_flops == 2 * 3 * 64 * 32 * 64


def test_few_tokens_are_padded_to_a_narrow_tile_and_linear_with_small_blocks_turns_x_over() -> None:
    stored = matrix(16, [(0, 0)], 128, 128)
    columns = traffic_of(Product(16, Layout.COLUMNS, "fp16", 128, 128, 16, 0.1), stored)
    tokens = traffic_of(Product(16, Layout.TOKENS, "fp16", 128, 128, 16, 0.1), stored)
    assert columns.issued_flops == 2 * 64 * 16 * 64
    assert tokens.hbm_bytes - columns.hbm_bytes == 2 * 2 * 128 * 16


@pytest.mark.parametrize(
    ("traffic", "name", "seconds"),
    [
        (Traffic(0, 0, int(4e12), 0), "HBM", 1.0),
        (Traffic(int(2 * L2_BYTES_PER_S), 0, 0, 0), "L2", 2.0),
        (Traffic(0, 0, 0, int(3e15)), "tensor", 3.0),
    ],
)
def test_the_largest_of_three_times_is_the_limit(traffic: Traffic, name: str, seconds: float) -> None:
    found, which = limit_of(traffic, Rates({"fp16": 1e15}, 4e12), "fp16")
    assert which == name
    assert found == pytest.approx(seconds)

"""What a product cannot be faster than on an H200, by three models: memory, L2 cache, tensor cores.

HBM     every byte of the stored blocks, of X and of the result once, at the copy bandwidth of the same run
L2      what the schedule reads of L2 for shared memory, and every byte of HBM traffic, which passes L2 too
tensor  the products that are issued, at the rate cuBLAS has on dense random data in the same run

Partial sums of rows in portions are not counted, nor what a launch takes by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.matmul.products import Product

from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.sm90.lists import step_width, steps_of
from firstlight.kernels.sm90.multiply_plan import tile_of
from firstlight.kernels.sm90.problem import Problem

# A little over the most that any product moved through L2 on an H200: block 64, density 0.1, bf16, 10.5 TB/s. Loads
# alone reached 9.6 at block 16.
L2_BYTES_PER_S = 10.6e12
HEIGHT = 128
MULTIPROCESSORS = 132  # of an H200, which the limits are of
THROUGH_REGISTERS = 32  # blocks up to this size: a half of 64 rows multiplies a column that any of its block rows has


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the schedule of one product says, before it ran."""

    x_bytes: int  # tiles of X into shared memory
    w_bytes: int  # stored blocks into shared memory
    hbm_bytes: int  # stored blocks, used rows of X and the result, once each; X turned over where it is
    issued_flops: int  # padding of tokens and of union lists included
    sharing: int = 1  # thread blocks that get the stored blocks by one read of L2

    @property
    def tile_bytes(self) -> int:
        """Bytes into shared memory."""
        return self.x_bytes + self.w_bytes

    @property
    def l2_bytes(self) -> int:
        """Bytes that L2 is read for them."""
        return self.x_bytes + self.w_bytes // self.sharing


@dataclass(frozen=True, slots=True)
class Rates:
    """What the same run measured: cuBLAS on random data, flop/s by dtype, and a copy's bytes/s."""

    cublas: dict[str, float]
    copy: float


def traffic_of(product: Product, matrix: BlockSparseMatrix) -> Traffic:
    """The traffic of matrix times tokens; reads the lists, so the host waits."""
    index, block, n = matrix.index, product.block, product.tokens
    problem = problem_of(product, matrix)
    tile = tile_of(problem, MULTIPROCESSORS)
    tokens = tile.tokens
    tiles = -(-n // tokens)
    steps = steps_of(index, width=step_width(block), grouped=True)
    count = int(steps.starts[-1])
    width = step_width(block)
    columns = int((steps.columns[: count * width] < index.block_cols).sum())
    stored = matrix.nnz_blocks * block * block
    if block <= THROUGH_REGISTERS:
        members = steps.members[:count].view(count * width, 2, HEIGHT // block // 2)
        issued = int((members >= 0).any(2).sum()) * (HEIGHT // 2) * block
    else:
        issued = stored
    used = int(torch.unique(index.columns).numel()) * block
    hbm = 2 * (stored + min(used, product.cols) * n + product.rows * n)
    if problem.turns_x:  # read and written once more
        hbm += 2 * 2 * product.cols * n
    return Traffic(2 * columns * block * n, 2 * stored * tiles, hbm, 2 * issued * tiles * tokens, tile.cluster)


def problem_of(product: Product, matrix: BlockSparseMatrix) -> Problem:
    """The product as the plan of the kernel sees it."""
    return Problem(
        product.rows, product.cols, product.block, matrix.nnz_blocks, product.tokens, 1, product.is_linear,
        turned=False, bf16=product.dtype == "bf16", device=0,
    )  # fmt: skip


def limit_of(traffic: Traffic, rates: Rates, dtype: str) -> tuple[float, str]:
    """Seconds that no product with this traffic beats, and what sets them: HBM, L2 or tensor."""
    found = {
        "HBM": traffic.hbm_bytes / rates.copy,
        "L2": (traffic.l2_bytes + traffic.hbm_bytes) / L2_BYTES_PER_S,
        "tensor": traffic.issued_flops / rates.cublas[dtype],
    }
    name = max(found, key=lambda each: found[each])
    return found[name], name


def limited(
    row: dict[str, Any], product: Product, matrix: BlockSparseMatrix, seconds: float | None, rates: Rates | None
) -> None:
    """Adds the limit and how much of it was reached to a row; nothing where it is not known."""
    traffic = traffic_of(product, matrix)
    row["l2_to_shared_bytes"], row["hbm_bytes"] = traffic.tile_bytes, traffic.hbm_bytes
    row["l2_read_bytes"] = traffic.l2_bytes
    if rates is None or product.dtype not in rates.cublas or seconds is None:
        return
    limit_s, name = limit_of(traffic, rates, product.dtype)
    row["limit"], row["limit_ms"], row["of_limit"] = name, round(1e3 * limit_s, 5), round(limit_s / seconds, 4)

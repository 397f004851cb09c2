"""The tensors of a product as the copy engine reads and writes them, innermost dimension first."""

from __future__ import annotations

from firstlight.kernels.sm90.driver import encode_map
from firstlight.kernels.sm90.problem import Problem

WIDE = 64  # elements of a 128-byte row of shared memory
WARP_ROWS = 16
SPAN = {16: 32, 32: 64, 64: 128, 128: 128}  # bytes of a stored block's row in shared memory, by block


def stored_map(problem: Problem, address: int, *, cluster: int = 1) -> bytes:
    """The stored blocks; those of 16 are copied without it. In a cluster each thread block loads its part for all."""
    block = problem.block
    edge = min(block, WIDE)
    box = (edge, edge if block == 128 and problem.turned else block // cluster, 1)
    dims = (block, block, max(1, problem.entries))
    return encode_map(address, problem.dtype, dims, (2 * block, 2 * block * block), box, SPAN[block])


def dense_map(problem: Problem, address: int, *, tokens: int) -> bytes:
    """X, in tiles of `tokens`; address: of X, or of its turned copy."""
    cols, n, batch, pitch = max(1, problem.cols), problem.n, problem.batch, problem.pitch
    if problem.x_by_token:
        plane = 2 * cols * n
        wide = min(problem.block, WIDE)
        return encode_map(
            address, problem.dtype, (cols, n, 1, 1), (2 * cols, plane, plane), (wide, tokens, 1, 1), 2 * wide
        )  # fmt: skip
    depth, plane = min(problem.block, WIDE), 2 * cols * pitch
    if pitch % WIDE == 0:  # whole rows of 64 tokens: one box takes all of a tile's
        return encode_map(
            address, problem.dtype, (WIDE, cols, pitch // WIDE, batch), (2 * pitch, 2 * WIDE, plane),
            (WIDE, depth, tokens // WIDE, 1), 128,
        )  # fmt: skip
    return encode_map(
        address, problem.dtype, (n, cols, 1, batch), (2 * n, plane, plane), (WIDE, depth, 1, 1), 128
    )  # fmt: skip


def dense_boxes(problem: Problem, *, tokens: int) -> int:
    """How many boxes make a tile of X where it lies by column."""
    if problem.x_by_token or problem.pitch % WIDE == 0:
        return 1
    assert tokens > WIDE or problem.n <= WIDE, f"tiles of {tokens} tokens and {problem.n} tokens in all"
    return tokens // WIDE


def result_map(problem: Problem, address: int) -> bytes:
    """The output, or the addend: by token 64 tokens and a block's rows, at most 64; by column a warp's 16 rows."""
    rows, n = problem.rows, problem.n
    if not problem.tokens:
        dims, box, inner = (n, rows, problem.batch), (WIDE, WARP_ROWS, 1), problem.out_pitch
    else:
        dims, box, inner = (rows, n, 1), (min(problem.block, WIDE), WIDE, 1), rows
    return encode_map(address, problem.dtype, dims, (2 * inner, 2 * inner * dims[1]), box, 2 * box[0])

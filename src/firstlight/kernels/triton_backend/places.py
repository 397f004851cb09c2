"""Which tile a program owns: token tiles in super-tiles, then block rows, longest first."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Where(NamedTuple):
    """Where a tile lies in the output: base + offset in elements, which of it exists, and each element's row."""

    base: Any
    offset: Any
    inside: Any
    row: Any


@triton.jit
def own_tile(count, tiles, super_tile: tl.constexpr):
    """(position in the list of row items, token tile) of this program.

    Token tiles are the outermost loop in super-tiles of a few: the dense operand's slab then stays in L2 while all rows
    walk over it. On an H200 (8192 cubed, block 128, density 0.1) 2 to 4 tiles are best and 16 cost 15 %.
    """
    program = tl.program_id(0)
    slab = program // (count * super_tile)
    first = slab * super_tile
    width = min(tiles - first, super_tile)
    inside = program - slab * count * super_tile
    return inside // width, first + inside % width


@triton.jit
def tile_places(row, tile, sizes, how: tl.constexpr):
    """Where the tile [how.height rows x how.bn tokens] of item `row` lies, in the accumulator's orientation."""
    batch = tile // sizes.tiles
    first = (tile - batch * sizes.tiles) * how.bn
    local_row = tl.arange(0, how.height)
    local_token = tl.arange(0, how.bn)
    if how.tokens_first:
        local_row, local_token = local_row[None, :], local_token[:, None]
    else:
        local_row, local_token = local_row[:, None], local_token[None, :]
    rows, tokens = row * how.height + local_row, first + local_token
    inside = (rows < sizes.rows) & (tokens < sizes.n)
    if how.wide:
        local_row, local_token = local_row.to(tl.int64), local_token.to(tl.int64)
    if how.tokens:
        base = tl.cast(first, tl.int64) * sizes.rows + row * how.height
        offset = local_token * sizes.rows + local_row
    else:
        base = (tl.cast(batch, tl.int64) * sizes.rows + row * how.height) * sizes.n + first
        offset = local_row * sizes.n + local_token
    return Where(base, offset, inside, rows)

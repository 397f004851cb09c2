"""Rows that were split: their partial sums are added in a fixed order, so every run gives the same bits."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl

from firstlight.kernels.triton_backend.epilogue import finished
from firstlight.kernels.triton_backend.places import tile_places


@triton.jit
def add_partials(split, data, sizes, how: tl.constexpr):
    """One tile of a split row: slots first to last, then the epilogue; rows that were not split are left alone."""
    tiles = sizes.tiles * sizes.batch
    program = tl.program_id(0)
    place = program // tiles
    tile = program - place * tiles
    row = tl.load(split.rows + place)
    if row < 0:
        return
    first, count = tl.load(split.first_slot + row).to(tl.int64), tl.load(split.slot_counts + row)
    height: tl.constexpr = how.bn if how.tokens_first else how.height
    width: tl.constexpr = how.height if how.tokens_first else how.bn
    local = tl.arange(0, height)[:, None] * width + tl.arange(0, width)[None, :]
    acc = tl.zeros((height, width), tl.float32)
    for slot in range(count):
        acc += tl.load(data.partials + ((first + slot) * tiles + tile) * (height * width) + local)
    where = tile_places(row, tile, sizes, how)
    result = finished(acc, where, data, sizes, how).to(data.out.dtype.element_ty)
    tl.store(data.out + where.base + where.offset, result, mask=where.inside)

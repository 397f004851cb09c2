"""The nvfp4 format: e2m1 numbers in pairs, one e4m3 scale for every 16 along the inner dimension."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 16
LARGEST = 6.0
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of the codes 0 to 7; bit 3 is the sign
TILE_ROWS, TILE_COLUMNS = 128, 4


@dataclass(frozen=True, slots=True)
class Blocks:
    """A quantised matrix [rows, columns]: two codes a byte (first in the low half), scales in cuBLAS' tiled order."""

    packed: Tensor  # uint8 [rows, columns / 2]
    tiled_scales: Tensor  # e4m3, rows * columns / 16 of them


def quantise(wide: Tensor) -> Blocks:
    """Nearest code of each element after its block's largest magnitude is scaled to 6."""
    import torch

    rows, columns = wide.shape
    blocks = wide.view(rows, columns // BLOCK, BLOCK)
    scales = (blocks.abs().amax(dim=2) / LARGEST).to(torch.float8_e4m3fn)
    scaled = blocks / scales.float().unsqueeze(2).clamp_min(1e-30)
    limits = torch.tensor([(a + b) / 2 for a, b in pairwise(MAGNITUDES)], device=wide.device)
    codes = torch.bucketize(scaled.abs(), limits).to(torch.uint8) | (scaled < 0).to(torch.uint8) << 3
    pairs = codes.view(rows, columns // 2, 2)
    packed = pairs[..., 0] | pairs[..., 1] << 4
    return Blocks(packed.contiguous(), tile(scales.view(torch.uint8)).view(torch.float8_e4m3fn))


def dequantise(blocks: Blocks, rows: Tensor) -> Tensor:
    """The named rows as double precision numbers."""
    import torch

    packed = blocks.packed[rows]
    codes = torch.stack((packed & 15, packed >> 4), dim=2).flatten(1).long()
    table = torch.tensor(
        [*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES)], dtype=torch.float64, device=packed.device
    )
    all_rows, columns = blocks.packed.shape[0], 2 * blocks.packed.shape[1]
    scales = untile(blocks.tiled_scales.view(torch.uint8), all_rows, columns // BLOCK)[rows]
    wide_scales = scales.view(torch.float8_e4m3fn).double().repeat_interleave(BLOCK, dim=1)
    return table[codes] * wide_scales


def tile(scales: Tensor) -> Tensor:
    """Scales [rows, columns] in cuBLAS' order: tiles of 128 x 4, in which row r is at 16 (r mod 32) + 4 (r div 32)."""
    rows, columns = scales.shape
    assert (rows % TILE_ROWS, columns % TILE_COLUMNS) == (0, 0), f"scales of {rows} x {columns}: whole tiles wanted"
    tiles = scales.view(rows // TILE_ROWS, 4, 32, columns // TILE_COLUMNS, TILE_COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).contiguous().flatten()


def untile(flat: Tensor, rows: int, columns: int) -> Tensor:
    """The inverse of `tile`."""
    tiles = flat.view(rows // TILE_ROWS, columns // TILE_COLUMNS, 32, 4, TILE_COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(rows, columns)

"""Masks that follow from a few numbers: what each block is, is computed where the mask will lie, and counted here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.kernels.block_attention.bits import FULL, PARTIAL, blocks_in, ordinary, pack, unpack
from firstlight.kernels.block_attention.mask import BlockMask, Device, plain
from firstlight.kernels.block_attention.mask_checks import require_alignment, require_number, require_sizes

SMALL = 1 << 29  # lengths up to here: distances between them, doubled, fit into int32


@dataclass(frozen=True, slots=True)
class Grid:
    """Lengths and block of a mask, e.g. Grid(4096, 4096, 128)."""

    q_len: int
    k_len: int
    block: int

    @property
    def rows(self) -> int:
        return blocks_in(self.q_len, self.block)

    @property
    def columns(self) -> int:
        return blocks_in(self.k_len, self.block)


def grid_of(q_len: int, k_len: int | None, block: int) -> Grid:
    """The checked sizes; k_len is q_len where None."""
    keys = q_len if k_len is None else k_len
    require_sizes(q_len, keys, block)
    return Grid(q_len, keys, block)


def full(q_len: int, k_len: int | None = None, *, block: int = 128, device: Device = None) -> BlockMask:
    """Every query sees every key."""
    grid = grid_of(q_len, k_len, block)
    with ordinary():
        kinds = torch.full((1, 1, grid.rows, grid.columns), FULL, dtype=torch.uint8, device=device)
    return plain(_made(kinds, None, None, grid=grid, most=kinds.numel()), "full")


def window(
    q_len: int,
    k_len: int | None = None,
    *,
    left: int | None,
    right: int | None = 0,
    alignment: str = "upper_left",
    block: int = 128,
    device: Device = None,
) -> BlockMask:
    """Query q sees the keys from q + shift - left to q + shift + right; shift is k_len - q_len for lower_right."""
    grid = grid_of(q_len, k_len, block)
    require_alignment(alignment)
    for name, limit in (("left", left), ("right", right)):
        if limit is not None:
            require_number(limit, name, least=0)
    shift = grid.k_len - grid.q_len if alignment == "lower_right" else 0
    made = banded(
        grid,
        None if left is None else shift - left,
        None if right is None else shift + right,
        device=device,
    )
    if left is None and right in (None, 0):
        return plain(made, alignment if right == 0 else "full")
    return made


def banded(grid: Grid, lowest: int | None, highest: int | None, *, device: Device = None) -> BlockMask:
    """Query q sees key k where lowest <= k - q <= highest, None being no limit, e.g. -511 and 0 for a window of 512."""
    far = grid.q_len + grid.k_len  # further than any key is from any query, whatever the alignment
    lowest = -far if lowest is None else min(max(lowest, -far), far)
    highest = far if highest is None else min(max(highest, -far), far)
    with ordinary():
        return _band_mask(_Band(grid, lowest, highest), device)


@dataclass(frozen=True, slots=True)
class _Band:
    """Query q sees key k where lowest <= k - q <= highest."""

    grid: Grid
    lowest: int
    highest: int

    def kept_in_row(self, row: int) -> int:
        """Number of blocks of a block row that hold a seen key: they lie side by side."""
        grid = self.grid
        first_q, last_q = row * grid.block, min((row + 1) * grid.block, grid.q_len) - 1
        first, last = max(first_q + self.lowest, 0), min(last_q + self.highest, grid.k_len - 1)
        return last // grid.block - first // grid.block + 1 if first <= last else 0

    def is_cut(self, row: int, column: int) -> bool:
        """Whether the band keeps some but not all elements of a block."""
        grid = self.grid
        first_q, last_q = row * grid.block, min((row + 1) * grid.block, grid.q_len) - 1
        first_k, last_k = column * grid.block, min((column + 1) * grid.block, grid.k_len) - 1
        least, greatest = first_k - last_q, last_k - first_q
        seen = least <= self.highest and greatest >= self.lowest
        return seen and (least < self.lowest or greatest > self.highest)

    def cut_diagonals(self) -> list[int]:
        """Column - row of the blocks seen in part, ascending, at most four; blocks of one diagonal are cut alike."""
        grid = self.grid
        near = {edge // grid.block + step for edge in (self.lowest, self.highest) for step in (-1, 0, 1, 2)}
        found = []
        for diagonal in sorted(near):
            rows = range(max(0, -diagonal), min(grid.rows, grid.columns - diagonal))
            # the others are as the first, but for the last, which may be smaller and is not cut where the first is not
            if rows and self.is_cut(rows[0], rows[0] + diagonal):
                found.append(diagonal)
        return found


def _band_mask(band: _Band, device: Device) -> BlockMask:
    grid, block = band.grid, band.grid.block
    # a number for every block is needed several times over: 4 bytes where they do
    number = torch.int32 if grid.q_len + grid.k_len < SMALL else torch.int64
    first_q = torch.arange(grid.rows, dtype=number, device=device)[:, None] * block
    first_k = torch.arange(grid.columns, dtype=number, device=device) * block
    # key - query takes every whole number between these two in a block
    least = first_k - (first_q + (block - 1)).clamp(max=grid.q_len - 1)
    greatest = (first_k + (block - 1)).clamp(max=grid.k_len - 1) - first_q
    seen = (least <= band.highest) & (greatest >= band.lowest)
    wholly = (least >= band.lowest) & (greatest <= band.highest)
    kinds = (seen.to(torch.uint8) + wholly.to(torch.uint8))[None, None]
    diagonals = band.cut_diagonals()
    most = sum(band.kept_in_row(row) for row in range(grid.rows))
    if not diagonals:
        return _made(kinds, None, None, grid=grid, most=most)
    place = torch.div(first_k - first_q, block, rounding_mode="floor")
    which = torch.zeros_like(place, dtype=torch.int32)
    for diagonal in diagonals[:-1]:
        which += place > diagonal
    inside = torch.arange(block, device=device)
    away = inside - inside[:, None]
    rows = []
    for diagonal in diagonals:
        # plain numbers and no tensor of them: copying one to the GPU would make the host wait
        apart = away + diagonal * block
        rows.append(pack((apart >= band.lowest) & (apart <= band.highest)))
    return _made(kinds, which[None, None], torch.stack(rows), grid=grid, most=most)


def sink(q_len: int, k_len: int | None = None, *, keys: int, block: int = 128, device: Device = None) -> BlockMask:
    """Every query sees the first `keys` keys."""
    grid = grid_of(q_len, k_len, block)
    require_number(keys, "keys", least=0)
    keys = min(keys, grid.k_len)
    with ordinary():
        first_k = torch.arange(grid.columns, device=device) * block
        last_k = (first_k + (block - 1)).clamp(max=grid.k_len - 1)
        row = (first_k < keys).to(torch.uint8) + (last_k < keys).to(torch.uint8)
        kinds = row.expand(1, 1, grid.rows, grid.columns).contiguous()
        most = grid.rows * blocks_in(keys, block)
        if keys % block == 0 or keys == grid.k_len:
            return _made(kinds, None, None, grid=grid, most=most)
        seen = torch.arange(block, device=device) < keys % block
        bits = pack(seen.expand(1, block, block))
        return _made(kinds, torch.zeros_like(kinds, dtype=torch.int32), bits, grid=grid, most=most)


def strided(
    q_len: int, k_len: int | None = None, *, stride: int, phase: int = 0, block: int = 128, device: Device = None
) -> BlockMask:
    """Query block i sees key block j where (i - j) % stride == phase."""
    grid = grid_of(q_len, k_len, block)
    require_number(stride, "stride", least=1)
    require_number(phase, "phase", least=0)
    phase %= stride
    with ordinary():
        rows, columns = torch.arange(grid.rows, device=device), torch.arange(grid.columns, device=device)
        kinds = ((rows[:, None] - columns) % stride == phase).to(torch.uint8) * FULL
    most = sum(blocks_in(max(grid.columns - (row - phase) % stride, 0), stride) for row in range(grid.rows))
    return _made(kinds[None, None], None, None, grid=grid, most=most)


def _made(kinds: Tensor, which: Tensor | None, bits: Tensor | None, *, grid: Grid, most: int) -> BlockMask:
    return BlockMask(kinds, which, bits, q_len=grid.q_len, k_len=grid.k_len, block=grid.block, most=most)


def to_bool(mask: BlockMask) -> Tensor:
    """bool [batch or 1, heads or 1, q_len, k_len] of a mask: every element, so for tests and small sizes."""
    batch, heads, rows, columns = mask.kinds.shape
    block = mask.block
    blocks = (mask.kinds == FULL)[..., None, None]
    if mask.which is None or mask.bits is None:
        blocks = blocks.expand(-1, -1, -1, -1, block, block)
    else:
        some = (mask.kinds == PARTIAL)[..., None, None]
        blocks = torch.where(some, unpack(mask.bits)[mask.which.long()], blocks)
    elements = blocks.permute(0, 1, 2, 4, 3, 5).reshape(batch, heads, rows * block, columns * block)
    return elements[:, :, : mask.q_len, : mask.k_len].contiguous()

"""Patterns that the kernel tests draw, and a plain account of what an index means."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern

INDEX_DTYPES = (torch.int32, torch.int64)


@st.composite
def masks(draw: st.DrawFn, most: int = 8) -> Tensor:
    """[block rows, block columns] of booleans: empty, full, ragged rows, one long row."""
    rows, cols = draw(st.integers(1, most)), draw(st.integers(1, most))
    kept = draw(st.lists(st.booleans(), min_size=rows * cols, max_size=rows * cols))
    return torch.tensor(kept).view(rows, cols)


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """Patterns of block 16 with full or partly used last blocks and either index dtype."""
    mask = draw(masks())
    shape = (mask.shape[0] * 16 - draw(st.integers(0, 15)), mask.shape[1] * 16 - draw(st.integers(0, 15)))
    return pattern_of_mask(mask, shape, dtype=draw(st.sampled_from(INDEX_DTYPES)))


def pattern_of_mask(mask: Tensor, shape: tuple[int, int], *, dtype: torch.dtype = torch.int32) -> Pattern:
    """The pattern of a mask at block 16, counted row by row."""
    crow, col = [0], []
    for row in mask.tolist():
        col += [place for place, kept in enumerate(row) if kept]
        crow.append(len(col))
    return Pattern(torch.tensor(crow, dtype=dtype), torch.tensor(col, dtype=dtype), shape, 16)


def places(index: Index) -> list[tuple[int, int, int]]:
    """(block row, block column, stored block) of every entry, in order."""
    starts = index.row_starts.tolist()
    columns = index.columns.tolist()
    blocks = list(range(len(columns))) if index.blocks is None else index.blocks.tolist()
    return [
        (row, columns[entry], blocks[entry])
        for row in range(index.block_rows)
        for entry in range(starts[row], starts[row + 1])
    ]

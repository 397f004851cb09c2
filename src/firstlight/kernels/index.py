"""Which blocks of a block-sparse matrix are stored, and in which order a product walks them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from firstlight.kernels.lifetimes import Held, use


@dataclass(frozen=True, slots=True)
class Index:
    """One direction of a pattern: block row r uses entries row_starts[r] to row_starts[r + 1].

    Entry e multiplies stored block `blocks[e]` with the block column `columns[e]` of the dense operand. A matrix and
    its transpose share one set of stored blocks: the transpose has its own Index with `blocks` permuted and
    `blocks_transposed` set, and no second copy of the values.
    """

    row_starts: Tensor  # int32 or int64 [block_rows + 1]
    columns: Tensor  # same dtype [entries], ascending inside a row
    blocks: Tensor | None  # same dtype [entries]; None: entry e is stored block e
    rows: int  # elements, e.g. 8192; need not be a multiple of the block
    cols: int
    block: int  # 16, 32, 64 or 128
    blocks_transposed: bool  # each stored block is used as its transpose
    held: Held | None = field(default=None, compare=False, repr=False)  # see lifetimes.py; None on the CPU

    def use(self) -> None:
        """Makes the index safe to read by what is started next."""
        use(self.held)

    @property
    def block_rows(self) -> int:
        return -(-self.rows // self.block)

    @property
    def block_cols(self) -> int:
        return -(-self.cols // self.block)

    @property
    def entries(self) -> int:
        return int(self.columns.shape[0])

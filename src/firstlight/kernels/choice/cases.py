"""What a backend's time depends on, without a tensor: one product, or one pass of attention."""

from __future__ import annotations

from typing import NamedTuple

MULTIPLY, TURNED, SAMPLE = "multiply", "turned", "sample"
FORWARD, BACKWARD = "forward", "backward"


class ProductCase(NamedTuple):
    """E.g. 1638 blocks of 64 of a [8192, 8192] float16 matrix times 4096 tokens; a row of data/choice.json."""

    operation: str  # multiply; turned: by the transpose of what is stored; sample
    layout: str  # tokens or columns
    block: int
    dtype: str  # tf32: float32 where torch may round to it
    rows: int  # of the matrix as stored
    cols: int
    entries: int
    tokens: int
    activation: str = "none"
    extras: int = 0  # tensors that the epilogue reads: bias, addend

    @property
    def density(self) -> float:
        """Share of the blocks that is stored, e.g. 0.1."""
        places = -(-self.rows // self.block) * -(-self.cols // self.block)
        return self.entries / max(1, places)

    @property
    def sides(self) -> tuple[int, int]:
        """Elements of the output and of the input for each token, e.g. (8192, 4096)."""
        return (self.cols, self.rows) if self.operation == TURNED else (self.rows, self.cols)


class AttentionCase(NamedTuple):
    """E.g. the forward pass of 2 x 16 heads over 4096 keys, of which a list keeps 102 blocks of 128."""

    operation: str  # forward or backward
    shape: str  # full, upper_left, lower_right or listed
    block: int
    dtype: str
    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    k_len: int
    lists: int  # batch * heads of the mask
    kept: int  # blocks of all lists that may have to be computed
    cut: int = 0  # 1: some blocks are seen in part

    @property
    def share(self) -> float:
        """Of the blocks, e.g. 0.1."""
        places = self.lists * -(-self.q_len // self.block) * -(-self.k_len // self.block)
        return self.kept / max(1, places)


Case = ProductCase | AttentionCase

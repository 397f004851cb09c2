"""A matrix of which only some square blocks are stored."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.kernels.checks import (
    require_dtype,
    require_same_device,
    require_shape,
    require_tensor,
    require_values,
)
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.schedule import Schedule, schedule_of


class BlockSparseMatrix:
    """[rows, cols] numbers stored as `values` [stored blocks, block, block] at the places `pattern` names.

    Blocks that are not stored are skipped in products, not multiplied by zero. `values` may be a Parameter; a gradient
    has its shape. Where the block does not divide rows or cols, the unused part of the last blocks is stored as 0.
    Make one with from_dense, from_mask, from_parts, from_torch_bsr or random.
    """

    def __init__(self, values: Tensor, pattern: Pattern, *, is_transposed: bool = False) -> None:
        require_values(values, pattern.entries, pattern.block)
        require_dtype(values, "values")
        require_same_device(pattern.col, "the pattern", values, "values")
        self.values = values
        self.pattern = pattern
        self.is_transposed = is_transposed

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self.pattern.shape
        return (cols, rows) if self.is_transposed else (rows, cols)

    @property
    def block(self) -> int:
        return self.pattern.block

    @property
    def nnz_blocks(self) -> int:
        """Number of stored blocks, e.g. 1638."""
        return self.values.shape[0]

    @property
    def density(self) -> float:
        """Share of the blocks that is stored, e.g. 0.1."""
        return self.values.shape[0] / (self.pattern.block_rows * self.pattern.block_cols)

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    @property
    def index(self) -> Index:
        """Where the stored blocks lie in this matrix."""
        return self.pattern.transposed if self.is_transposed else self.pattern.forward

    @property
    def index_t(self) -> Index:
        """Where the stored blocks lie in the transpose of this matrix."""
        return self.pattern.forward if self.is_transposed else self.pattern.transposed

    @property
    def schedule(self) -> Schedule:
        """The order in which a product takes the block rows; computed once for each pattern."""
        return schedule_of(self.index)

    @property
    def T(self) -> BlockSparseMatrix:
        """The transpose over the same values: nothing is copied."""
        return BlockSparseMatrix(self.values, self.pattern, is_transposed=not self.is_transposed)

    def with_values(self, values: Tensor) -> BlockSparseMatrix:
        """The same pattern around other values of the same shape, e.g. a gradient."""
        require_tensor(values, "values")
        require_shape(values, "values", tuple(self.values.shape))
        require_same_device(self.values, "the pattern", values, "values")
        return BlockSparseMatrix(values, self.pattern, is_transposed=self.is_transposed)

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> BlockSparseMatrix:
        """The matrix on another device or in another dtype; the index dtype stays."""
        place = self.values.device if device is None else torch.device(device)
        values = self.values.to(device=place, dtype=self.values.dtype if dtype is None else dtype)
        if dtype is not None:
            require_dtype(values, "values")
        return BlockSparseMatrix(values, self.pattern.to(place), is_transposed=self.is_transposed)

    def detach(self) -> BlockSparseMatrix:
        """The same values outside of the autograd graph."""
        return BlockSparseMatrix(self.values.detach(), self.pattern, is_transposed=self.is_transposed)

    def requires_grad_(self, requires_grad: bool = True) -> BlockSparseMatrix:  # noqa: FBT001, FBT002 torch's signature
        """Asks for gradients of the stored values; returns this matrix."""
        self.values.requires_grad_(requires_grad)
        return self

    def keep_dense(self) -> BlockSparseMatrix:
        """Keeps a dense copy of values that stay as they are, for `dense` and `auto`; returns this matrix.

        Without it each call by `dense` makes one. The copy is no part of a state dict; changes that torch counts are
        noticed, it goes with the values, and values that require a gradient again do without it.
        """
        from firstlight.kernels.dense import keep

        keep(self)
        return self

    def forget_dense(self) -> BlockSparseMatrix:
        """Drops the dense copy that keep_dense made, e.g. after a change that torch does not count; returns this."""
        from firstlight.kernels.dense import forget

        forget(self)
        return self

    def to_dense(self) -> Tensor:
        """[rows, cols] with zeros where no block is stored; gradients flow to values."""
        from firstlight.kernels.convert import to_dense

        return to_dense(self)

    def to_torch_bsr(self) -> Tensor:
        """A torch.sparse_bsr tensor; the shape has to be a multiple of the block."""
        from firstlight.kernels.convert import to_torch_bsr

        return to_torch_bsr(self)

    def canonicalize(self) -> BlockSparseMatrix:
        """The same matrix with ascending block columns, each stored once, and not as a transpose; values are copied.

        Blocks stored twice are summed. Returns this matrix when it is in that form already.
        """
        from firstlight.kernels.construct import canonicalize

        return canonicalize(self)

    @classmethod
    def from_dense(cls, dense: Tensor, *, block: int) -> BlockSparseMatrix:
        """Stores the blocks of a [rows, cols] tensor that hold a non-zero number; gradients flow to `dense`."""
        from firstlight.kernels.construct import from_dense

        return from_dense(dense, block=block)

    @classmethod
    def from_mask(
        cls,
        mask: Tensor,
        *,
        block: int,
        values: Tensor | None = None,
        shape: tuple[int, int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> BlockSparseMatrix:
        """Stores the blocks where a [block rows, block columns] mask is True, zero or not.

        values: a [rows, cols] tensor to take the blocks from, or the stored blocks themselves; zeros of `dtype` when
        None. shape: of the matrix, where the block does not divide it and `values` is not [rows, cols].
        """
        from firstlight.kernels.construct import from_mask

        return from_mask(mask, block=block, values=values, shape=shape, dtype=dtype)

    @classmethod
    def from_parts(
        cls,
        values: Tensor,
        crow: Tensor,
        col: Tensor,
        shape: tuple[int, int],
        *,
        validate: bool = True,
        allow_unsorted: bool = False,
        allow_duplicates: bool = False,
    ) -> BlockSparseMatrix:
        """A matrix around these very tensors: values [stored blocks, block, block], crow [block rows + 1], col.

        validate=True reads the indices (the host waits once) and raises with the row and column of what is wrong.
        validate=False checks shapes, dtypes and devices only; wrong indices then read and write out of bounds.
        Blocks stored twice are summed when allow_duplicates.
        """
        from firstlight.kernels.construct import Allowed, from_parts

        allowed = Allowed(unsorted=allow_unsorted, duplicates=allow_duplicates, unchecked=not validate)
        return from_parts(values, crow, col, shape, allowed=allowed)

    @classmethod
    def from_torch_bsr(cls, tensor: Tensor, *, block: int | None = None) -> BlockSparseMatrix:
        """A torch.sparse_bsr tensor's blocks without a copy; `block` splits or joins them into another size."""
        from firstlight.kernels.convert import from_torch_bsr

        return from_torch_bsr(tensor, block=block)

    @classmethod
    def random(
        cls,
        rows: int,
        cols: int,
        *,
        block: int,
        density: float,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> BlockSparseMatrix:
        """Normal random values in round(density * blocks) blocks at random places."""
        from firstlight.kernels.construct import random

        return random(rows, cols, block=block, density=density, dtype=dtype, device=device, generator=generator)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """`W @ X`: matmul(W, X)."""
        from firstlight.kernels.functions import matmul

        return matmul(self, dense)

    def __repr__(self) -> str:
        rows, cols = self.shape
        return (
            f"BlockSparseMatrix([{rows}, {cols}], block={self.block}, blocks={self.nnz_blocks}, "
            f"density={self.density:.3g}, {self.dtype}, device={str(self.device)!r}"
            f"{', transposed' if self.is_transposed else ''}{', requires_grad' if self.requires_grad else ''})"
        )

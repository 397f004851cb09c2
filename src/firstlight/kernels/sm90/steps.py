"""The union lists of an index as the kernels read them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Steps(NamedTuple):
    """The union lists of an index; for blocks of 128, whose groups are block rows, the index itself in 32 bits."""

    starts: Tensor  # int32 [groups + 1]
    columns: Tensor  # int32 [bound * width]
    members: Tensor  # int32 [bound, width, rows of a group]
    bound: int
    grouped: Tensor | None = None  # int32 [groups * rows of a group]: its block rows; None: in their order

    @property
    def groups(self) -> int:
        return int(self.starts.shape[0]) - 1

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that lies on the device."""
        return self.starts, self.columns, self.members, self.grouped

"""Tensor maps of [batch, head, row, column] tensors, for attention.cu and gradient.cu."""

from __future__ import annotations

from torch import Tensor

from firstlight.kernels.sm90.maps import encode_map

HALF = 64  # columns in 128 bytes, which a swizzle spans
SWIZZLE = 128
ELEMENT = 2
ALIGNED = 16  # bytes


def rows_map(tensor: Tensor, rows: int, *, halves: int = 0) -> bytes:
    """Boxes of `rows` rows with so many halves of 64 columns (0: all), which lie one behind the other."""
    batch, heads, length, head_dim = tensor.shape
    batch_step, head_step, row_step, _ = tensor.stride()
    # of a dimension of one nothing is stepped over, and torch leaves any number there
    batch_step = batch_step * ELEMENT if batch > 1 else ALIGNED
    head_step = head_step * ELEMENT if heads > 1 else ALIGNED
    row_step = row_step * ELEMENT if length > 1 else ALIGNED
    dims = (HALF, length, head_dim // HALF, heads, batch)
    return encode_map(
        tensor.data_ptr(), tensor.dtype, dims, (row_step, SWIZZLE, head_step, batch_step),
        (HALF, rows, halves or head_dim // HALF, 1, 1), SWIZZLE,
    )  # fmt: skip


def steps_everywhere(tensor: Tensor) -> bool:
    """Not expanded: a tensor map takes no stride of 0."""
    return 0 not in tensor.stride() or all(
        step or size == 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


def mappable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where a tensor map could not be made of it as it lies."""
    strides = tensor.stride()
    steps = [step * ELEMENT % ALIGNED for step, size in zip(strides[:3], tensor.shape[:3], strict=True) if size > 1]
    lies_well = strides[3] == 1 and not any(steps) and tensor.data_ptr() % ALIGNED == 0
    return tensor if lies_well and steps_everywhere(tensor) else tensor.contiguous()

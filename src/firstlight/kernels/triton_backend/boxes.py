"""Matrices read and written in boxes by the copy engine (TMA), and the maps it needs, kept by address."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.sm90 import libcuda

MOST_KEPT = 4096  # maps of 128 bytes; an allocator that reuses memory comes back to the same addresses
_MAPS: dict[tuple[Any, ...], list[Any]] = {}


class Boxes(NamedTuple):
    """A contiguous tensor seen as [rows, cols], row-major, cut into boxes of a shape that the kernel's type says."""

    tensor: Tensor
    rows: int
    cols: int

    def descriptor(self, type_: str) -> Any:
        """The same for Triton's kernel[grid]; type_ is e.g. 'tensordesc<fp16[128,64]>'."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        box = [int(side) for side in type_.partition("[")[2].partition("]")[0].split(",")]
        return TensorDescriptor(self.tensor, [self.rows, self.cols], [self.cols, 1], box)


def fits_boxes(rows: int, cols: int, *, dtype: torch.dtype) -> bool:
    """Whether the copy engine takes [rows, cols]: a row is a multiple of 16 bytes, coordinates are 32 bits."""
    return 0 < rows < 1 << 31 and 0 < cols < 1 << 31 and cols * dtype.itemsize % 16 == 0


def box_map(boxes: Boxes, box: dict[str, Any]) -> list[Any]:
    """What the launcher takes for boxes: the map, then shape and strides; made once for an address and a shape."""
    key = (boxes.tensor.data_ptr(), boxes.rows, boxes.cols, id(box))
    found = _MAPS.get(key)
    if found is None:
        if len(_MAPS) >= MOST_KEPT:
            _MAPS.clear()
        found = _MAPS[key] = _make(boxes, box)
    return found


def _make(boxes: Boxes, box: dict[str, Any]) -> list[Any]:
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST
    from triton.runtime import driver

    libcuda.enter_context(boxes.tensor.get_device())  # Triton's launcher sees to it too, but only after the maps
    shape, strides = [boxes.rows, boxes.cols], [boxes.cols, 1]
    made = driver.active.utils.fill_tma_descriptor(
        boxes.tensor.data_ptr(),
        box["swizzle"],
        box["elem_size"],
        TMA_DTYPE_DEVICE_TO_HOST[box["elem_type"]],
        box["block_size"],
        shape,
        strides,
        0,  # outside reads as zero
    )
    return [made, *shape, *strides]

"""Tensor maps: what TMA needs to know of a tensor, 128 bytes that travel inside a kernel's arguments.

    encode_map(x.data_ptr(), "float16", (8192, 4096), (8192 * 2,), (64, 128), 128)

is x[4096, 8192] in boxes of 128 rows by 64 columns with the 128-byte swizzle: sizes and box are given innermost first,
the innermost stride is one element and left out. What a box reads beyond the tensor's edge is zero.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90 import libcuda
from firstlight.kernels.torch_private import current_device

MAP_BYTES = 128
MAP_ALIGNMENT = 64
# CUtensorMapDataType, bytes of an element
_DTYPES = {"uint8": (0, 1), "int32": (4, 4), "float16": (6, 2), "float32": (7, 4), "bfloat16": (9, 2)}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # span in bytes to CUtensorMapSwizzle
_NOT_INTERLEAVED, _L2_PROMOTION_256, _ZEROS_OUTSIDE = 0, 3, 0


@functools.lru_cache(maxsize=4096)  # a map depends on nothing but these numbers, so an old one stays right
def encode_map(
    address: int, dtype: object, dims: tuple[int, ...], strides_bytes: tuple[int, ...], box: tuple[int, ...],
    swizzle: int,
) -> bytes:  # fmt: skip
    """The 128 bytes of a map; dtype is a torch dtype or its name, swizzle 0, 32, 64 or 128 bytes."""
    before, after = _all_but_the_address(dtype, dims, strides_bytes, box, swizzle)
    if address % 16:
        raise UnsupportedInput(f"encode_map: the address is {address:#x}; it must be a multiple of 16.")
    room = _Room()
    start = -ctypes.addressof(room) % MAP_ALIGNMENT
    found = libcuda.library()
    arguments = (ctypes.byref(room, start), *before, ctypes.c_void_p(address), *after)
    code = found.cuTensorMapEncodeTiled(*arguments)
    if code == libcuda.INVALID_CONTEXT:  # of a thread that has not called CUDA yet; a map is the same in any context
        libcuda.enter_context(max(0, current_device()))
        code = found.cuTensorMapEncodeTiled(*arguments)
    if code:
        libcuda.check(found, "cuTensorMapEncodeTiled", code)
    return room.raw[start : start + MAP_BYTES]


_Room = ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT)


@functools.lru_cache(maxsize=4096)  # in a loop the addresses change and nothing else
def _all_but_the_address(
    dtype: object, dims: tuple[int, ...], strides_bytes: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    name = str(dtype).removeprefix("torch.")
    if complaint := why_not_mappable(name, dims, strides_bytes, box=box, swizzle=swizzle):
        raise UnsupportedInput(f"encode_map: {complaint}.")
    rank = len(dims)
    sizes, (strides, edges, steps) = (ctypes.c_uint64 * rank)(*dims), _layout(strides_bytes, box)
    rest = (_NOT_INTERLEAVED, _SWIZZLES[swizzle], _L2_PROMOTION_256, _ZEROS_OUTSIDE)
    return (_DTYPES[name][0], rank), (sizes, strides, edges, steps, *rest)


@functools.lru_cache(maxsize=4096)  # the number of stored blocks changes, how they lie does not
def _layout(strides_bytes: tuple[int, ...], box: tuple[int, ...]) -> tuple[Any, Any, Any]:
    rank = len(box)
    strides = (ctypes.c_uint64 * max(1, rank - 1))(*strides_bytes)
    return strides, (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*(1,) * rank)


def why_not_mappable(
    name: str, dims: tuple[int, ...], strides_bytes: tuple[int, ...], *, box: tuple[int, ...], swizzle: int
) -> str:
    """Which of the hardware's rules a map breaks, e.g. 'the strides are (100,) bytes; ...'; empty: none.

    The driver refuses them too, but with 'invalid argument' for all.
    """
    if name not in _DTYPES:
        return f"dtype is {name}; accepted: {', '.join(_DTYPES)}"
    if swizzle not in _SWIZZLES:
        return f"swizzle is {swizzle} bytes; accepted: 0, 32, 64, 128"
    if not 1 <= len(dims) <= 5 or len(box) != len(dims) or len(strides_bytes) != len(dims) - 1:
        given = f"{len(dims)} sizes, {len(strides_bytes)} strides and a box of {len(box)}"
        return f"{given} were given; wanted: n sizes from 1 to 5, n - 1 strides, a box of n"
    if not all(0 < size <= 2**32 for size in dims):
        return f"the sizes are {dims}; each must lie in 1 .. 2^32"
    if not all(stride % 16 == 0 and 0 <= stride < 2**40 for stride in strides_bytes):
        return f"the strides are {strides_bytes} bytes; each must be a multiple of 16 below 2^40"
    if not all(0 < edge <= 256 for edge in box):
        return f"the box is {box}; each edge must lie in 1 .. 256"
    inner = box[0] * _DTYPES[name][1]
    if inner % 16:
        return f"the box is {inner} bytes wide; it must be a multiple of 16"
    if swizzle and inner > swizzle:
        return f"the box is {inner} bytes wide; a swizzle of {swizzle} takes at most {swizzle}"
    return ""

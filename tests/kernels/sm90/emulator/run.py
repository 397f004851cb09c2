"""Runs the Hopper kernels on the processor, thread by thread, to test them and their pipelines without a GPU.

    from tests.kernels.sm90.emulator.run import emulate, emulated_map

    maps = emulated_map(x.data_ptr(), "float16", (64, 128), (128,), (64, 64), 128)      # signature of maps.encode_map
    emulate("turn", {}, "turn", arguments, grid=(2, 1, 1), threads=128, shared_bytes=0)  # cuda/turn.cu
    emulate("multiply", {"BLOCK": 128, ...}, "multiply", arguments, grid=(3, 1, 1), threads=384, shared_bytes=230400,
            seed=7, replaced={"multiply.cu": changed_text})

`arguments` are the bytes of the kernel's one struct, with emulated maps in it and addresses of ordinary tensors.
EmulatedFault says what broke: a deadlock with who waits where, a barrier misused, an accumulator touched too early.
What is no fault of protocol shows in the numbers. machine.py puts all this behind the real plans:

    with emulated_gpu(folder, multiprocessors=2) as gpu:
        attention.forward(q, k, v, mask, scale=0.1, out=out, lse=lse)                    # tensors on the processor

What is random comes from `seed`; a fault of timing shows under some seeds, so try several (gpu.seed is the last one).
Even seeds fill shared memory and accumulators under way with NaN, odd ones with large finite numbers. Loads land,
stores read and products run at any moment between their issue and the wait that covers them; warps lag behind each
other, three thread blocks run at once, or two clusters of CLUSTER. Lanes of a warp that go the same way stay together,
as on hardware.

A .cu file may hold an asm without a result, which is left out; one with a result (NotEmulated) belongs into a header,
and that has its twin in headers/. Register operands of a product are read when it runs, through the arrays or variables
named in the call: these must live, unchanged, until the wait. fence.proxy.async counts: what a thread wrote is seen by
copies and products after its publish_shared() alone.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Mapping
from typing import NamedTuple

from firstlight.kernels.sm90.maps import why_not_mappable
from tests.kernels.sm90.emulator import build

_ELEMENT_BYTES = {"uint8": 1, "int32": 4, "float16": 2, "float32": 4, "bfloat16": 2}
_MAGIC = 0x70616D2D6C66
_MAP = struct.Struct("<QQIIII5Q4Q5H14x")
_COMPLAINT_BYTES = 1 << 16
_ONE_AT_A_TIME = threading.Lock()


class EmulatedFault(AssertionError):
    """What the kernel did wrong, e.g. 'nothing can go on: block 0 warp 9, all lanes: roles.cuh:97 barrier_wait ...'."""


class Counts(NamedTuple):
    """What a launch did: boxes loaded and stored, wgmma by warps (four for each), turns of the scheduler."""

    loads: int
    stores: int
    products: int
    turns: int


def emulate(
    source: str, defines: Mapping[str, str | int], kernel: str, arguments: bytes, *, grid: tuple[int, int, int],
    threads: int, shared_bytes: int, seed: int = 0, replaced: Mapping[str, str] | None = None,
) -> Counts:  # fmt: skip
    """Runs cuda/<source>.cu to its end; `replaced` gives other texts for files of that folder, or more files."""
    found = build.library(f"{source}.cu", kernel, tuple(defines.items()), build.sources(replaced or {}))
    wanted = ctypes.c_uint64.in_dll(found, "emulator_argument_bytes").value
    assert len(arguments) == wanted, f"{kernel} takes {wanted} bytes of arguments; {len(arguments)} were given"
    room = ctypes.create_string_buffer(len(arguments) + 64)
    place = -(-ctypes.addressof(room) // 64) * 64
    ctypes.memmove(place, arguments, len(arguments))
    complaint = ctypes.create_string_buffer(_COMPLAINT_BYTES)
    counts = (ctypes.c_uint64 * 4)()
    sizes = (ctypes.c_uint32 * 6)(*grid, threads, shared_bytes, int(defines.get("CLUSTER", 1)))
    runtime = ctypes.CDLL(str(build.runtime()))
    with _ONE_AT_A_TIME:
        failed = runtime.emulator_launch(
            found.emulator_kernel, ctypes.c_void_p(place), sizes, ctypes.c_uint32(seed), complaint,
            ctypes.c_uint32(_COMPLAINT_BYTES), counts,
        )  # fmt: skip
    if failed:
        raise EmulatedFault(f"seed {seed}: {complaint.value.decode()}")
    return Counts(*counts)


def argument_bytes(
    source: str, defines: Mapping[str, str | int], kernel: str, replaced: Mapping[str, str] | None = None
) -> int:
    """Size of the kernel's struct, e.g. 704."""
    found = build.library(f"{source}.cu", kernel, tuple(defines.items()), build.sources(replaced or {}))
    return ctypes.c_uint64.in_dll(found, "emulator_argument_bytes").value


def emulated_map(
    address: int, dtype: object, dims: tuple[int, ...], strides_bytes: tuple[int, ...], box: tuple[int, ...],
    swizzle: int,
) -> bytes:  # fmt: skip
    """128 bytes that the emulator reads as a tensor map; what the hardware refuses is refused here too."""
    name = str(dtype).removeprefix("torch.")
    complaint = why_not_mappable(name, dims, strides_bytes, box=box, swizzle=swizzle)
    assert not complaint, complaint
    assert address % 16 == 0, f"the address is {address:#x}"
    rank = len(dims)
    return _MAP.pack(
        _MAGIC, address, _ELEMENT_BYTES[name], rank, swizzle, 0, *dims, *(1,) * (5 - rank), *strides_bytes,
        *(0,) * (5 - rank), *box, *(1,) * (5 - rank),
    )  # fmt: skip

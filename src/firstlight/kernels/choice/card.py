"""What the times of a GPU scale with, asked of the driver: multiprocessors, clock, memory bandwidth."""

from __future__ import annotations

import ctypes
import functools

import torch

from firstlight.errors import FirstlightError
from firstlight.kernels.choice.rows import Card

# numbers of cuDeviceGetAttribute, as in cuda.h; the runtime's properties have lost the clocks with CUDA 13
MULTIPROCESSORS, CLOCK_KHZ, MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 16, 13, 36, 37
PER_CLOCK = 2  # transfers of HBM and GDDR, by the clock that the driver reports
UNKNOWN_CLOCK_MHZ, UNKNOWN_BANDWIDTH_GBS = 1500.0, 1500.0


@functools.lru_cache(maxsize=64)
def card_of(device: int) -> Card:
    """The card behind a CUDA ordinal, e.g. Card('NVIDIA H200', '9.0', 132, 1980.0, 4814.3); read once."""
    properties = torch.cuda.get_device_properties(device)
    name, sms = str(properties.name), int(properties.multi_processor_count)
    try:
        clock, memory, bus = (_attribute(device, number) for number in (CLOCK_KHZ, MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS))
    except FirstlightError:  # no NVIDIA driver behind torch's device
        clock = memory = bus = 0
    bandwidth = PER_CLOCK * memory * 1e3 * bus / 8 / 1e9
    capability = f"{properties.major}.{properties.minor}"
    return Card(name, capability, sms, clock / 1e3 or UNKNOWN_CLOCK_MHZ, round(bandwidth, 1) or UNKNOWN_BANDWIDTH_GBS)


def _attribute(device: int, number: int) -> int:
    from firstlight.kernels.sm90 import libcuda

    handle, found = ctypes.c_int(), ctypes.c_int()
    libcuda.call("cuDeviceGet", ctypes.byref(handle), device)
    libcuda.call("cuDeviceGetAttribute", ctypes.byref(found), number, handle)
    return found.value

"""Kernels of a few lines for the tests of the emulator.

    tiny("((int*)a[0])[t] = __shfl_xor_sync(~0u, t, 1);", out.data_ptr())

The body sees a[0] to a[7] (addresses or numbers), t, lane, warp, `memory` (dynamic shared memory), base (its address)
and args.map (a tensor map).
"""

from __future__ import annotations

import struct

from tests.kernels.sm90.emulator.run import Counts, emulate

_BEFORE = """#include "wgmma.cuh"
struct alignas(64) Args { TensorMap map; u64 a[8]; };
"""
_OPENING = """extern "C" __global__ void tiny(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u64* a = args.a;
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  u32 base = shared_address(memory);
"""


def tiny(
    body: str, *given: int, tensor_map: bytes = bytes(128), threads: int = 128, shared_bytes: int = 4096, grid: int = 1,
    seed: int = 0, before: str = "", **defines: int,
) -> Counts:  # fmt: skip
    """Runs a kernel with this body; `before` stands in front of it."""
    arguments = tensor_map + struct.pack("<8Q", *given, *(0,) * (8 - len(given)))
    return emulate(
        "tiny", {"BF16": 0, **defines}, "tiny", arguments, grid=(grid, 1, 1), threads=threads,
        shared_bytes=shared_bytes, seed=seed, replaced={"tiny.cu": f"{_BEFORE}{before}\n{_OPENING}{body}\n}}\n"},
    )  # fmt: skip

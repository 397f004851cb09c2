"""The stand-in driver of the plan tests with the kernels themselves behind it: launches run in the emulator."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

from tests.kernels.sm90.emulated import Driver
from tests.kernels.sm90.emulator.run import Counts, argument_bytes, emulate, emulated_map

_DTYPES = {6: "float16", 9: "bfloat16"}  # CUtensorMapDataType
_SPANS = {0: 0, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle


class EmulatingDriver(Driver):
    """What the backend calls of libcuda; every launch takes the next seed."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = 0
        self.replaced: Mapping[str, str] = {}
        self.counts: list[Counts] = []

    def cuTensorMapEncodeTiled(self, to: Any, *given: Any) -> int:
        """Writes an emulated map."""
        kind, rank, address, sizes, strides, box, _, _, swizzle, _, _ = given
        made = emulated_map(
            address.value, _DTYPES[kind], tuple(sizes), tuple(strides)[: rank - 1], tuple(box), _SPANS[swizzle]
        )
        place = ctypes.cast(to, ctypes.c_void_p).value
        assert place
        ctypes.memmove(place, made, len(made))
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        """Runs the kernel before it returns."""
        told = self.cubins[function.value - 1].decode("latin-1")
        source = re.findall(r"(\w+)\.cu\b", told)[-1]
        macros: dict[str, str | int] = dict(re.findall(r"-D(\w+)=(\w+)", told))
        self.launched.append(source)
        shape = config.contents if hasattr(config, "contents") else config._obj  # a pointer, or byref
        grid = tuple(shape.grid)
        self.grids.append(grid)
        arguments = ctypes.string_at(pointers[0], argument_bytes(source, macros, source, self.replaced))
        self.seed += 1
        made = emulate(
            source, macros, source, arguments, grid=grid, threads=shape.block[0], shared_bytes=shape.shared_bytes,
            seed=self.seed, replaced=self.replaced,
        )  # fmt: skip
        self.counts.append(made)
        return 0

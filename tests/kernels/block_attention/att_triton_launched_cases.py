"""Launches of the attention kernels onto a driver that writes down what it gets; a process of its own.

TRITON_LIBCUDA_PATH=FOLDER LD_LIBRARY_PATH=FOLDER python att_triton_launched_cases.py
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.nvidia import driver

from firstlight.kernels.block_attention.triton import arguments
from firstlight.kernels.block_attention.triton.launch import AttentionRunner
from firstlight.kernels.block_attention.triton.lists import ORDER, FillHow, fill_spec, order_spec
from firstlight.kernels.block_attention.triton.plan import rows_spec, spec_of
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile
from firstlight.kernels.triton_backend.launch import Constant, Spec, compiled_for, unwrapped
from tests.kernels.block_attention.att_triton_specs import PLAIN

LETTERS = {"i32": "i", "i64": "l", "fp32": "f"}
BEYOND_INT32 = 5_000_000_000


def launches() -> Iterator[Spec]:
    small = Tile(64, 64, 4, 2)
    yield from (spec_of(which, PLAIN, small) for which in Pass)
    yield rows_spec(PLAIN._replace(has_grad_lse=True))
    yield fill_spec(FillHow(32, 64, turned=True, has_which=True))
    yield order_spec(ORDER)


def argument(types: Any, numbers: Iterator[int]) -> Any:
    """A named tuple of tensors or of numbers, no two the same."""
    if all(type_.startswith("*") for type_ in types):
        return type(types)(*(torch.empty(4) for _ in types))
    first = {"i32": 0, "i64": BEYOND_INT32}
    return type(types)(*(0.5 if type_ == "fp32" else first[type_] + next(numbers) for type_ in types))


def main() -> None:
    triton.runtime.driver.set_active(SimpleNamespace(utils=driver.CudaUtils()))
    library = ctypes.CDLL("libcuda.so.1")
    for spec in launches():
        kernel = compiled_for(spec, (9, 0))
        runner = object.__new__(AttentionRunner)  # without a device to load the kernel on
        runner._function, runner._packed = 4321, kernel.packed_metadata
        numbers = iter(range(1, 100))
        types = [type_ for type_ in spec.types if not isinstance(type_, Constant)]
        args = [argument(type_, numbers) for type_ in types]
        library.fake_expect("".join("p" if t.startswith("*") else LETTERS[t] for part in types for t in part).encode())
        launch = unwrapped(driver.CudaLauncher(kernel.src, kernel.metadata).launch)
        launch(*runner.arguments(96, (*args, None), 77))
        wanted = [value.data_ptr() if type(arg) in arguments.POINTERS else value for arg in args for value in arg]
        print(json.dumps({"kernel": kernel.name, "wanted": wanted}), flush=True)


if __name__ == "__main__":
    main()

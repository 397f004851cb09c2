"""A product started again through Triton's own launcher, onto a driver that writes down what it gets.

TRITON_LIBCUDA_PATH=FOLDER LD_LIBRARY_PATH=FOLDER python relaunched_cases.py
"""

from __future__ import annotations

import ctypes
import json
import threading
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.nvidia import driver

from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import Activation, Epilogue, Layout
from firstlight.kernels.triton_backend import relaunch, rows_plan
from firstlight.kernels.triton_backend.launch import DirectRunner, Spec, compiled_for, unwrapped
from firstlight.kernels.triton_backend.problem import Gpu, problem_of
from firstlight.kernels.triton_backend.tiles import Family, Tile, Walk

TILE = Tile(Walk.ROWS, 128, 16, 64, 4, 4, 1)
PRODUCT, ADDING = b"tiill" * 3 + b"p" * 12 + b"i" * 8 + b"ff", b"p" * 11 + b"i" * 8 + b"ff"
STREAM = 77


class Elsewhere(DirectRunner):
    """A runner without a GPU: the kernel is compiled and its launcher real, the loaded function is a number."""

    def __init__(self, spec: Spec, _: torch.device) -> None:
        kernel = compiled_for(spec, (9, 0))
        self.launch: Any = unwrapped(driver.CudaLauncher(kernel.src, kernel.metadata).launch)
        self._function, self._packed = 4321, kernel.packed_metadata
        self._boxes = list(kernel.metadata.tensordesc_meta or ())


def main() -> None:
    triton.runtime.driver.set_active(SimpleNamespace(utils=driver.CudaUtils()))
    rows_plan.runner_for = Elsewhere  # type: ignore[attr-defined, assignment]
    relaunch._raw_stream = lambda ordinal: STREAM
    relaunch._is_capturing = lambda: False
    expect = ctypes.CDLL("libcuda.so.1").fake_expect
    w = BlockSparseMatrix.random(256, 8192, block=128, density=0.5, dtype=torch.float16)
    bias = torch.randn(256).half()
    epilogue = Epilogue(2.0, 0.0, None, bias, Activation.RELU)
    denses = [torch.randn(16, 8192).half() for _ in range(2)]
    outs = [torch.empty(16, 256).half() for _ in range(2)]
    plan = rows_plan.plan_rows(
        problem_of(w.index, denses[0], Layout.TOKENS, epilogue), TILE, Gpu(Family.SM90, 132, has_boxes=True)
    )
    launch = relaunch.RowsAgain(plan, w.index, epilogue)
    partials: list[Tensor] = []

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        partials.append(torch.empty_strided(shape, strides, dtype=dtype))
        return partials[-1]

    run, add, launch._empty = launch._run, launch._add, empty
    assert add is not None
    launch._run = lambda *args: (expect(PRODUCT), run(*args))
    launch._add = lambda *args: (expect(ADDING), add(*args))
    order = [(0, 0), (1, 1), (0, 0)]
    for dense, out in ((denses[i], outs[k]) for i, k in order):  # each in a thread that has called CUDA never before
        addresses = (dense.data_ptr(), w.values.data_ptr())
        thread = threading.Thread(target=launch, args=(w.values, dense, out, bias, None, addresses))
        thread.start()
        thread.join()
    places = [[denses[i].data_ptr(), outs[k].data_ptr()] for i, k in order]
    seen = {"places": places, "values": w.values.data_ptr(), "bias": bias.data_ptr(), "limit": plan.limit}
    print(json.dumps(seen | {"partials": [tensor.data_ptr() for tensor in partials], "kept": len(launch._known)}))


if __name__ == "__main__":
    main()

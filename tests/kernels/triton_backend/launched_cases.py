"""A launch through Triton's own launcher onto a driver that writes down what it gets; a process of its own.

TRITON_LIBCUDA_PATH=FOLDER LD_LIBRARY_PATH=FOLDER python launched_cases.py
"""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace

import torch
import triton
from triton.backends.nvidia import driver

from firstlight.kernels.triton_backend.arguments import Data, Lists, Sizes
from firstlight.kernels.triton_backend.boxes import Boxes
from firstlight.kernels.triton_backend.launch import (
    NO_HOOKS,
    PLAIN_LAUNCH,
    compiled_for,
    flattened,
    launching,
    unwrapped,
)
from tests.kernels.triton_backend.specs import PLAIN, Target

SIZES = Sizes(rows=1, cols=2, n=3, pitch=4, batch=5, tiles=6, items=7, block_rows=8, alpha=1.5, beta=-2.0)


def main() -> None:
    triton.runtime.driver.set_active(SimpleNamespace(utils=driver.CudaUtils()))
    [spec] = Target((9, 0)).specs(PLAIN)
    kernel = compiled_for(spec, (9, 0))
    launch = unwrapped(driver.CudaLauncher(kernel.src, kernel.metadata).launch)
    tensors = [torch.empty(256, 128, dtype=torch.float16) for _ in range(6)]
    values, dense, out = tensors[:3]
    lists = [torch.empty(4, dtype=torch.int32) for _ in range(4)]
    boxes = (Boxes(values, 256, 128), Boxes(dense, 128, 256), Boxes(out, 64, 512))
    args = (*boxes, Lists(*lists), Data(*[*tensors, values, dense]), SIZES, None)
    described = list(kernel.metadata.tensordesc_meta)
    ctypes.CDLL("libcuda.so.1").fake_expect(b"tiill" * 3 + b"pppp" + b"p" * 8 + b"i" * 8 + b"ff")
    for stream in (77, 78):  # the second launch finds its maps made
        flat = flattened(args, described)
        launch(2048, 1, 1, stream, 4321, *PLAIN_LAUNCH, kernel.packed_metadata, *NO_HOOKS, *flat)
    addresses = [tensor.data_ptr() for tensor in (*lists, *tensors, values, dense)]
    print(json.dumps({"addresses": addresses, "launching": launching().value}))


if __name__ == "__main__":
    main()

"""The kernels of axpy.cu, described: firstlight bench examples/user_kernels/axpy.cu

nvcc compiles the file for the GPU at hand. `launch` gets inputs and outputs and says how the kernel is started.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from firstlight.bench.user_cases import CudaFile, Grid, UserCase

N = 1 << 27  # numbers: 512 MiB in fp32
THREADS = (256, 1, 1)


def one_each(x: Tensor, y: Tensor, out: Tensor) -> Grid:
    return Grid((-(-N // 256), 1, 1), THREADS, arguments=(N, 2.0, x, y, out))


def four_each(x: Tensor, y: Tensor, out: Tensor) -> Grid:
    return Grid((132 * 8, 1, 1), THREADS, arguments=(N // 4, 2.0, x, y, out))


def described(name: str, run: CudaFile) -> UserCase:
    """The same inputs, work and reference for both kernels."""
    work: dict[str, Any] = {"flops": 2 * N, "bytes": 3 * 4 * N}
    return UserCase(
        name=name,
        inputs=lambda make: (make.normal((N,)), make.normal((N,))),
        outputs=lambda make: (make.empty((N,)),),
        run=run,
        reference=lambda x, y: 2.0 * x + y,
        **work,
    )


CASES = (
    described("axpy/one-each", CudaFile("axpy.cu", entry="axpy", launch=one_each)),
    described("axpy/four-each", CudaFile("axpy.cu", entry="axpy_by_four", launch=four_each)),
)

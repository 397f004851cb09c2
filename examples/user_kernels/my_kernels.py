"""Cases of one's own, to copy: firstlight bench examples/user_kernels/my_kernels.py

Each names its inputs, the function, a plain reference and the work of one call. The reference gets the inputs in double
precision. Everything else (buffers, a cold cache, the stopwatch, the limits, the guards) is firstlight's.
"""

from __future__ import annotations

import torch

from firstlight.bench.user_cases import UserCase

N = 1 << 24  # numbers: 64 MiB in fp32
ROWS, WIDTH = 4096, 1024
SIZE = 1024

AXPY = UserCase(
    name="axpy/fp32/64MiB",
    inputs=lambda make: (make.normal((N,)), make.normal((N,))),
    run=lambda x, y: torch.add(y, x, alpha=2.0),
    reference=lambda x, y: 2.0 * x + y,
    flops=2 * N,
    bytes=3 * 4 * N,
)

RMS_NORM = UserCase(
    name=f"rms-norm/fp32/{ROWS}x{WIDTH}",
    inputs=lambda make: (make.normal((ROWS, WIDTH)), make.uniform((WIDTH,), low=0.5, high=1.5)),
    run=lambda x, scale: x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * scale,
    reference=lambda x, scale: x / (x.square().mean(dim=1, keepdim=True) + 1e-6).sqrt() * scale,
    bytes=2 * 4 * ROWS * WIDTH + 4 * WIDTH,
)

PRODUCT = UserCase(
    name=f"product/fp32/{SIZE}",
    inputs=lambda make: (make.normal((SIZE, SIZE)), make.normal((SIZE, SIZE), std=SIZE**-0.5)),
    outputs=lambda make: (make.empty((SIZE, SIZE)),),
    run=lambda left, right, out: torch.mm(left, right, out=out),
    reference=lambda left, right: left @ right,
    flops=2 * SIZE**3,
    bytes=3 * 4 * SIZE * SIZE,
)

CASES = (AXPY, RMS_NORM, PRODUCT)

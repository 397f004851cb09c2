"""A clock that goes at a tenth of its speed, planted: the case must fail by the guard patched-instrument.

firstlight bench examples/user_kernels/cheat_clock.py --device cpu --effort quick
"""

from __future__ import annotations

import time

import torch

from firstlight.bench.user_cases import UserCase

N = 1 << 16
_real = time.perf_counter
time.perf_counter = lambda: _real() / 10

CASES = (
    UserCase(
        name="patched-instrument",
        inputs=lambda make: (make.normal((N,)), make.normal((N,))),
        run=torch.add,
        reference=torch.add,
        bytes=12 * N,
    ),
)

"""Work on a second stream that is joined, which is no cheat: firstlight bench examples/user_kernels/two_streams.py

The second stream waits for the current one, and the current one for it, so that the events span all of the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firstlight.bench.user_cases import UserCase

N = 1 << 24
_streams: list[Any] = []


def halves(x: Tensor, y: Tensor, out: Tensor) -> None:
    cuda: Any = torch.cuda
    if not _streams:
        _streams.append(cuda.Stream())
    here, other = cuda.current_stream(), _streams[0]
    other.wait_stream(here)
    with cuda.stream(other):
        torch.add(x[: N // 2], y[: N // 2], out=out[: N // 2])
    torch.add(x[N // 2 :], y[N // 2 :], out=out[N // 2 :])
    here.wait_stream(other)


CASES = (
    UserCase(
        name="two-streams/joined",
        inputs=lambda make: (make.normal((N,)), make.normal((N,))),
        outputs=lambda make: (make.empty((N,)),),
        run=halves,
        reference=torch.add,
        bytes=12 * N,
    ),
)

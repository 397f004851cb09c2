"""Three ways to look fast that need a GPU, planted: every case of this file must fail by the guard it is named after.

firstlight bench examples/user_kernels/cheats_gpu.py --effort quick
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firstlight.bench.user_cases import Maker, UserCase

N = 1 << 24
_streams: list[Any] = []


def side() -> Any:
    """One stream beside the current one."""
    if not _streams:
        cuda: Any = torch.cuda
        _streams.append(cuda.Stream())
    return _streams[0]


def pair(make: Maker) -> tuple[Tensor, ...]:
    return make.normal((N,)), make.normal((N,))


def out(make: Maker) -> tuple[Tensor, ...]:
    return (make.empty((N,)),)


def elsewhere(x: Tensor, y: Tensor, out: Tensor) -> None:
    """On a stream of its own, which neither waits for the current one nor is waited for."""
    with torch.cuda.stream(side()):
        torch.add(x, y, out=out)


def not_joined(x: Tensor, y: Tensor, out: Tensor) -> None:
    """Waits for the current stream, which does not wait for it."""
    stream = side()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.add(x, y, out=out)


def not_in_graphs(x: Tensor, y: Tensor, out: Tensor) -> None:
    """Leaves the work out while it is captured."""
    if not torch.cuda.is_current_stream_capturing():
        torch.add(x, y, out=out)


CASES = tuple(
    UserCase(name=name, inputs=pair, outputs=out, run=run, reference=torch.add, bytes=12 * N)
    for name, run in (
        ("other-stream", elsewhere),
        ("other-stream/not-joined", not_joined),
        ("empty-graph", not_in_graphs),
    )
)

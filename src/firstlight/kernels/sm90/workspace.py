"""Memory that kernels find zeroed and leave zeroed: the queue of work items and the counts of portions that are done.

Two launches of one stream run one after the other and may share it; launches of two streams may not. So there is one
for each device and stream. It lives as long as the process, or as the launches that name it, and is read on its own
stream alone: lifetimes.py asks nothing more of it. A CUDA graph may be replayed on any stream, beside anything: inside
a capture the zeros are the graph's own, and written again by every replay.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

QUEUE_INTS = 32  # next item and finished thread blocks, in a cache line of their own
LEAST_ARRIVALS = 1 << 14
_INT = 4


class Control(NamedTuple):
    """Addresses of a zeroed queue and of zeroed arrival counts, and the tensor they are in."""

    queue: int
    arrivals: int
    room: Tensor
    counts: int


_KEPT: dict[tuple[torch.device, int], Control] = {}


def control_of(device: torch.device, stream: int, *, arrivals: int) -> Control:
    """The zeros of a stream with room for that many counts, to be held as long as a launch names them."""
    if torch.cuda.is_current_stream_capturing():
        return _made(device, arrivals)
    found = _KEPT.get((device, stream))
    if found is None or found.counts < arrivals:
        counts = max(arrivals, LEAST_ARRIVALS if found is None else 2 * found.counts)
        found = _KEPT[device, stream] = _made(device, counts)
    return found


def _made(device: torch.device, counts: int) -> Control:
    with torch.inference_mode(mode=False):
        room = torch.zeros(QUEUE_INTS + counts, dtype=torch.int32, device=device)
    address = room.data_ptr()
    return Control(address, address + QUEUE_INTS * _INT, room, counts)

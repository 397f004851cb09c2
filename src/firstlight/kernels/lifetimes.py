"""How long what we allocate lives: one rule for every tensor that the caller cannot see.

A call makes lists, indexes turned over, masks of plain shapes and dense copies, and later calls find them again. Who
drops them (an eviction, a matrix or mask that goes, a change in place) does not know who still reads them. So:

1. What is kept for later calls gets a Held when it is made (`held_after`), and every call that finds it says `use()`
   before it starts a kernel that reads it.
2. use() makes a stream that is not the maker's wait for the making, and tells torch's allocator which stream reads the
   memory (record_stream). Once for each stream is enough: the allocator looks at the streams when the memory is freed,
   and a call holds what it reads until its kernels are in their streams. So launches that are kept by their stream say
   it when they are put together, and not again.
3. While a CUDA graph is captured, use() has the host wait for the making (a captured stream may not wait for work
   outside of the graph), and the tensors stay as long as the graph does (captured.py).
4. What one call makes and reads on one stream (scratch, partial sums, X turned over or padded) is held until the launch
   and needs nothing else: freed memory is handed out again in that stream's order. In a capture it is the graph's.

A pattern's crow and col and the parts of a mask are the caller's, who may not think of them: they are held likewise
(`held_of_caller`, which knows of no making to wait for). Values, x, bias and outputs follow torch's own rule: who uses
a tensor on a second stream, or in a graph, sees to it that it lives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.kernels import captured
from firstlight.kernels.torch_private import FakeTensor, is_capturing, raw_stream

DEFAULT_STREAM = 0  # CUDA captures no graph on it, so a call there need not ask: 0.6 us on the host of an H200


class Held:
    """Tensors on one GPU that are kept for later calls, and what a call has to do before it reads them."""

    __slots__ = ("_device", "_event", "_maker", "_readers", "_tensors")

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        # aliases: this may be kept beside the very tensors, which then would never go (memo.py)
        self._tensors = tuple(tensor.detach() for tensor in tensors)
        self._device = tensors[0].get_device()
        self._readers: set[int] = set()
        self._maker = -1  # no stream
        self._event: Any = None

    def made_now(self) -> Held:
        """Notes that what was started on the current stream makes the tensors; returns itself."""
        stream = raw_stream(self._device)
        event, current = torch.cuda.Event(), _current_stream(self._device, stream)  # type: ignore[no-untyped-call]
        event.record(current)
        self._maker, self._event = stream, event
        self._record(current, stream)
        return self

    def use(self) -> None:
        """Makes the tensors safe to read by what is started next on the current stream."""
        stream = raw_stream(self._device)
        if stream != DEFAULT_STREAM and is_capturing():
            self._use_in_graph(stream)
        elif stream not in self._readers or (self._event is not None and stream != self._maker):
            self._use_on(stream)

    def _use_on(self, stream: int) -> None:
        event = self._event
        if event is not None and event.query():
            event = self._event = None
        current = _current_stream(self._device, stream)
        if event is not None and stream != self._maker:
            current.wait_event(event)
        if stream not in self._readers:
            self._record(current, stream)

    def _record(self, current: torch.cuda.Stream, stream: int) -> None:
        for tensor in self._tensors:
            tensor.record_stream(current)
        self._readers.add(stream)  # last: another thread that sees it may rely on it

    def _use_in_graph(self, stream: int) -> None:
        event = self._event
        if event is not None:
            with captured.relaxed():
                event.synchronize()
            self._event = None
        captured.keep(stream, self._tensors)


_STREAMS: dict[tuple[int, int], torch.cuda.Stream] = {}
_MOST_STREAMS = 1024


def _current_stream(device: int, address: int) -> torch.cuda.Stream:
    """torch.cuda.current_stream, which takes 10 us to make one more object of a stream; address: raw_stream's."""
    found = _STREAMS.get((device, address))
    if found is None:
        if len(_STREAMS) >= _MOST_STREAMS:
            _STREAMS.clear()
        found = _STREAMS[device, address] = torch.cuda.current_stream(device)
    return found


def held_after(*made: Tensor | None) -> Held | None:
    """What later readers of these tensors, made just now on the current stream, have to `use`; None on the CPU."""
    held = held_of_caller(*made)
    return None if held is None else held.made_now()


def held_of_caller(*given: Tensor | None) -> Held | None:
    """The same for tensors whose making is the caller's business."""
    first = given[0]
    if first is None or not first.is_cuda or is_dynamo_compiling() or isinstance(first, FakeTensor):
        return None
    return Held(tuple(tensor for tensor in given if tensor is not None))


def use(*held: Held | None) -> None:
    """Uses all that are there."""
    for one in held:
        if one is not None:
            one.use()

"""What a captured CUDA graph reads stays as long as the graph.

A graph names addresses and holds nothing. The driver has a way to tie something to a graph: a user object, whose
callback runs when the graph and everything instantiated from it are gone. That callback comes on a thread of the
driver's, where Python is no safe thing to run, so it is libc's sem_post, and the next capture looks at the semaphores
and drops what belonged to graphs that are gone. Where the driver refuses, the tensors stay until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from firstlight.errors import FirstlightError

_SEMAPHORE_BYTES = 64  # sem_t has 32 on 64-bit Linux
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NO_DESTRUCTOR_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, the one flag there is, and it must be given
_MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE: the graph has the one reference
FOREVER = 0  # in place of a capture's number


class _Graph:
    """The tensors of one captured graph, by address; `gone` is posted by the driver."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.gone = ctypes.create_string_buffer(_SEMAPHORE_BYTES)


_GRAPHS: dict[int, _Graph] = {}
_LOCK = threading.Lock()


def keep(stream: int, tensors: tuple[Tensor, ...]) -> None:
    """Keeps tensors for the graph that is being captured on a stream."""
    with _LOCK:
        number, graph = _capture_on(stream)
        kept = _GRAPHS.get(number)
        if kept is None:
            drop_gone()
            kept = _Graph()
            if number == FOREVER or not _tied(kept, graph):
                number, kept = FOREVER, _GRAPHS.get(FOREVER, kept)
            _GRAPHS[number] = kept
        for tensor in tensors:
            kept.tensors[tensor.data_ptr()] = tensor


def held_tensors() -> int:
    """How many tensors are kept for graphs now, e.g. 12; for tests and the curious."""
    return sum(len(graph.tensors) for graph in _GRAPHS.values())


def drop_gone() -> None:
    """Drops the tensors of graphs that are gone; each new capture does it."""
    for number, graph in list(_GRAPHS.items()):
        if number != FOREVER and _libc().sem_trywait(graph.gone) == 0:
            del _GRAPHS[number]


def _capture_on(stream: int) -> tuple[int, ctypes.c_void_p]:
    """Number and handle of the graph that is being captured; (FOREVER, null) where the driver does not say."""
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    try:
        _call(
            "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number),
            ctypes.byref(graph), None, None,
        )  # fmt: skip
    except (FirstlightError, AttributeError):
        return FOREVER, graph
    return number.value, graph


def _tied(kept: _Graph, graph: ctypes.c_void_p) -> bool:
    """Whether the driver will post `kept.gone` when the graph goes."""
    libc, made = _libc(), ctypes.c_void_p()
    libc.sem_init(kept.gone, 0, 0)
    post = ctypes.cast(libc.sem_post, ctypes.c_void_p)
    try:
        _call("cuUserObjectCreate", ctypes.byref(made), kept.gone, post, 1, _NO_DESTRUCTOR_SYNC)
        _call("cuGraphRetainUserObject", graph, made, 1, _MOVE)
    except (FirstlightError, AttributeError):
        return False
    return True


@contextmanager
def relaxed() -> Iterator[None]:
    """Lets this thread wait for an event while a graph is captured; a capture in the strict mode would be lost else."""
    mode = ctypes.c_int(_RELAXED)
    _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def _call(name: str, *arguments: Any) -> None:
    from firstlight.kernels.sm90 import libcuda  # whose package needs ours

    libcuda.call(name, *arguments)


@functools.lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None)

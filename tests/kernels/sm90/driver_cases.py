"""Loads and launches against a stand-in for the driver, which writes down what it gets; test_driver.py reads it."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

from firstlight.errors import FirstlightError
from firstlight.kernels.sm90 import driver, libcuda
from firstlight.kernels.sm90.driver import Launch, encode_map, load
from tests.kernels.sm90.cases import in_processes

IMAGE = b"\x7fELF and the rest"


def written(library: str, work: Callable[[], Any]) -> list[Any]:
    """In a process of its own that has this library for its libcuda: what that wrote down, and what work returned."""

    def run(number: int) -> Any:
        into = os.open(f"{library}.lines", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(into, 1)
        libcuda.library.cache_clear()
        ctypes.CDLL(library)  # found by its soname from now on
        answer = work()
        ctypes.CDLL(None).fflush(None)
        return answer

    [answer] = in_processes(1, run)
    with open(f"{library}.lines", encoding="utf-8") as file:
        return [*map(json.loads, file), answer]


def launches() -> dict[str, Any]:
    """Maps, a kernel, and launches on streams, in another thread, with other arguments; then what must be refused."""
    kernel = load(IMAGE, "multiply", device=3, shared_bytes=200_000)
    assert load(IMAGE, "multiply", device=3, shared_bytes=200_000) is kernel  # kept
    box = encode_map(4096 * 7, "torch.bfloat16", (8192, 100), (16384,), (64, 128), 128)
    assert encode_map(4096 * 7, "torch.bfloat16", (8192, 100), (16384,), (64, 128), 128) is box
    assert box == b"\xab" * 128
    encode_map(2**40, "float16", (16, 20, 30), (32, 640), (16, 4, 2), 32)
    arguments = b"first" + bytes(123) + box + struct.pack("=QiB", 7, 9, 1)  # 269 bytes: the struct without its end
    libcuda.call("cuCtxSetCurrent", libcuda.primary_context(3))
    first = Launch(kernel, arguments, grid=(132, 2, 3), threads=384)
    first.start(77)
    first.start(2**47 + 5)
    Launch(kernel, b"other" + bytes(314) + b"\x05", grid=(4, 1, 1), threads=128).start(77)
    first.start(0)
    first.start(77)
    thread = threading.Thread(target=first.start, args=(78,))  # it has no context of its own yet
    thread.start()
    thread.join()
    return {
        "registers": kernel.attribute("registers"), "local": kernel.attribute("local_bytes"),
        "argument_bytes": kernel.argument_bytes,
        "errors": [_refused(attempt) for attempt in _wrong(driver.Launch, kernel, arguments)],
    }  # fmt: skip


def _wrong(launch: type[Launch], kernel: driver.Kernel, arguments: bytes) -> list[Callable[[], object]]:
    return [
        lambda: load(b"not a cubin", "multiply", device=0),
        lambda: load(IMAGE, "absent", device=0),
        lambda: load(IMAGE, "multiply", device=0, shared_bytes=300_000),
        lambda: launch(kernel, arguments, grid=(1, 1, 1), threads=2048).start(0),
        lambda: launch(kernel, bytes(5000), grid=(1, 1, 1), threads=32),
        lambda: launch(kernel, bytes(128), grid=(1, 1, 1), threads=32),
    ]


def _refused(attempt: Callable[[], object]) -> str:
    libcuda.call("cuCtxSetCurrent", libcuda.primary_context(3))
    try:
        attempt()
    except (FirstlightError, AssertionError) as error:
        return str(error)
    return "it was not refused"


def without_a_device() -> str:
    """The first call of a driver that finds no GPU."""
    os.environ["FAKE_NO_DEVICE"] = "1"
    try:
        load(IMAGE, "multiply", device=0)
    except FirstlightError as error:
        return str(error)
    return "it was not refused"

"""The clock of the GPU's multiprocessors while something runs, by NVML itself: torch's reading asks for a package."""

from __future__ import annotations

import ctypes
import statistics
import threading
from types import TracebackType

import torch

LIBRARY, SM, EVERY_S = "libnvidia-ml.so.1", 1, 0.05


class Clock:
    """Reads in a thread of its own from entry to exit: `with Clock() as clock: work()`, then clock.median."""

    def __init__(self, device: int = 0) -> None:
        self._read: list[int] = []
        self._done = threading.Event()
        self._found = _opened(device)
        self._thread = threading.Thread(target=self._reading, daemon=True)

    @property
    def median(self) -> int | None:
        """Megahertz; None where NVML cannot be asked."""
        return int(statistics.median(self._read)) if self._read else None

    def __enter__(self) -> Clock:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _reading(self) -> None:
        if self._found is None:
            return
        library, handle = self._found
        mhz = ctypes.c_uint()
        while not self._done.wait(EVERY_S):
            if library.nvmlDeviceGetClockInfo(handle, SM, ctypes.byref(mhz)) == 0:
                self._read.append(mhz.value)


def _opened(device: int) -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    try:
        library = ctypes.CDLL(LIBRARY)
        uuid = str(torch.cuda.get_device_properties(device).uuid)
    except (OSError, AssertionError, RuntimeError):  # no NVML, no GPU
        return None
    handle = ctypes.c_void_p()
    name = f"GPU-{uuid.removeprefix('GPU-')}".encode()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
        return None
    return library, handle

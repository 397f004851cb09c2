"""The memory of a device: how much is free, and the most that was taken."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

from firstlight.bench.place import processor_memory


class Memory(Protocol):
    """The memory of a device."""

    def free_bytes(self) -> int: ...

    def clear(self) -> None:
        """Give back what nobody holds, and start counting the peak anew."""

    def peaks(self) -> tuple[int | None, int | None]:
        """The most that was allocated and reserved since `clear`, on top of what was held then; None: not counted."""

    def finish(self) -> None:
        """Wait for the device; raises when its context is lost."""


class CpuMemory:
    """The machine's memory."""

    def free_bytes(self) -> int:
        return processor_memory()

    def clear(self) -> None:
        gc.collect()

    def peaks(self) -> tuple[int | None, int | None]:
        return None, None

    def finish(self) -> None:
        """Calls on a processor have ended when they return."""


class CudaMemory:
    """One GPU's memory as torch's allocator manages it."""

    def __init__(self, device: str) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._device = device
        self._held = (0, 0)
        self._reset_l2 = _persisting_reset()

    def free_bytes(self) -> int:
        return int(self._cuda.mem_get_info(self._device)[0])

    def clear(self) -> None:
        gc.collect()
        self._cuda.empty_cache()
        self._reset_l2()
        self._cuda.reset_peak_memory_stats(self._device)
        self._held = (self._cuda.memory_allocated(self._device), self._cuda.memory_reserved(self._device))

    def peaks(self) -> tuple[int | None, int | None]:
        allocated, reserved = self._held
        return (
            int(self._cuda.max_memory_allocated(self._device)) - allocated,
            int(self._cuda.max_memory_reserved(self._device)) - reserved,
        )

    def finish(self) -> None:
        self._cuda.synchronize(self._device)


def _persisting_reset() -> Callable[[], object]:
    """Gives lines that a library set aside in the L2 back to everybody; nothing where the driver has no such call.

    What it returns is not looked at: cards before compute capability 8.0 set no lines aside and refuse.
    """
    import ctypes

    try:
        reset: Callable[[], object] = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return lambda: None
    return reset

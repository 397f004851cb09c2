"""The CUDA driver's library through ctypes: loaded when first asked, every refusal with its name."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90.failures import DriverCallFailed

NAME = "libcuda.so.1"
INVALID_CONTEXT = 201
_HINTS = {
    200: "the cubin is not one this driver reads: damaged, or built by a CUDA newer than the driver",
    209: "the kernel is built for compute capability 9.0 (H100, H200) and the device has another",
    218: "the kernel was built by a CUDA newer than the driver; torch's own NVRTC fits torch's driver",
    222: "the kernel was built by a CUDA newer than the driver; torch's own NVRTC fits torch's driver",
    701: "more registers, threads or shared memory than the device has",
}


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libcuda.so.1, initialised; UnsupportedInput where there is no driver."""
    try:
        found = ctypes.CDLL(NAME)
    except OSError as error:
        raise UnsupportedInput(
            f"{NAME} cannot be loaded ({error}); the Hopper kernels need an NVIDIA driver. Use backend='auto'."
        ) from error
    check(found, "cuInit", found.cuInit(0))
    return found


def call(name: str, *arguments: Any) -> None:
    """One call, e.g. call('cuModuleLoadData', byref(module), cubin); DriverCallFailed when it is refused."""
    found = library()
    check(found, name, getattr(found, name)(*arguments))


def check(found: ctypes.CDLL, name: str, code: int) -> None:
    """Raises what the driver said; nothing for 0."""
    if code:
        text = f"{name}: {_said(found, 'cuGetErrorName', code)} ({code}), {_said(found, 'cuGetErrorString', code)}"
        raise DriverCallFailed(text + (f"; {_HINTS[code]}" if code in _HINTS else ""), code)


def _said(found: ctypes.CDLL, name: str, code: int) -> str:
    text = ctypes.c_char_p()
    getattr(found, name)(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


def enter_context(device: int) -> None:
    """Gives this thread torch's context of a device if it has none.

    A new thread has none, and what torch does first there need not give it one: memory comes from torch's own store.
    """
    context = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        call("cuCtxSetCurrent", primary_context(device))


@functools.lru_cache(maxsize=64)
def primary_context(device: int) -> ctypes.c_void_p:
    """The context that torch uses on a device, kept alive from here on."""
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(handle), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    return context

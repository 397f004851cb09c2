"""Loading a cubin on a device and launching its kernel with little Python in between.

    kernel = load(compiled.cubin, "multiply", device=0, shared_bytes=229_376)
    args = encode_map(...) + encode_map(...) + struct.pack("=QQi", first, second, count)   # the kernel's one struct
    launch = Launch(kernel, args, grid=(132, 1, 1), threads=384)
    launch.start(raw_stream(0))                                      # of torch_private: one call of the driver

Everything goes through ctypes on libcuda.so.1, which is there wherever torch sees a GPU. For the launch that is the
quick way too: with all four arguments bound it adds 0.22 us to a driver that does nothing, cuda-bindings'
cuLaunchKernel 0.38; on the host of an H200 a launch took 5.2 us, by cuda-bindings 6.3, from C 4.1 to 4.3.
A Launch never changes once made, so threads may share it: another address or size is another Launch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90 import libcuda
from firstlight.kernels.sm90.maps import encode_map as encode_map  # noqa: PLC0414 callers need one module

ARGUMENT_ALIGNMENT = 64  # a tensor map's
MOST_ARGUMENT_BYTES = 4096  # of a kernel on drivers before R530; later ones take 32764
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_ATTRIBUTES = {"max_threads": 0, "static_shared_bytes": 1, "local_bytes": 3, "registers": 4}


Begin = Callable[[], int]  # returns the driver's code


class _Config(ctypes.Structure):
    """CUlaunchConfig; clusters are compiled into the kernels, so there are no attributes."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint32),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel on one device, e.g. Kernel('multiply', device=0, handle=0x55..., shared_bytes=229376)."""

    name: str
    device: int
    handle: int
    shared_bytes: int
    argument_bytes: int = 0  # size of the one struct, as compiled; 0: the driver is too old to say
    idle: list[Series] = field(default_factory=list, compare=False, repr=False)  # see series_of

    def attribute(self, name: str) -> int:
        """One of max_threads, static_shared_bytes, local_bytes, registers."""
        value = ctypes.c_int()
        libcuda.call("cuFuncGetAttribute", ctypes.byref(value), _ATTRIBUTES[name], ctypes.c_void_p(self.handle))
        return value.value


@functools.lru_cache(maxsize=1024)  # kept per device and cubin for as long as the process runs
def load(cubin: bytes, name: str, *, device: int, shared_bytes: int = 0) -> Kernel:
    """The kernel `name` of a cubin in torch's context of a device, allowed that much dynamic shared memory."""
    context = libcuda.primary_context(device)
    before, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    libcuda.call("cuCtxPushCurrent_v2", context)
    try:
        libcuda.call("cuModuleLoadData", ctypes.byref(module), cubin)
        libcuda.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared_bytes:
            libcuda.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
    finally:
        libcuda.call("cuCtxPopCurrent_v2", ctypes.byref(before))
    assert function.value is not None, f"{name} has no handle"
    return Kernel(name, device, function.value, shared_bytes, _argument_bytes(function))


def _argument_bytes(function: ctypes.c_void_p) -> int:
    ask = getattr(libcuda.library(), "cuFuncGetParamInfo", None)  # since CUDA 12.4
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    if ask is None or ask(function, ctypes.c_size_t(0), ctypes.byref(offset), ctypes.byref(size)):
        return 0
    return size.value


class Shape(NamedTuple):
    """How many threads a launch starts, e.g. Shape(grid=(132, 1, 1), threads=384, shared_bytes=229376)."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int


class Launch:
    """One launch, ready: `launch.start(raw_stream)`. The arguments are the bytes of the kernel's one struct."""

    __slots__ = ("_begins", "_function", "_pointers", "_room", "kernel", "shape")

    def __init__(self, kernel: Kernel, arguments: bytes, *, grid: tuple[int, int, int], threads: int) -> None:
        self.kernel, self.shape = kernel, Shape(grid, threads, kernel.shared_bytes)
        self._function = ctypes.c_void_p(kernel.handle)
        self._room, self._pointers = _placed(kernel, arguments)  # the driver reads them at each launch
        self._begins: dict[int, Begin] = {}

    def start(self, raw_stream: int) -> None:
        """Starts the kernel on a stream; the current device must be the kernel's."""
        begin = self._begins.get(raw_stream)
        if begin is None:
            begin = self._begins[raw_stream] = self._bound(raw_stream)
        code = begin()
        if code:
            self._again(begin, code)

    def _bound(self, raw_stream: int) -> Begin:
        """The call of the driver for one stream; each has its own config, as another thread may be in the driver."""
        shape = self.shape
        config = _Config(shape.grid, (shape.threads, 1, 1), shape.shared_bytes, raw_stream, None, 0)
        launch = libcuda.library().cuLaunchKernelEx
        return functools.partial(launch, ctypes.pointer(config), self._function, self._pointers, None)

    def _again(self, begin: Begin, code: int) -> None:
        """A thread that has not called CUDA yet has no current context: it gets torch's, and the launch a second go."""
        name = f"launch of {self.kernel.name} (grid {self.shape.grid}, {self.shape.threads} threads)"
        if code == libcuda.INVALID_CONTEXT:
            libcuda.enter_context(self.kernel.device)
            code = begin()
        libcuda.check(libcuda.library(), name, int(code))


def start_once(kernel: Kernel, arguments: bytes, raw_stream: int, *, grid: tuple[int, int, int], threads: int) -> None:
    """One launch that will not come again; the driver has taken the arguments when this returns."""
    series = series_of(kernel, arguments, raw_stream)
    series.start(grid, threads)
    series.end()


class Series:
    """Several launches of one kernel, one after the other on one stream: what differs is written over between them.

    series.start((3, 1, 1), 256, {38: 1}) sets the 39th integer of the struct to 1, for this launch and the next ones.
    """

    __slots__ = ("_begin", "_config", "_integers", "_kernel", "_room", "_shape", "size")

    def __init__(self, kernel: Kernel, size: int) -> None:
        self._kernel, self.size = kernel, size
        self._room, pointers = _placed(kernel, bytes(size))
        self._integers = (ctypes.c_int * (size // 4)).from_address(pointers[0])
        self._config = _Config((1, 1, 1), (1, 1, 1), kernel.shared_bytes, 0, None, 0)
        self._shape = ((1, 1, 1), 1)
        launch = libcuda.library().cuLaunchKernelEx
        handle = ctypes.c_void_p(kernel.handle)
        self._begin: Begin = functools.partial(launch, ctypes.pointer(self._config), handle, pointers, None)

    def begin(self, arguments: bytes, raw_stream: int) -> None:
        """Takes the struct, and the stream of the launches to come."""
        ctypes.memmove(self._integers, arguments, self.size)
        self._config.stream = raw_stream

    def start(self, grid: tuple[int, int, int], threads: int, changed: dict[int, int] | None = None) -> None:
        """Starts the kernel once; the driver has taken the arguments when this returns."""
        if changed is not None:
            for place, number in changed.items():
                self._integers[place] = number
        if self._shape != (grid, threads):
            self._config.grid[:], self._config.block[0] = grid, threads
            self._shape = (grid, threads)
        code = self._begin()
        if code == libcuda.INVALID_CONTEXT:
            libcuda.enter_context(self._kernel.device)
            code = self._begin()
        if code:
            name = f"launch of {self._kernel.name} (grid {grid}, {threads} threads, {self.size} bytes of arguments)"
            libcuda.check(libcuda.library(), name, int(code))

    def end(self) -> None:
        """Lets the next call that starts this kernel have it; not after a launch that was refused."""
        self._kernel.idle.append(self)


def series_of(kernel: Kernel, arguments: bytes, raw_stream: int) -> Series:
    """A series that nobody else uses until its end(): several threads may start one kernel.

    Putting one together takes 30 us where the processor's caches are cold, writing an idle one over takes 5.
    """
    try:
        series = kernel.idle.pop()
    except IndexError:
        series = Series(kernel, len(arguments))
    assert series.size == len(arguments), f"{kernel.name} takes {series.size} bytes of arguments, not {len(arguments)}"
    series.begin(arguments, raw_stream)
    return series


_OnePointer = ctypes.c_void_p * 1


def _placed(kernel: Kernel, arguments: bytes) -> tuple[Any, Any]:
    """The arguments at an address the struct may have, and the pointer to them."""
    size, taken = len(arguments), kernel.argument_bytes
    if size > MOST_ARGUMENT_BYTES:
        raise UnsupportedInput(f"{kernel.name}: {size} bytes of arguments; at most {MOST_ARGUMENT_BYTES}.")
    whole = -(-size // ARGUMENT_ALIGNMENT) * ARGUMENT_ALIGNMENT  # what alignas(64) makes of the struct in C++
    assert taken in (whole, size, 0), f"{kernel.name} takes {taken} bytes of arguments; {size} were given"
    room = (ctypes.c_char * (whole + ARGUMENT_ALIGNMENT))()
    place = -(-ctypes.addressof(room) // ARGUMENT_ALIGNMENT) * ARGUMENT_ALIGNMENT
    ctypes.memmove(place, arguments, size)
    return room, _OnePointer(place)

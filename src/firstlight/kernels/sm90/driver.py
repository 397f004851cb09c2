"""Loading a cubin on a device and launching its kernel with little Python in between.

    kernel = load(compiled.cubin, "multiply", device=0, shared_bytes=229_376)
    args = encode_map(...) + encode_map(...) + struct.pack("=QQi", first, second, count)   # the kernel's one struct
    launch = Launch(kernel, args, grid=(132, 1, 1), threads=384)
    launch.start(torch._C._cuda_getCurrentRawStream(0))                                      # one call of the driver

The launch goes through cuda-bindings where they are installed (torch's wheels for CUDA 13 bring them), through ctypes
otherwise; either costs 0.7 us of Python, measured against a driver that does nothing. All else is ctypes on
libcuda.so.1, which is there wherever torch sees a GPU. A Launch never changes once made, so threads may share it:
another address or size is another Launch (`launch.with_arguments(...)`).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

from firstlight.errors import UnsupportedInput
from firstlight.frozen import dataclass
from firstlight.kernels.sm90 import libcuda
from firstlight.kernels.sm90.maps import encode_map as encode_map  # noqa: PLC0414 callers need one module

ARGUMENT_ALIGNMENT = 64  # a tensor map's
MOST_ARGUMENT_BYTES = 4096  # of a kernel on drivers before R530; later ones take 32764
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_ATTRIBUTES = {"max_threads": 0, "static_shared_bytes": 1, "local_bytes": 3, "registers": 4}
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint32),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel on one device, e.g. Kernel('multiply', device=0, handle=0x55..., shared_bytes=229376)."""

    name: str
    device: int
    handle: int
    shared_bytes: int
    argument_bytes: int = 0  # size of the one struct, as compiled; 0: the driver is too old to say

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


@dataclass(frozen=True, slots=True)
class Shape:
    """How many threads a launch starts, e.g. Shape(grid=(132, 1, 1), threads=384, shared_bytes=229376, cluster=1)."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    cluster: int


class Launch:
    """One launch, ready: `launch.start(raw_stream)`. The arguments are the bytes of the kernel's one struct."""

    __slots__ = ("_bind", "_kept", "_start", "kernel", "shape")

    def __init__(
        self, kernel: Kernel, arguments: bytes, *, grid: tuple[int, int, int], threads: int, cluster: int = 1
    ) -> None:
        self.kernel, self.shape = kernel, Shape(grid, threads, kernel.shared_bytes, cluster)
        launch = bindings_start() if cluster == 1 else None
        self._bind = _by_ctypes(kernel, self.shape) if launch is None else _by_bindings(launch, kernel, self.shape)
        self._place(arguments)

    def start(self, raw_stream: int) -> None:
        """Starts the kernel on a stream; the current device must be the kernel's."""
        code = self._start(raw_stream)
        if code:
            self._again(raw_stream, code)

    def with_arguments(self, arguments: bytes) -> Launch:
        """The same kernel, grid and threads with other arguments."""
        made = object.__new__(Launch)
        made.kernel, made.shape, made._bind = self.kernel, self.shape, self._bind
        made._place(arguments)
        return made

    def _place(self, arguments: bytes) -> None:
        size, taken = len(arguments), self.kernel.argument_bytes
        if size > MOST_ARGUMENT_BYTES:
            raise UnsupportedInput(f"{self.kernel.name}: {size} bytes of arguments; at most {MOST_ARGUMENT_BYTES}.")
        whole = -(-size // ARGUMENT_ALIGNMENT) * ARGUMENT_ALIGNMENT  # what alignas(64) makes of the struct in C++
        assert taken in (whole, size, 0), f"{self.kernel.name} takes {taken} bytes of arguments; {size} were given"
        room = (ctypes.c_char * (whole + ARGUMENT_ALIGNMENT))()
        place = -(-ctypes.addressof(room) // ARGUMENT_ALIGNMENT) * ARGUMENT_ALIGNMENT
        ctypes.memmove(place, arguments, size)
        pointers = _OnePointer(place)
        self._kept = (room, pointers)  # the driver reads them at each launch
        self._start = self._bind(pointers)

    def _again(self, raw_stream: int, code: int) -> None:
        """A thread that has not called CUDA yet has no current context: it gets torch's, and the launch a second go."""
        name = f"launch of {self.kernel.name} (grid {self.shape.grid}, {self.shape.threads} threads)"
        if code == libcuda.INVALID_CONTEXT:
            libcuda.call("cuCtxSetCurrent", libcuda.primary_context(self.kernel.device))
            code = self._start(raw_stream)
        libcuda.check(libcuda.library(), name, int(code))


_OnePointer = ctypes.c_void_p * 1
Start = Callable[[int], int]  # takes a stream, returns the driver's code


@functools.lru_cache(maxsize=1)
def bindings_start() -> Any:
    """cuLaunchKernel of cuda-bindings; None where they are not installed or do not load."""
    try:
        return importlib.import_module("cuda.bindings.driver").cuLaunchKernel
    except (ImportError, AttributeError, RuntimeError):
        return None


def _by_bindings(launch: Any, kernel: Kernel, shape: Shape) -> Callable[[Any], Start]:
    (x, y, z), threads, shared_bytes = shape.grid, shape.threads, shape.shared_bytes
    function = importlib.import_module("cuda.bindings.driver").CUfunction(kernel.handle)

    def bind(pointers: Any) -> Start:
        address = ctypes.addressof(pointers)

        def start(stream: int) -> int:
            code: int = launch(function, x, y, z, threads, 1, 1, shared_bytes, stream, address, 0)[0]
            return code

        return start

    return bind


def _by_ctypes(kernel: Kernel, shape: Shape) -> Callable[[Any], Start]:
    launch, function = libcuda.library().cuLaunchKernelEx, ctypes.c_void_p(kernel.handle)
    configs: dict[int, Any] = {}  # one for each stream, as another thread may be in the driver with the last one

    def bind(pointers: Any) -> Start:
        def start(stream: int) -> int:
            config = configs.get(stream)
            if config is None:
                config = configs[stream] = _config(shape, stream)
            code: int = launch(config, function, pointers, None)
            return code

        return start

    return bind


def _config(shape: Shape, stream: int) -> Any:
    attribute = _Attribute(_CLUSTER_DIMENSION, 0, (shape.cluster, 1, 1))
    count = 1 if shape.cluster > 1 else 0
    block = (shape.threads, 1, 1)
    return ctypes.pointer(_Config(shape.grid, block, shape.shared_bytes, stream, ctypes.pointer(attribute), count))

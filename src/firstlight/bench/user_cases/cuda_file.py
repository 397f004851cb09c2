"""A kernel of a .cu file: compiled for the GPU at hand alone, loaded into torch's context, launched on its stream."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from firstlight.bench.case import Place
from firstlight.bench.user_cases.declare import CudaFile, Grid
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from firstlight.bench.user_cases.prepare import Binder
    from firstlight.kernels.sm90.nvcc import Nvcc

_NUMBERS = {(int, 4): "=i", (int, 8): "=q", (int, 2): "=h", (int, 1): "=b",
            (float, 4): "=f", (float, 8): "=d", (float, 2): "=e"}  # fmt: skip
_FIRST_WITH_SM90A = 12  # sm_90a came with CUDA 12.0


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin with what made it, e.g. 'nvcc -cubin -O3 -gencode arch=compute_90a,code=sm_90a axpy.cu'."""

    cubin: bytes
    command: str


def cuda_binder(source: CudaFile, folder: str, place: Place) -> Binder:
    """What turns buffers into a launch; compiles on first use, once a process."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], None]:
        compiled = compile_cuda(os.path.join(folder, source.path), place.capability, options=source.options)
        grid = source.launch(*inputs, *outputs)
        if not isinstance(grid, Grid):
            raise BadInput(f"{source.path}: launch gave a {type(grid).__name__}; accepted: Grid(blocks, threads, ...)")
        return launcher(compiled.cubin, source, grid, device=int(place.device.partition(":")[2] or 0))

    return bind


def gencode(capability: tuple[int, int], *, nvcc_major: int) -> str:
    """Machine code of one GPU and no other: 'arch=compute_90a,code=sm_90a' for an H100.

    The letter a opens what that GPU has and later ones need not have (wgmma, tcgen05); the cubin never leaves it.
    """
    major, minor = capability
    letter = "a" if major >= 9 and nvcc_major >= _FIRST_WITH_SM90A else ""
    return f"arch=compute_{major}{minor}{letter},code=sm_{major}{minor}{letter}"


def compile_cuda(path: str, capability: tuple[int, int], *, options: Sequence[str] = ()) -> Compiled:
    """The cubin of a file; BadInput with nvcc's first error where there is none."""
    stamp = os.stat(path)
    return _compiled(path, (stamp.st_mtime_ns, stamp.st_size), capability, tuple(options))


@functools.lru_cache(maxsize=256)
def _compiled(path: str, stamp: tuple[int, int], capability: tuple[int, int], options: tuple[str, ...]) -> Compiled:
    from firstlight.kernels.sm90.nvcc import compile_file, find_nvcc

    name = os.path.basename(path)
    nvcc = find_nvcc()
    if nvcc is None:
        raise BadInput(
            f"{name}: no nvcc was found in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda; install a CUDA toolkit "
            "(`firstlight plan --goal kernels`)"
        )
    _knows(nvcc, capability, name)
    arch = gencode(capability, nvcc_major=int(nvcc.version.partition(".")[0]))
    command = [nvcc.path, "-cubin", "-O3", "-std=c++17", "-lineinfo", "-gencode", arch, *options, path]
    built = compile_file(command)
    if not built.cubin:
        raise BadInput(f"{name} does not compile with nvcc {nvcc.version} -gencode {arch}: {first_error(built.log)}")
    return Compiled(built.cubin, " ".join(("nvcc", *command[1:-1], name)))


def _knows(nvcc: Nvcc, capability: tuple[int, int], name: str) -> None:
    """A toolkit that is too old or too new for the GPU is said as such: nvcc's own words are 'Unsupported gpu arch'."""
    known = known_codes(nvcc.path)
    wanted = f"sm_{capability[0]}{capability[1]}"
    if known and wanted not in known:
        raise BadInput(
            f"{name}: nvcc {nvcc.version} makes no code for this GPU ({wanted}); it knows {known[0]} to {known[-1]}. "
            "Put another CUDA toolkit first in CUDA_HOME."
        )


@functools.lru_cache(maxsize=8)
def known_codes(nvcc: str) -> tuple[str, ...]:
    """What an nvcc makes code for, by number: ('sm_75', ..., 'sm_121'); () where it does not say."""
    try:
        done = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = set(re.findall(r"\bsm_(\d{2,3})\b", done.stdout)) if done.returncode == 0 else set()
    return tuple(f"sm_{number}" for number in sorted(found, key=int))


def first_error(log: str) -> str:
    """nvcc's first error without the folder: 'axpy.cu(7): error: identifier "z" is undefined'."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return re.sub(r"^\S*/", "", (errors or lines or ["it said nothing"])[0])[:200]


def launcher(cubin: bytes, source: CudaFile, grid: Grid, *, device: int) -> Callable[[], None]:
    """A launch on torch's current stream of the device; addresses and numbers are fixed."""
    import torch

    from firstlight.kernels.sm90 import driver, libcuda
    from firstlight.kernels.sm90.failures import DriverCallFailed

    try:
        kernel = driver.load(cubin, source.entry, device=device, shared_bytes=grid.shared_bytes)
    except DriverCallFailed as error:
        raise BadInput(
            f'{source.path}: the kernel {source.entry} cannot be loaded ({error}); declare it extern "C" __global__'
        ) from None
    widths = parameter_bytes(kernel.handle)
    if widths and len(widths) != len(grid.arguments):
        raise BadInput(
            f"{source.path}: {source.entry} takes {len(widths)} arguments; launch gave {len(grid.arguments)}"
        )
    packed = pack(grid.arguments, widths)
    start, function = libcuda.library().cuLaunchKernel, ctypes.c_void_p(kernel.handle)
    shape = (*grid.blocks, *grid.threads, grid.shared_bytes)
    stream_of: Any = torch._C._cuda_getCurrentRawStream

    def launch() -> None:
        code = start(function, *shape, ctypes.c_void_p(stream_of(device)), packed.pointers, None)
        if code:
            libcuda.check(
                libcuda.library(), f"launch of {source.entry} (grid {grid.blocks} x {grid.threads})", int(code)
            )

    return launch


def parameter_bytes(handle: int) -> tuple[int, ...]:
    """Widths of a kernel's arguments as compiled, e.g. (4, 4, 8, 8); () from a driver before CUDA 12.4."""
    from firstlight.kernels.sm90 import libcuda

    ask = getattr(libcuda.library(), "cuFuncGetParamInfo", None)
    widths: list[int] = []
    while ask is not None:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        if ask(ctypes.c_void_p(handle), ctypes.c_size_t(len(widths)), ctypes.byref(offset), ctypes.byref(size)):
            break
        widths.append(size.value)
    return tuple(widths)


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments as the driver reads them at every launch: an array of pointers, and the bytes that these point to."""

    pointers: Any
    values: tuple[Any, ...]


def pack(arguments: Sequence[Any], widths: Sequence[int]) -> Packed:
    """Tensors as addresses, numbers in the width that the kernel has for them (4 bytes where that is not known)."""
    values = []
    for place, argument in enumerate(arguments):
        taken = _bytes_of(argument, widths[place] if widths else 0, place)
        values.append(ctypes.create_string_buffer(taken, len(taken)))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    return Packed(pointers, tuple(values))


def _bytes_of(argument: Any, width: int, place: int) -> bytes:
    if hasattr(argument, "data_ptr"):
        if width not in (0, 8):
            raise BadInput(f"argument {place} is a tensor, and the kernel takes {width} bytes there")
        return struct.pack("=Q", argument.data_ptr())
    kind, default = (float if isinstance(argument, float) else int), 4
    form = _NUMBERS.get((kind, width or default))
    if not isinstance(argument, (int, float)) or form is None:
        raise BadInput(
            f"argument {place} is {argument!a:.40}, and the kernel takes {width or default} bytes there; accepted: a "
            "tensor, a whole number, a float"
        )
    try:
        return struct.pack(form, argument)
    except (struct.error, OverflowError):
        raise BadInput(f"argument {place} is {argument}, which does not fit into {width or default} bytes") from None

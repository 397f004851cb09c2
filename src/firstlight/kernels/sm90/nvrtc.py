"""NVRTC through ctypes: finding the library that came with torch or a toolkit, and compiling with it.

torch's wheels bring it (nvidia/cu13/lib, before CUDA 13 nvidia/cuda_nvrtc/lib), so no toolkit is needed. Finding does
not load it: the library has 100 MB, and a process that finds its kernels in the cache never needs it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLKITS = "/usr/local"  # holds cuda and cuda-13.0 where a toolkit was installed as usual
MAJORS = (13, 12)  # of the library's name; sm_90a needs 12.0
_LOADER = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """A library that was found, e.g. Nvrtc('/.../cu13/lib/libnvrtc.so.13', '13.0', 'nvrtc 13.0, ... bytes')."""

    path: str
    version: str
    identity: str  # goes into the cache's key; the size tells patch releases apart, which the version does not


@dataclass(frozen=True, slots=True)
class Built:
    """What a compiler left: the cubin (empty when it failed) and its log."""

    cubin: bytes
    log: str


def find_nvrtc(prefer_major: int = 0) -> Nvrtc | None:
    """The first library in: Python's site folders, CUDA_HOME, nvcc's toolkit, /usr/local/cuda*, the system's folders.

    A library of the wanted CUDA major, torch's own, goes before one of another in the same folder.
    """
    majors = sorted(MAJORS, key=lambda major: (major != prefer_major, -major))
    for folder in _folders():
        for major in majors:
            path = folder / f"libnvrtc.so.{major}"
            if path.is_file():
                return _described(path)
    return None


def _folders() -> Iterator[Path]:
    for entry in sys.path:
        site = Path(entry or ".") / "nvidia"
        if site.is_dir():
            for name in ("cu13", "cuda_nvrtc"):
                yield site / name / "lib"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield from _libraries(Path(home))
    if nvcc := shutil.which("nvcc"):
        yield from _libraries(Path(os.path.realpath(nvcc)).parent.parent)
    for toolkit in (Path(TOOLKITS, "cuda"), *sorted(Path(TOOLKITS).glob("cuda-*"), reverse=True)):
        yield from _libraries(toolkit)
    for folder in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_LOADER):
        if folder:
            yield Path(folder)


def _libraries(home: Path) -> Iterator[Path]:
    for name in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        yield home / name


def _described(path: Path) -> Nvrtc:
    builtins = _builtins(path)
    match = _BUILTINS.match(builtins.name) if builtins else None
    version = match.group(1) if match else path.name.rpartition(".so.")[2]
    return Nvrtc(str(path), version, f"nvrtc {version}, {path.stat().st_size} bytes")


def _builtins(path: Path) -> Path | None:
    major = path.name.rpartition(".so.")[2]
    return next(iter(sorted(path.parent.glob(f"libnvrtc-builtins.so.{major}.*"))), None)


@functools.lru_cache(maxsize=4)
def _library(path: str) -> ctypes.CDLL:
    # NVRTC opens its builtins by name alone; the wheels' folder is not on the loader's path, so they are loaded first
    if builtins := _builtins(Path(path)):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def compile_text(
    found: Nvrtc, name: str, *, text: str, headers: Sequence[tuple[str, str]], options: Sequence[str]
) -> Built:
    """The cubin of a source text whose includes are the headers given by name; an empty one when NVRTC refused it."""
    try:
        library = _library(found.path)
    except OSError as error:
        return Built(b"", f"error: {found.path} cannot be loaded: {error}")
    program = ctypes.c_void_p()
    names, texts = _strings([name for name, _ in headers]), _strings([text for _, text in headers])
    code = library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), name.encode(), len(headers), texts, names
    )  # fmt: skip
    if code:
        return Built(b"", f"error: nvrtcCreateProgram: {_said(library, code)}")
    try:
        failed = library.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _output(library, program, "ProgramLog").rstrip(b"\0\n").decode(errors="replace")
        if failed:
            return Built(b"", log or f"error: nvrtcCompileProgram: {_said(library, failed)}")
        return Built(_output(library, program, "CUBIN"), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * max(1, len(texts)))(*(text.encode() for text in texts))


def _output(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    if getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)):
        return b""
    room = ctypes.create_string_buffer(max(1, size.value))
    if getattr(library, f"nvrtcGet{what}")(program, room):
        return b""
    return room.raw[: size.value]


def _said(library: ctypes.CDLL, code: int) -> str:
    text: bytes | None = library.nvrtcGetErrorString(code)
    return (text or b"no text").decode() + f" ({code})"

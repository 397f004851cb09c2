"""Kernels of the cuda folder as shared libraries for this processor, with the emulated headers beside them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import firstlight.kernels.sm90.compile as compiling

HERE = Path(__file__).parent
HEADERS, RUNTIME = HERE / "headers", HERE / "runtime"
SOURCES: Path = compiling.SOURCES
_RUNTIME_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared")
# kernels reach into the same bytes through pointers of several types, and count on integers that wrap; optimising them
# takes longer than it saves
_KERNEL_FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-w", "-fno-strict-aliasing", "-fwrapv", "-x", "c++")
# addresses.py: every access of a kernel to memory is checked; stacks are not, as fibers have their own
CHECKED = "FIRSTLIGHT_EMULATOR_CHECKS_ADDRESSES"
_CHECK_FLAGS = ("-fsanitize=address", "--param", "asan-stack=0", "-g")
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\[\];")
_STATIC = re.compile(
    r"^(\s*)__shared__\s+(?:__align__\((\d+)\)\s*)?([\w ]+?)\s+(\w+(?:\[\w+\])*(?:,\s*\w+(?:\[\w+\])*)*);", re.M
)
_ASM = re.compile(r"\basm\b[^;(]*\((?:\s*\"(?:[^\"\\]|\\.)*\")*\s*:\s*(?P<outputs>[^:]*)")

_DAYS_KEPT = 7
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


class NotEmulated(AssertionError):
    """A source has something that the emulator does not know, e.g. an instruction with a result in a .cu file."""


@functools.lru_cache(maxsize=1)
def kept() -> Path:
    """A folder of this user's own for what was compiled; names hold a sum of all that went in."""
    folder = Path(tempfile.gettempdir()) / f"firstlight-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is another user's"
    for old in folder.iterdir():
        if old.is_file() and time.time() - old.stat().st_mtime > _DAYS_KEPT * 86400:
            old.unlink(missing_ok=True)
    return folder


@functools.lru_cache(maxsize=1)
def runtime() -> Path:
    """The emulator itself, compiled."""
    parts = sorted(RUNTIME.glob("*.cpp"))
    texts = [path.read_text() for path in (*parts, *sorted(RUNTIME.glob("*.h")), HEADERS / "interface.h")]
    made = kept() / f"runtime-{_sum([*texts, *_RUNTIME_FLAGS])}.so"
    if not made.exists():  # in one go, as half the time is the standard headers'
        with tempfile.NamedTemporaryFile("w", dir=kept(), suffix=".cpp") as whole:
            whole.write("".join(f'#include "{path.name}"\n' for path in parts))
            whole.flush()
            _compile([*_RUNTIME_FLAGS, f"-I{HEADERS}", f"-I{RUNTIME}", whole.name], made)
    return made


@functools.lru_cache(maxsize=64)
def library(
    source: str, kernel: str, defines: tuple[tuple[str, str | int], ...], texts: tuple[tuple[str, str], ...]
) -> ctypes.CDLL:
    """`source` (a name in `texts`) for some defines, loaded; its kernel is called by emulator_kernel."""
    whole = {name: as_host_code(name, text) for name, text in texts}
    for header in sorted(HEADERS.iterdir()):
        whole[header.name] = header.read_text()
    flags = [f"-D{name}={value}" for name, value in defines]
    flags += _CHECK_FLAGS if os.environ.get(CHECKED) == "1" else ()
    main = (
        f'#include "device.h"\n#include "{source}"\n'
        f'extern "C" void emulator_kernel(const void* bytes) {{ emulator_enter({kernel}, bytes); }}\n'
        f'extern "C" const u64 emulator_argument_bytes = emulator_size({kernel});\n'
    )
    parts = [main, *flags, *_KERNEL_FLAGS, runtime().name, *(part for item in sorted(whole.items()) for part in item)]
    made = kept() / f"{Path(source).stem}-{_sum(parts)}.so"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=kept()) as folder:
            for name, text in whole.items():
                (Path(folder) / name).write_text(text)
            (Path(folder) / "main.cpp").write_text(main)
            _compile([*_KERNEL_FLAGS, *flags, str(Path(folder) / "main.cpp"), "-x", "none", str(runtime())], made)
    ctypes.CDLL(str(runtime()), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(made))


def sources(replaced: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Every file of the cuda folder, some of them replaced or added: ('multiply.cu', text), ..."""
    found = {path.name: path.read_text() for path in SOURCES.iterdir() if path.suffix in (".cu", ".cuh")}
    return tuple(sorted({**found, **replaced}.items()))


def as_host_code(name: str, text: str) -> str:
    """Shared memory becomes the thread block's own; NotEmulated where an instruction with a result is left."""
    text = _DYNAMIC.sub(r"\1* \2 = (\1*)emulator_dynamic_shared();", text)
    text = _STATIC.sub(_static, text)
    if "__shared__" in re.sub(r"//[^\n]*", "", text):
        raise NotEmulated(f"{name}: a __shared__ declaration is of a form that the emulator does not read")
    if not (HEADERS / name).exists():
        for found in _ASM.finditer(text):
            if found["outputs"].strip():
                line = text.count("\n", 0, found.start()) + 1
                raise NotEmulated(f"{name}:{line}: an asm with a result; put it into a header that the emulator has")
    return text


def _static(found: re.Match[str]) -> str:
    indent, alignment, kind, names = found.groups()
    made, line = [], found.string.count("\n", 0, found.start())
    for declared in names.split(","):
        name, bracket, sizes = declared.strip().partition("[")
        own = f"{name}_in_shared"
        made.append(
            f"{indent}typedef {kind} {own}{bracket}{sizes}; {own}& {name} = "
            f'*({own}*)emulator_static_shared("{name}:{line}", sizeof({own}), {alignment or f"alignof({own})"});'
        )
    return "".join(made)


def _sum(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _compile(arguments: list[str], to: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=kept(), suffix=".so", delete=False) as half:
        pass
    done = subprocess.run(["g++", *arguments, "-o", half.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"g++ {' '.join(arguments)}\n{done.stderr[:4000]}"
    Path(half.name).rename(to)

"""From a kernel's source and its macros to a cubin for sm_90a.

NVRTC first (0.5 s a kernel, no host compiler), nvcc where there is no NVRTC (4 s); FIRSTLIGHT_JIT=nvrtc or nvcc takes
that one alone. Nothing is kept here: cache.py does that.

    variant = Variant("multiply", (("BLOCK", 128), ("DTYPE", "bf16")))      # cuda/multiply.cu, -DBLOCK=128 -DDTYPE=bf16
    compiled = compile_variant(variant)
    compiled.cubin[:4] == b"\\x7fELF";  compiled.log holds ptxas -v:  "Used 168 registers, used 1 barriers ..."
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90 import nvcc, nvrtc
from firstlight.kernels.sm90.failures import KernelBuildFailed
from firstlight.kernels.sm90.place import keep_log

SOURCES = Path(__file__).parent / "cuda"
ARCH = "sm_90a"  # with the a: wgmma and setmaxnreg are refused for sm_90
SWITCH = "FIRSTLIGHT_JIT"
DEBUG_MACRO = "FIRSTLIGHT_DEBUG"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
_ERROR = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_NVRTC_FLAGS = (f"--gpu-architecture={ARCH}", "--std=c++17", "--ptxas-options=-v")
_NVCC_FLAGS = ("-cubin", "-gencode", f"arch=compute_90a,code={ARCH}", "-std=c++17", "-Xptxas", "-v")


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of a kernel, e.g. Variant('multiply', (('BLOCK', 128), ('STAGES', 4)), hgmma=4)."""

    source: str  # name of a .cu file without its ending
    defines: tuple[tuple[str, str | int], ...] = ()
    hgmma: int = field(default=0, compare=False)  # wgmma instructions its machine code must have; held by gate.py

    def __str__(self) -> str:
        return " ".join([self.source, *(f"{name}={value}" for name, value in self.defines)])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin with what made it."""

    cubin: bytes
    log: str  # ptxas -v: registers, spills, and warnings
    compiler: str  # e.g. nvrtc 13.0, 109312008 bytes
    command: str


@dataclass(frozen=True, slots=True)
class Program:
    """The texts of a variant and the flags for them: all that decides what comes out, but the compiler."""

    path: str
    text: str
    headers: tuple[tuple[str, str], ...]  # name as included, text
    defines: tuple[str, ...]  # -DBLOCK=128
    debug: bool


Compiler = nvrtc.Nvrtc | nvcc.Nvcc


def compile_variant(variant: Variant, *, debug: bool = False, folder: Path = SOURCES) -> Compiled:
    """The cubin; KernelBuildFailed when the compiler refuses, UnsupportedInput when there is none.

    debug adds line numbers and the macro FIRSTLIGHT_DEBUG.
    """
    return compile_program(read_program(variant, debug=debug, folder=folder), find_compiler())


def read_program(variant: Variant, *, debug: bool = False, folder: Path = SOURCES) -> Program:
    """Reads the source and, through its includes, the headers beside it."""
    path = folder / f"{variant.source}.cu"
    text = _read(path)
    headers: dict[str, str] = {}
    wanted = _INCLUDE.findall(text)
    while wanted:
        name = wanted.pop()
        if name not in headers:
            headers[name] = _read(folder / name)
            wanted += _INCLUDE.findall(headers[name])
    defines = [f"-D{name}={value}" for name, value in variant.defines]
    if debug:
        defines.append(f"-D{DEBUG_MACRO}=1")
    return Program(str(path), text, tuple(sorted(headers.items())), tuple(defines), debug)


def find_compiler() -> Compiler:
    """NVRTC or nvcc as found on this machine; UnsupportedInput names both and what to install."""
    asked = os.environ.get(SWITCH, "")
    if asked not in ("", "nvrtc", "nvcc"):
        raise UnsupportedInput(f"{SWITCH} is {asked!r}; accepted: nvrtc, nvcc. Leave it out to take what is there.")
    found: Compiler | None = None
    if asked != "nvcc":
        found = nvrtc.find_nvrtc(torch_cuda_major())
    if found is None and asked != "nvrtc":
        found = nvcc.find_nvcc()
    if found is None:
        looked_for = {"": "neither NVRTC (libnvrtc.so.13 or .12) nor nvcc", "nvrtc": "no NVRTC", "nvcc": "no nvcc"}
        only = f" and {SWITCH}={asked} takes no other" if asked else ""
        major = torch_cuda_major() or nvrtc.MAJORS[0]
        package = "nvidia-cuda-nvrtc" if major >= 13 else "nvidia-cuda-nvrtc-cu12"
        raise UnsupportedInput(
            f"the Hopper kernels are compiled where they run: {looked_for[asked]} was found{only}. "
            f"Install one: pip install {package}, or a CUDA toolkit with nvcc on PATH."
        )
    return found


def torch_cuda_major() -> int:
    """The CUDA of torch's own build, e.g. 13, so that the driver which torch runs with takes the cubin; 0: none."""
    import torch

    return int((torch.version.cuda or "0").split(".")[0])


def flags(program: Program, compiler: Compiler) -> tuple[str, ...]:
    """The compiler's arguments without its name, the source and the output."""
    lines = ("-lineinfo",) if program.debug else ()
    base = _NVRTC_FLAGS if isinstance(compiler, nvrtc.Nvrtc) else _NVCC_FLAGS
    return (*base, *lines, *program.defines)


def compile_program(program: Program, compiler: Compiler) -> Compiled:
    """Compiles; a refusal is raised with the command, the first error line and the log's path."""
    options = flags(program, compiler)
    if isinstance(compiler, nvrtc.Nvrtc):
        name = Path(program.path).name
        command = shlex.join([compiler.path, *options, program.path])
        built = nvrtc.compile_text(compiler, name, text=program.text, headers=program.headers, options=options)
    else:
        arguments = [compiler.path, *options, program.path]
        command = shlex.join(arguments)
        built = nvcc.compile_file(arguments)
    if not built.cubin.startswith(b"\x7fELF"):
        raise _failure(program, command, built.log)
    return Compiled(built.cubin, built.log, compiler.identity, command)


def _failure(program: Program, command: str, log: str) -> KernelBuildFailed:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "the compiler said nothing")
    path = keep_log(Path(program.path).stem, f"{command}\n\n{log}\n")
    return KernelBuildFailed(f"{Path(program.path).name} was not compiled: {first} [command: {command}] [log: {path}]")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedInput(
            f"{path} cannot be read ({error.strerror}); it ships with firstlight. Reinstall it."
        ) from error

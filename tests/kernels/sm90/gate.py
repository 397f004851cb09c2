"""What a built kernel looks like inside, and what is wrong with it; no GPU is needed.

    compiled = compile_variant(variant)
    problems(variant, compiled, read_sass(compiled.cubin))      # () or ("12 bytes are spilled", "C7518: ...")

A kernel with a fault of these kinds computes the right numbers at a fraction of the speed, so nothing else would tell.
The disassembler is the one in Triton's wheel, or a toolkit's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from firstlight.errors import CouldNotLook
from firstlight.frozen import dataclass
from firstlight.kernels.sm90.compile import Compiled, Variant
from firstlight.kernels.sm90.nvrtc import TOOLKITS

LIMIT_S = 120.0
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_SHAPE = re.compile(r"HGMMA\.(\d+x\d+x\d+)\.")
_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_COMPLAINT = re.compile(r"^.*\b(C75\d\d)\b.*$", re.MULTILINE)  # wgmma serialised, setmaxnreg ignored


@dataclass(frozen=True, slots=True)
class Sass:
    """The machine code in numbers, e.g. hgmma=(('64x256x16', 4),), arrives=1, waits=2."""

    hgmma: tuple[tuple[str, int], ...]
    arrives: int  # WARPGROUP.ARRIVE: one for each batch of wgmma; one for each wgmma where they are serialised
    waits: int  # WARPGROUP.DEPBAR
    local_loads: int
    local_stores: int
    instructions: int

    @property
    def all_hgmma(self) -> int:
        """wgmma instructions of all shapes, e.g. 4."""
        return sum(count for _, count in self.hgmma)


@dataclass(frozen=True, slots=True)
class Log:
    """What ptxas -v said, e.g. registers=168, stack_bytes=0, spilled_bytes=0, complaints=(); registers 0: nothing."""

    registers: int
    stack_bytes: int
    spilled_bytes: int
    complaints: tuple[str, ...]


def read_sass(cubin: bytes) -> Sass:
    """Disassembles and counts; CouldNotLook where no disassembler is found or it fails."""
    return counted(disassembled(cubin))


def disassembled(cubin: bytes) -> str:
    """The machine code as text, an instruction a line."""
    tool = find_disassembler()
    with tempfile.TemporaryDirectory(prefix="firstlight-sass-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "--print-code", "--no-dataflow", str(path)], capture_output=True, text=True, timeout=LIMIT_S,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise CouldNotLook(f"{tool} did not run: {error}") from error
    if done.returncode or not done.stdout:
        said = done.stderr.strip().splitlines()
        raise CouldNotLook(f"{tool} did not read the cubin ({len(cubin)} bytes): {said[0] if said else 'no text'}")
    return done.stdout


def find_disassembler() -> str:
    """nvdisasm of Triton's wheel, of CUDA_HOME, on PATH, or under /usr/local/cuda."""
    wanted: list[str | None] = []
    spec = importlib.util.find_spec("triton")  # looked up, not imported
    if spec is not None and spec.origin:
        wanted.append(os.path.join(os.path.dirname(spec.origin), "backends", "nvidia", "bin", "nvdisasm"))
    homes = [os.environ.get("CUDA_HOME"), f"{TOOLKITS}/cuda"]
    wanted += [shutil.which("nvdisasm"), *(os.path.join(home, "bin", "nvdisasm") for home in homes if home)]
    for path in wanted:
        if path and os.access(path, os.X_OK):
            return path
    raise CouldNotLook(
        "no nvdisasm was found: Triton's wheel brings one (pip install triton), and so does a CUDA toolkit."
    )


def counted(text: str) -> Sass:
    """The counts of a disassembly."""
    names = _INSTRUCTION.findall(text)
    shapes = Counter(match.group(1) for match in map(_SHAPE.match, names) if match)
    return Sass(
        hgmma=tuple(sorted(shapes.items())),
        arrives=names.count("WARPGROUP.ARRIVE"),
        waits=sum(name.startswith("WARPGROUP.DEPBAR") for name in names),
        local_loads=sum(name.split(".")[0] == "LDL" for name in names),
        local_stores=sum(name.split(".")[0] == "STL" for name in names),
        instructions=len(names),
    )


def read_log(log: str) -> Log:
    """Registers, stack and spills of the worst function of the log, and every C75xx line."""
    frames = [[int(number) for number in match] for match in _FRAME.findall(log)]
    return Log(
        registers=max((int(number) for number in _REGISTERS.findall(log)), default=0),
        stack_bytes=max((frame[0] for frame in frames), default=0),
        spilled_bytes=max((max(frame[1:]) for frame in frames), default=0),
        complaints=tuple(dict.fromkeys(match.group(0).strip() for match in _COMPLAINT.finditer(log))),
    )


def problems(variant: Variant, compiled: Compiled, sass: Sass) -> tuple[str, ...]:
    """Everything that a kernel of ours must not have, in words; empty: nothing."""
    return tuple(f"{variant}: {what}" for what in _problems(variant, read_log(compiled.log), sass))


def _problems(variant: Variant, log: Log, sass: Sass) -> Iterator[str]:
    if not log.registers:
        yield "the log has no line of ptxas -v, so spills cannot be ruled out"
    if log.spilled_bytes:
        yield f"{log.spilled_bytes} bytes are spilled"
    if log.stack_bytes and not log.spilled_bytes:  # what is spilled lies on the stack
        yield f"{log.stack_bytes} bytes of stack: an array is indexed by what is not known when compiling"
    if sass.local_loads or sass.local_stores:
        yield f"{sass.local_loads} loads from and {sass.local_stores} stores to local memory"
    yield from log.complaints
    if sass.all_hgmma != variant.hgmma:
        shapes = ", ".join(f"{count} of {shape}" for shape, count in sass.hgmma) or "none"
        yield f"{sass.all_hgmma} HGMMA where {variant.hgmma} are wanted ({shapes})"

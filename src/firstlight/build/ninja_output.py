"""What ninja prints and keeps: progress, units that failed with what their compiler said, the log of what was built."""

from __future__ import annotations

import os
import re

from firstlight.frozen import dataclass
from firstlight.tables.build_rows import UnitKind

_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] (.*)")
_OF_CMAKE = ("Re-checking globbed directories", "Re-running CMake")
_FAILED = re.compile(r"FAILED: (?:\[code=-?\d+\] )?(.+?)\s*$")
_ENDS = re.compile(r"ninja: (?:build stopped|error|fatal)|subprocess\.CalledProcessError|Traceback \(most recent")
_TRIAL_LINES = 60  # of the output of a compiler that CMake tried
_MESSAGE_LINES = 6  # a blank one before and behind a folder
ATTENTION = re.compile(r"flash|fmha|mem_eff", re.I)
_MEMORY = re.compile(
    r"Killed signal terminated program|\bKilled\b|virtual memory exhausted|std::bad_alloc|out of memory allocating|"
    r"Cannot allocate memory|died due to signal 9|signal 9|memory exhausted|LLVM ERROR: out of memory|\bcode=137\]",
    re.I,
)
_ERROR = re.compile(
    r"(?:\b(?:fatal )?error\b\s*(?:[:#]|[A-Z]\d)|undefined reference to|multiple definition of|cannot find -l|"
    r"No such file or directory|nvcc fatal|ptxas (?:fatal|error)|collect2: |ld: |ImportError|ModuleNotFoundError|"
    r"CMake Error|RuntimeError|OSError|Killed|No space left on device|Permission denied|internal compiler error|"
    r"virtual memory exhausted|command not found|file format not recognized|Unsupported gpu architecture|Error: )",
    re.I,
)
_NO_ERROR = re.compile(
    r"being treated as errors|: in function [`'].*':$|^\s*/\S+/(?:g\+\+|gcc|c\+\+|nvcc|cc|clang\+\+)\s|"
    r"ninja: build stopped|"
    r"error: subprocess-exited-with-error|error: metadata-generation-failed|did not run successfully|"  # pip's frame
    r"^\s*(?:raise|File \")|0 errors?\b|\berrors? detected in the compilation|collect2: error: ld returned|\[code=\d"
)


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """A unit that did not compile: its output, its command, and what was printed."""

    output: str
    command: str
    said: tuple[str, ...]

    @property
    def for_memory(self) -> bool:
        return any(_MEMORY.search(line) for line in self.said)

    @property
    def first_error(self) -> str:
        return first_error(self.said)


@dataclass(frozen=True, slots=True)
class BuiltUnit:
    """A line of .ninja_log: when it began and ended within its run, in milliseconds, and what it made."""

    start_ms: int
    end_ms: int
    output: str

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000


def progress_of(line: str) -> tuple[int, int] | None:
    """(12, 265) of '[12/265] Building CXX object x.o'; None for other lines.

    CMake looks at its folders in a run of its own before: '[0/2] Re-checking globbed directories' counts no unit.
    """
    match = _PROGRESS.match(line)
    return (int(match[1]), int(match[2])) if match and not match[3].startswith(_OF_CMAKE) else None


def failed_units(lines: list[str]) -> tuple[FailedUnit, ...]:
    """Every unit that failed, in order, each with its own output alone."""
    found: list[FailedUnit] = []
    at = 0
    while at < len(lines):
        match = _FAILED.match(lines[at])
        at += 1
        if match is None:
            continue
        begun = at
        while at < len(lines) and not _PROGRESS.match(lines[at]) and not _FAILED.match(lines[at]):
            if _ENDS.match(lines[at]):
                break
            at += 1
        block = lines[begun:at]
        found.append(FailedUnit(match[1].strip(), block[0] if block else "", tuple(block[1:])))
    return tuple(found)


def first_error(lines: tuple[str, ...] | list[str]) -> str:
    """The first line that states a fault; a warning, a command line or the end of a traceback is none."""
    for at, line in enumerate(lines):
        if _ERROR.search(line) and not _NO_ERROR.search(line):
            return _with_message(lines, _cause_of(lines, at))
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _cause_of(lines: tuple[str, ...] | list[str], at: int) -> int:
    """Where the cause of an error stands: pip finds no version where it never reached the index."""
    if "(from versions: none)" not in lines[at]:
        return at
    return next((before for before in range(at) if "Retrying (Retry(" in lines[before]), at)


def _with_message(lines: tuple[str, ...] | list[str], at: int) -> str:
    """A line; of CMake, which says where first and what below, both; of a trial of its own the compiler's error."""
    line = lines[at].strip()
    if not line.startswith("CMake Error at"):
        return line
    if "DetermineCompilerId" in line or "TestC" in line:
        of_trial = (each for each in range(at + 1, min(len(lines), at + 1 + _TRIAL_LINES)) if "error:" in lines[each])
        if (found := next(of_trial, 0)) and lines[found].strip() != "error:":
            return " ".join(each.strip() for each in lines[found : found + 2])
    ends = (index for index in range(at + 1, len(lines)) if lines[index].startswith("Call Stack"))
    below = [each.strip() for each in lines[at + 1 : min(next(ends, len(lines)), at + 1 + _MESSAGE_LINES)]
             if each.startswith("  ")]  # fmt: skip
    return " ".join((line, *below))


def kind_of_unit(output: str) -> UnitKind | None:
    """The kind of an object file by its name alone; None for what is linked or made otherwise."""
    if not output.endswith((".o", ".obj")):
        return None
    if ".cu." in output or output.endswith(".cu.o") or "_cuda.o" in output:
        return UnitKind.ATTENTION if ATTENTION.search(output) else UnitKind.CUDA
    return UnitKind.CXX


def read_ninja_log(folder: str) -> tuple[BuiltUnit, ...]:
    """What a folder's .ninja_log records, the last line of each output; () where there is none."""
    path = os.path.join(folder, ".ninja_log")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    found: dict[str, BuiltUnit] = {}
    for line in lines:
        fields = line.split("\t")
        if len(fields) >= 4 and fields[0].isdigit() and fields[1].isdigit():
            found[fields[3]] = BuiltUnit(int(fields[0]), int(fields[1]), fields[3])
    return tuple(found.values())

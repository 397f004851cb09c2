"""Host compilers and the tools a build or an install would call: where they are; versions of the compilers alone."""

from __future__ import annotations

import posixpath
import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import plain_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which

COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++")
CHOOSERS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
TOOLS = (
    "cmake", "ninja", "make", "ccache", "sccache", "git", "uv", "pip3", "conda", "mamba", "micromamba", "pixi",
    "ncu", "nsys", "curl", "wget", "ssh",
)  # fmt: skip
_LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")
# What CC and friends may name and be started with -dumpversion; anything else is reported, not run.
_COMPILER_NAME = r"(?:[\w.+-]+-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[\d.]+)?"
_NUMBERED = r"(gcc|g\+\+)-(\d{1,2})"
_VERSION = r"\d{1,9}(?:\.\d{1,9}){0,3}"
_NOT_ASKED = Unknown("not asked: only its presence is looked at")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program on PATH, e.g. gcc 12.2.0 at /usr/bin/gcc."""

    name: str
    path: str
    version: Fact[str]


@dataclass(frozen=True, slots=True)
class ChosenCompiler:
    """A compiler named by a variable, e.g. CC='ccache gcc-13'; the version is the compiler's, not the launcher's."""

    variable: str
    command: str
    path: Fact[str]
    version: Fact[str]


@dataclass(frozen=True, slots=True)
class NumberedGcc:
    """gcc-13 and g++-13 side by side; nvcc needs the g++ of the pair."""

    number: int
    gcc: Fact[str]
    gxx: Fact[str]


@dataclass(frozen=True, slots=True)
class CompilerFacts:
    """What could compile here."""

    compilers: tuple[Tool, ...]
    chosen: tuple[ChosenCompiler, ...]
    numbered: tuple[NumberedGcc, ...]
    tools: tuple[Tool, ...]

    def find(self, name: str) -> Fact[Tool]:
        """The compiler or tool of that name, e.g. 'ninja'."""
        for tool in (*self.compilers, *self.tools):
            if tool.name == name:
                return Known(tool, seen_in="PATH")
        return Unknown(f"no {name} on PATH")


def probe_compilers(machine: Machine) -> CompilerFacts:
    """Compilers with their versions (one short run each), numbered gcc pairs, and the build tools that are there."""
    asked: dict[str, Fact[str]] = {}
    compilers = tuple(
        Tool(name, path, _compiler_version(machine, path, asked))
        for name in COMPILERS
        if (path := which(machine, name)) is not None
    )
    chosen = tuple(
        _chosen(machine, name, asked=asked, command=value.strip())
        for name in CHOOSERS
        if (value := machine.env(name)) and value.strip()
    )
    tools = tuple(Tool(name, path, _NOT_ASKED) for name in TOOLS if (path := which(machine, name)) is not None)
    return CompilerFacts(compilers, chosen, _numbered_gcc(machine), tools)


def with_version(machine: Machine, tool: Tool) -> Tool:
    """The tool with its version asked for, e.g. cmake 3.25.1: for callers who need more than presence."""
    done = machine.run((tool.path, "--version"))
    match = re.search(_VERSION, done.stdout) if done.ok else None
    if match is None:
        return Tool(tool.name, tool.path, Unknown(f"{tool.path} --version names none" if done.ok else done.complaint))
    return Tool(tool.name, tool.path, Known(match.group(0), seen_in=f"{tool.path} --version"))


def _compiler_version(machine: Machine, path: str, asked: dict[str, Fact[str]]) -> Fact[str]:
    """12.2.0; asked once per real file (cc, gcc and gcc-12 are often one)."""
    real = machine.real_path(path)
    # Behind ccache's links every compiler is the same file, so each link is asked for itself.
    key = path if posixpath.basename(real) in _LAUNCHERS else real
    if key not in asked:
        is_clang = "clang" in posixpath.basename(real) or "clang" in posixpath.basename(path)
        # clang refuses -dumpfullversion; gcc 7 and later need it to say more than the major number
        words = ("-dumpversion",) if is_clang else ("-dumpfullversion", "-dumpversion")
        done = machine.run((path, *words))
        if not done.ok:
            asked[key] = Unknown(done.complaint)
        elif re.fullmatch(_VERSION, done.first_line):
            asked[key] = Known(done.first_line, seen_in=f"{path} {words[0]}")
        else:
            asked[key] = Unknown(f"{path} {words[0]} printed no version")
    return asked[key]


def _chosen(machine: Machine, variable: str, *, asked: dict[str, Fact[str]], command: str) -> ChosenCompiler:
    words = command.split()
    while len(words) > 1 and posixpath.basename(words[0]) in _LAUNCHERS:
        words = words[1:]
    path = plain_path(words[0]) if words[0].startswith("/") else which(machine, words[0])
    seen = machine.stat(path) if path else None
    if path and seen is not None and seen.kind == "folder":  # NVCC_CCBIN may name the folder that holds g++
        path = f"{path}/g++"
        seen = machine.stat(path)
    if not path or seen is None:
        gone = Unknown(f"{path or words[0]}: no such file")
        return ChosenCompiler(variable, command, gone, gone)
    version: Fact[str] = Unknown(f"not run: {posixpath.basename(path)} is not the name of a compiler")
    if re.fullmatch(_COMPILER_NAME, posixpath.basename(path)):
        version = _compiler_version(machine, path, asked)
    return ChosenCompiler(variable, command, Known(path, seen_in=variable), version)


def _numbered_gcc(machine: Machine) -> tuple[NumberedGcc, ...]:
    found: dict[int, dict[str, str]] = {}
    for folder in dict.fromkeys(plain_path(entry) for entry in (machine.env("PATH") or "").split(":")):
        for name in machine.list(folder, "g[c+][c+]-[0-9]*") if folder else ():
            if match := re.fullmatch(_NUMBERED, name):
                found.setdefault(int(match.group(2)), {}).setdefault(match.group(1), f"{folder}/{name}")
    return tuple(
        NumberedGcc(number, gcc=_path_of(pair, "gcc", number), gxx=_path_of(pair, "g++", number))
        for number, pair in sorted(found.items())
    )


def _path_of(pair: dict[str, str], name: str, number: int) -> Fact[str]:
    return Known(pair[name], seen_in="PATH") if name in pair else Unknown(f"no {name}-{number} on PATH")

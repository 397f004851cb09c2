"""The GPU architectures that a call compiles for: by flags, by variables, and by definitions for cmake and make."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.guard.call import HOLE, Call
from firstlight.guard.programs import PLAIN, compiler

LISTS = ("TORCH_CUDA_ARCH_LIST", "CUDAARCHS", "CMAKE_CUDA_ARCHITECTURES")
_OPTIONS = {"-arch", "-code", "-gencode", "--gpu-architecture", "--gpu-code", "--generate-code", "--cuda-gpu-arch"}
_CODES = re.compile(r"\b(?:sm|compute)_(\d{2,3}[af]?)|\bnative\b|\ball(?:-major)?\b", re.I)
_NUMBERED = re.compile(r"\b(?:sm|compute)_\d{2,3}[af]?\b", re.I)
_NAMED = re.compile(r"ARCH|GENCODE|FLAGS|ARGS|OPTS|OPTIONS", re.I)  # NVCC_APPEND_FLAGS, CMAKE_ARGS, ARCH of a Makefile
_LIST_INSIDE = re.compile(rf"(?:-D|\b)(?:{'|'.join(LISTS)})(?::\w+)?=[\"']?([^\s\"']*)")


def definitions(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """What words define: [('X', '1')] for -DX=1, -D X=1, -D X:STRING=1 and X=1."""
    found = []
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        text = word.removeprefix("-D") if word.startswith("-D") else word if before == "-D" or word[:1] != "-" else ""
        name, equals, value = text.partition("=")
        if equals:
            found.append((name.partition(":")[0].rpartition(".")[2], value))  # cmake.define.X of scikit-build-core too
    return found


def asked_archs(call: Call, name: str) -> Iterator[str]:
    """Every architecture that a call asks for, as it is written: 8.0, sm_90, 90a-real; one with a hole is unknown."""
    for variable, value in (*call.sets, *(definitions(call.words[1:]) if name not in PLAIN else ())):
        if variable in LISTS:
            yield from _listed(value)
        elif _NAMED.search(variable):
            yield from (found[0] for found in _NUMBERED.finditer(value))
            yield from (each for inside in _LIST_INSIDE.finditer(value) for each in _listed(inside[1]))
    for word in call.words[1:] if name not in PLAIN else ():
        if word.startswith("-") and not word.startswith("-D"):  # --config-settings=cmake.define.X=80, -eX=80
            yield from (each for inside in _LIST_INSIDE.finditer(word) for each in _listed(inside[1]))
    if compiler(name) in ("nvcc", "clang", "clang++", "ptxas", "nvlink") or name == "cmake":
        yield from _flags(call.words)


def _listed(text: str) -> Iterator[str]:
    for part in re.split(r"[;, ]+", text.strip()):
        if part.startswith("-"):  # the next definition, as in CMAKE_ARGS
            return
        if part:
            yield part


def _flags(words: tuple[str, ...]) -> Iterator[str]:
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option not in _OPTIONS:
            continue
        text = value if equals else words[at + 1] if at + 1 < len(words) else ""
        if HOLE in text:
            yield text
        yield from (found[0] for found in _CODES.finditer(text))

"""The part of preflight that looks at the machine alone: compilers, headers, rights, space, what leaks in."""

from __future__ import annotations

import os
from collections.abc import Iterator

from firstlight.build.backend import BY_NINJA, Backend
from firstlight.build.case import BuildCase
from firstlight.build.fault import Fault, note, stops
from firstlight.diagnosis.toolkit_in_use import has_compiler
from firstlight.facts.compilers import Tool
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.facts.toolkits import Part
from firstlight.ways.compile_jobs import GIB

_NEEDED = (Part.NVCC, Part.PTXAS, Part.CICC, Part.CRT_HEADERS, Part.RUNTIME_HEADER, Part.CUDART_STATIC)
# What changes code or finds other libraries; the build runs without these.
TAKEN_OUT = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CMAKE_ARGS", "CMAKE_PREFIX_PATH", "CMAKE_GENERATOR", "PYTHONPATH",
    "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "LD_RUN_PATH", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS", "CUDA_PATH",
    "CUDACXX",
)  # fmt: skip


def toolkit(case: BuildCase) -> Iterator[Fault]:
    if not case.cuda.compiled:
        return
    if case.toolkit is None:
        where = (
            f"--toolkit {case.request.toolkit}: no CUDA toolkit is there" if case.request.toolkit else "no CUDA toolkit"
        )
        yield stops(
            "no-toolkit", f"{where}, and this tree has CUDA units", "Install one, or give --toolkit its folder."
        )
        return
    missing = [part.value for part in _NEEDED if part in case.toolkit.missing]
    if not has_compiler(case.toolkit) or missing:
        saw = f"{case.toolkit.path} lacks {', '.join(missing) or 'nvcc'}"
        yield stops("toolkit-incomplete", saw, "Install the whole toolkit, or give --toolkit another.")


def host_compiler(case: BuildCase) -> Iterator[Fault]:
    found = case.facts.compilers.find("g++")
    if isinstance(found, Unknown):
        yield stops("no-compiler", found.reason, "Install a C++ compiler (g++).")
        return
    limit = case.toolkit.gcc_max if case.toolkit else Unknown("no toolkit")
    if not case.cuda.compiled or isinstance(limit, Unknown):
        return
    label, version = _host_of_nvcc(case, found.value)
    if isinstance(version, Unknown) or int(version.value.split(".")[0]) <= limit.value:
        return
    saw = (
        f"{label} {version.value} is newer than gcc {limit.value}, the newest that this toolkit takes ({limit.seen_in})"
    )
    fitting = [each.number for each in case.facts.compilers.numbered if each.number <= limit.value]
    number = max(fitting, default=limit.value)
    do = "Set this and run the same command again." if fitting else f"Install g++-{number}, set this and run it again."
    chosen = f"CC=gcc-{number} CXX=g++-{number}" if _is_extension(case) else f"CUDAHOSTCXX=g++-{number}"
    yield stops("host-compiler-too-new", saw, do, command=f"export {chosen}")


def _host_of_nvcc(case: BuildCase, default: Tool) -> tuple[str, Fact[str]]:
    """The compiler that nvcc will start, as it is called here, and its version.

    CMake reads CUDAHOSTCXX; torch.utils.cpp_extension hands CC to nvcc and does not know CUDAHOSTCXX.
    """
    given = {flag.name: flag.value for flag in case.flags}
    chosen = {each.variable: each for each in case.facts.compilers.chosen}
    for name in ("CC" if _is_extension(case) else "CUDAHOSTCXX", "NVCC_CCBIN"):
        if name in given:
            last = os.path.basename(given[name]).rpartition("-")[2]
            return f"--flag {name}={given[name]}, gcc", Known(last, "its name") if last.isdigit() else Unknown(
                "no number"
            )
        if name in chosen:
            known = Unknown("clang has another limit") if "clang" in chosen[name].command else chosen[name].version
            return f"{name}={chosen[name].command}, gcc", known
    return "g++", default.version


def _is_extension(case: BuildCase) -> bool:
    return case.project.backend is Backend.TORCH_EXTENSION


def headers(case: BuildCase) -> Iterator[Fault]:
    found = case.tools.headers
    if isinstance(found, Unknown):
        weigh = stops if "Python.h" in found.reason else note
        yield weigh("no-python-headers", found.reason, "Install the headers of that Python (python3-dev).")


def rights(case: BuildCase) -> Iterator[Fault]:
    """Report 002 compiled 6230 of 6231 targets and failed on the folder it could not write to."""
    if case.request.wheel_only or case.request.only:
        return
    if case.request.prefix:
        return  # looked at by whoever reads the folder
    environment = case.facts.environment
    if environment is None:
        yield stops("no-environment", "no Python environment was found that the wheel could go into",
                    "Make one, or give --wheel-only.")  # fmt: skip
        return
    if environment.externally_managed and environment.kind is not EnvironmentKind.VENV:
        saw = f"{environment.prefix} is managed by its distribution (PEP 668): pip refuses to install there"
        yield stops("externally-managed", saw, "Make a venv and give --python its interpreter, or --wheel-only.")
    elif isinstance(environment.writable, Known) and not environment.writable.value:
        saw = f"{environment.prefix} is not writable for this user: the install would fail after everything is compiled"
        yield stops(
            "environment-not-writable", saw, "Give --python an environment of yours, --prefix DIR, or --wheel-only."
        )


def space(case: BuildCase) -> Iterator[Fault]:
    """What was counted and measured stops; what is assumed is told: a full disk stops the build and costs no unit."""
    free = case.room.free_bytes
    if isinstance(free, Known) and free.value < case.needs.disk_bytes:
        weigh = stops if free.value < case.needs.disk_least_bytes else note
        saw = (
            f"{case.room.path} has {free.value / GIB:.1f} GiB free; the build takes about "
            f"{case.needs.disk_bytes / GIB:.1f} ({case.needs.disk_basis})"
        )
        yield weigh("too-little-space", saw, "Free some, or give --build-dir a folder on a larger disk.")


def variables(case: BuildCase) -> Iterator[Fault]:
    taken = [each for each in case.tools.variables if each.name in TAKEN_OUT]
    if taken:
        listed = ", ".join(f"{each.name}={each.value[:60]!a}" for each in taken)
        yield note("variables-left-out", f"set here and not handed to the build: {listed}",
                   "Give --flag NAME=VALUE for one that the tree reads and you mean.")  # fmt: skip
    home = next((each.value for each in case.tools.variables if each.name == "CUDA_HOME"), "")
    if (
        home
        and case.toolkit
        and os.path.normpath(home) != case.toolkit.path
        and "CUDA_HOME" not in case.toolkit.found_by
    ):
        yield note("another-cuda-home", f"CUDA_HOME is {home}; the build takes {case.toolkit.path}")


def one_target(case: BuildCase) -> Iterator[Fault]:
    """Only ninja can be asked for one target, and only these backends leave it to us."""
    if case.request.only and case.project.backend not in BY_NINJA:
        saw = f"--target {case.request.only}: {case.project.backend.value} compiles everything it has, as a whole"
        yield stops("no-single-targets", saw, "Leave --target out; what the tree itself reads, --flag can leave out.")


def paths(case: BuildCase) -> Iterator[Fault]:
    """Makefiles, setuptools' response files and nvcc wrappers split at blanks."""
    theirs = case.request.source or case.request.target.folder
    move = "Move the tree." if theirs else "Give --build-dir a path without a space."
    for path, do in (
        (case.project.root, move),
        (case.request.build_dir, "Give --build-dir a path without a space."),
        (case.request.prefix, "Give --prefix a path without a space."),
    ):
        if " " in path:
            yield stops("space-in-path", f"{path!a} has a space in it, at which some build systems split it", do)


def unit_record(case: BuildCase) -> Iterator[Fault]:
    if case.project.backend is Backend.OTHER:
        yield note(
            "unknown-backend", "this backend is run as a whole: its units cannot be counted or resumed one by one"
        )


MACHINE_CHECKS = (toolkit, host_compiler, headers, rights, space, variables, one_target, paths, unit_record)

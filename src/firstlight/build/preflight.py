"""Everything that would stop a build hours later, looked at before it begins: all faults at once, nothing compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from firstlight.build.archs import unknown_to
from firstlight.build.backend import BY_NINJA, Backend
from firstlight.build.case import BuildCase
from firstlight.build.fault import Fault, note, stops
from firstlight.build.flags import FlagVerdict, JudgedFlag, what_reads
from firstlight.build.own_variables import unknown_arch_variables
from firstlight.build.preflight_machine import MACHINE_CHECKS
from firstlight.build.preflight_runtime import RUNTIME_CHECKS
from firstlight.build.torch_headers import WHEELS
from firstlight.facts.compilers import Tool
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.ways.compile_jobs import GIB
from firstlight.ways.names import normal

Check = Callable[[BuildCase], Iterator[Fault]]
_NEWEST_MAJOR = 13  # of CUDA, where the toolkit does not say
_NEEDS_NINJA = (Backend.SKBUILD, Backend.PYTORCH, Backend.TORCH_EXTENSION)


def preflight(case: BuildCase) -> tuple[Fault, ...]:
    """Every fault and note, faults first."""
    found = [fault for check in CHECKS for fault in check(case)]
    return tuple(sorted(found, key=lambda fault: fault.weight.value != "stops"))


def flags_nobody_reads(case: BuildCase) -> Iterator[Fault]:
    """report 004 set nine flags of which its tree read six."""
    for each in case.judged:
        if each.verdict is FlagVerdict.UNREAD:
            do = f"Give --flag {each.near[0]}={each.flag.value}, or leave it out." if each.near else "Leave it out."
            yield stops("flag-not-read", f"{each.flag}: {what_reads(each)}", do)
        elif each.verdict is FlagVerdict.RUN_TIME:
            do = "Leave it out here, and set it where the program runs."
            yield stops("flag-of-the-run", f"{each.flag}: {what_reads(each)}", do)
        elif each.verdict is FlagVerdict.NO_DOOR:
            yield stops("flag-has-no-way-in", f"{each.flag}: {what_reads(each)}", _other_door(case, each))


def _other_door(case: BuildCase, judged: JudgedFlag) -> str:
    """The nearest way by which the same is reached."""
    if reads := case.source.of("CMAKE_ARGS"):
        flag = f"CMAKE_ARGS=-D{judged.flag}"
        return f"Give --flag {flag} instead, which {reads[0].where} reads and hands to CMake."
    passed = " or ".join(f"{each}*" for each in case.source.passed.prefixes)
    handed = f"What is named {passed} is handed on. " if passed else ""
    near = f"The nearest names that get in: {', '.join(judged.near)}." if judged.near else ""
    return f"{handed}{near}".strip() or "Leave it out, or set it in the CMake file by --patch."


def cmake_and_ninja(case: BuildCase) -> Iterator[Fault]:
    if case.source.cmake_files and case.project.backend in BY_NINJA:
        yield from _tool(case, case.tools.cmake, "cmake", case.project.cmake_minimum)
    if case.project.backend in _NEEDS_NINJA:
        yield from _tool(case, case.tools.ninja, "ninja", "")


# As the extra `build` of firstlight asks for them; a test holds the two together.
_ENOUGH = {"cmake": "3.28", "ninja": "1.11"}


def _tool(case: BuildCase, tool: Fact[Tool], name: str, least: str) -> Iterator[Fault]:
    enough = _ENOUGH[name] if not least or _older(least, _ENOUGH[name]) else least
    command = f"{_python(case)} -m pip install '{name}>={enough}'"
    if isinstance(tool, Unknown):
        yield stops(f"no-{name}", tool.reason, "Install it into the environment, or give --bring.", command=command)
        return
    version = tool.value.version
    if isinstance(version, Known) and least and _older(version.value, least):
        saw = f"{tool.value.path} is {version.value}; this tree wants {least} or newer"
        yield stops(f"{name}-too-old", saw, "Install a newer one there, or give --bring.", command=command)


def _older(version: str, least: str) -> bool:
    try:
        return Version(version) < Version(least)
    except InvalidVersion:
        return False


def build_requirements(case: BuildCase) -> Iterator[Fault]:
    """Without isolation the backend and what it needs have to be in the environment."""
    if isinstance(case.tools.installed, Unknown):
        return
    there = {each.name: each.version for each in case.tools.installed.value}
    missing = []
    for text in (*case.project.requires, "build"):
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        version = there.get(normal(wanted.name), "")
        if normal(wanted.name) in ("cmake", "ninja") and not version:
            continue  # the machine's own will do, and are judged above
        if not version or not wanted.specifier.contains(version, prereleases=True):
            missing.append(f"{wanted.name}{wanted.specifier}")
    if missing:
        listed = " ".join(f"'{each}'" for each in missing)
        saw = f"the environment lacks what this project is built with: {', '.join(missing)}"
        command = f"{_python(case)} -m pip install {listed}"
        yield stops("build-requirements", saw, "Install them, or give --bring.", command=command)


def torch_for_extensions(case: BuildCase) -> Iterator[Fault]:
    if case.project.backend is not Backend.TORCH_EXTENSION:
        return
    torch = case.facts.torch
    if isinstance(torch, Unknown):
        yield stops("no-torch", f"this project is compiled against torch, and there is none: {torch.reason}",
                    "Install torch into the environment first.")  # fmt: skip
        return
    toolkit = case.toolkit
    if not case.cuda.compiled or toolkit is None or isinstance(toolkit.nvcc_version, Unknown):
        return
    wheel = torch.value.wheel_cuda
    if isinstance(wheel, Unknown):
        yield stops("torch-without-cuda", f"CUDA units against a torch without CUDA ({wheel.reason})",
                    "Build without CUDA where the tree allows it, or install a CUDA torch.")  # fmt: skip
    elif wheel.value.major != toolkit.nvcc_version.value.major:
        saw = f"nvcc {toolkit.nvcc_version.value} and torch's CUDA {wheel.value}: cpp_extension refuses another major"
        yield stops("toolkit-of-another-major", saw, f"Give --toolkit a CUDA {wheel.value.major}.x.")


def headers_of_torch(case: BuildCase) -> Iterator[Fault]:
    """A toolkit in parts has nvcc and no cusparse.h, which torch's own headers include."""
    folder = case.beside_torch
    if isinstance(folder, Unknown):
        command = f"{_python(case)} -m pip install {' '.join(WHEELS)}"
        yield stops("torch-headers-missing", f"torch's own headers include others: {folder.reason}",
                    "Install the whole toolkit, or the wheels that have them.", command=command)  # fmt: skip
    elif folder.value:
        yield note("headers-of-wheels", f"the toolkit has no cusparse.h; the build takes those of {folder.value}")


def architectures(case: BuildCase) -> Iterator[Fault]:
    if not case.cuda.compiled:
        if case.request.archs:
            yield note("archs-unused", "--archs is given, and nothing here is compiled for a GPU")
        return
    if isinstance(case.archs, Unknown):
        yield stops("no-archs", case.archs.reason, "Give --archs, e.g. --archs 9.0.")
        return
    if case.toolkit is None or isinstance(case.toolkit.nvcc_version, Unknown):
        return
    release = case.toolkit.nvcc_version.value
    for arch in unknown_to(case.archs.value, release, case.tables):
        saw = f"{arch}: nvcc {release.release} does not know {arch.sm} (Unsupported gpu architecture)"
        yield stops("arch-unknown-to-toolkit", saw, "Name another, or give --toolkit a CUDA that knows it.")


def arch_variables(case: BuildCase) -> Iterator[Fault]:
    """--archs does not reach a setup.py that asks a variable of its own, in a form of its own."""
    for name in unknown_arch_variables(case) if case.cuda.compiled else ():
        where = case.source.of(name)[0]
        default = f" (default {where.default})" if where.default else ""
        yield note("arch-variable", f"{where.where} takes its GPUs from {name}{default}, and how it wants them written "
                   "is not known here", f"Give --flag {name}=..., as its documentation says.")  # fmt: skip


def gpu_hidden(case: BuildCase) -> Iterator[Fault]:
    """A setup.py that asks torch for a GPU builds without CUDA where none is seen, as in docker build."""
    if case.project.backend is not Backend.TORCH_EXTENSION or not case.cuda.compiled or case.facts.gpus.devices:
        return
    if not case.source.of("FORCE_CUDA"):
        return
    if any(flag.name in ("FORCE_CUDA", "FORCE_ONLY_CUDA", "FORCE_ONLY_CPU") for flag in case.flags):
        return
    alone = ", or --flag FORCE_ONLY_CPU=1 to build the C++ part alone" if case.source.of("FORCE_ONLY_CPU") else ""
    saw = "no GPU is seen here, and this setup.py leaves CUDA out then"
    yield stops("gpu-hidden", saw, f"Add --flag FORCE_CUDA=1{alone}.")


def libraries(case: BuildCase) -> Iterator[Fault]:
    """A library that is not here is found by CMake after an hour, or by the linker after a day."""
    for each in case.libraries:
        nvcc = case.toolkit.nvcc_version if case.toolkit else Unknown("no toolkit")
        major = nvcc.value.major if isinstance(nvcc, Known) else _NEWEST_MAJOR
        wheel = each.feature.wheel.replace("MAJOR", str(major))
        if isinstance(each.found, Unknown):
            do = "Install it." if each.required else f"Install it, or turn it off with --without {each.feature.name}."
            command = f"{_python(case)} -m pip install {wheel}"
            yield stops(f"no-{each.feature.library}", f"{each.flag}: {each.found.reason}", do, command=command)
        elif isinstance(each.link, Unknown):
            yield from _shared_alone(case, each.feature.library, each.found.value)


def _shared_alone(case: BuildCase, library: str, path: str) -> Iterator[Fault]:
    """A wheel has libNAME.so.2 and neither libNAME.so nor libNAME_static.a."""
    switches = [
        name
        for name in case.source.names
        if library.upper() in name and re.search(r"(?:SHARED|STATIC)", name) and name.startswith(("BUILD_", "USE_"))
    ]
    given = {flag.name for flag in case.flags}
    for name in switches[:1]:
        if name not in given:
            value = "ON" if "SHARED" in name else "OFF"
            saw = f"{path} is a shared library alone; this tree links {library} statically unless {name} says otherwise"
            yield stops(f"{library}-shared-alone", saw, f"Add --flag {name}={value}.")
    link = os.path.basename(path).partition(".so")[0] + ".so"
    yield note(f"{library}-link", f"{path} has no {link} beside it: a folder of links is made for the build")


def turned_off(case: BuildCase) -> Iterator[Fault]:
    """A feature that is on by default and whose library is not here is built without, and that is said."""
    for each in case.turned_off:
        assert isinstance(each.found, Unknown), each
        yield note("feature-off", f"{each.feature.name} is left out ({each.flag}=0): {each.found.reason}",
                   f"Install the library and give --with {each.feature.name} to have it.")  # fmt: skip


def memory(case: BuildCase) -> Iterator[Fault]:
    known = case.facts.resources.memory_bytes
    if isinstance(known, Unknown):
        yield note("memory-unknown", f"{known.reason}: one job at a time")
        return
    for each in case.needs.by_kind:
        if each.peak_bytes > known.value:
            peak, has = each.peak_bytes / GIB, known.value / GIB
            saw = f"a {each.kind.value} unit takes up to {peak:.1f} GiB; this machine has {has:.1f}"
            yield stops("too-little-memory", saw, "Add swap, or build on a machine with more memory.")


def ignored_jobs(case: BuildCase) -> Iterator[Fault]:
    """MAX_JOBS is a convention, not a law."""
    if case.project.own_compilers and not case.source.of("MAX_JOBS"):
        yield note("max-jobs-ignored", "this setup.py starts compilers itself and reads no MAX_JOBS: --jobs has no say "
                   "in how many run at once, and sources that it writes meanwhile are not counted here")  # fmt: skip
    elif case.project.backend is Backend.SETUPTOOLS and not case.source.of("MAX_JOBS"):
        yield note("max-jobs-ignored", "this project reads no MAX_JOBS: setuptools compiles one unit after the other, "
                   "and after a stop each module is compiled again as a whole")  # fmt: skip
    if case.project.uses_ninja is False and case.project.backend is Backend.TORCH_EXTENSION:
        yield note("no-ninja-used", "this setup.py turns ninja off (use_ninja=False): one unit after the other, and "
                   "after a stop the modules that were not linked yet are compiled again")  # fmt: skip
    threads = [each for each in case.tools.variables if each.name == "NVCC_THREADS"]
    if not threads and any(read.default == "4" for read in case.source.of("NVCC_THREADS")):
        yield note("nvcc-threads", "one nvcc of this setup.py runs 4 compilers; the build sets NVCC_THREADS=1, "
                   "so that jobs are what they say")  # fmt: skip


def _python(case: BuildCase) -> str:
    return case.tools.python.value if isinstance(case.tools.python, Known) else "python3"


CHECKS: tuple[Check, ...] = (
    flags_nobody_reads,
    cmake_and_ninja,
    build_requirements,
    torch_for_extensions,
    headers_of_torch,
    architectures,
    arch_variables,
    gpu_hidden,
    libraries,
    turned_off,
    memory,
    ignored_jobs,
    *RUNTIME_CHECKS,
    *MACHINE_CHECKS,
)

"""The programs and settings that a build would use here: asked of the machine once, judged elsewhere."""

from __future__ import annotations

import os

from firstlight.build.torch_headers import probe_torch_headers
from firstlight.facts.collect import Facts
from firstlight.facts.compilers import Tool, with_version
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which
from firstlight.ways.building import interpreter_of
from firstlight.ways.names import normal

# What a compiler, a linker or a build system takes from the environment without being asked to.
LEAKING = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CMAKE_ARGS", "CMAKE_PREFIX_PATH", "CMAKE_GENERATOR", "PYTHONPATH", "CC", "CXX",
    "CUDAHOSTCXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH", "MAX_JOBS", "NVCC_THREADS", "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS", "LD_RUN_PATH", "TORCH_CUDA_ARCH_LIST",
)  # fmt: skip
_ASK_INSTALLED = (
    "import importlib.metadata as m\nfor d in m.distributions(): print(d.metadata['Name'] or '', d.version or '')"
)
_NOT_ASKED = Unknown("this machine was not asked: it is a saved one")


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A variable of the environment, e.g. CFLAGS='-O0'."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class InstalledProject:
    """A distribution of the environment, e.g. scikit-build-core 0.11.6."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class BuildTools:
    """What would be used, e.g. cmake 3.31.6 of the environment, ninja 1.11.1, headers in /usr/include/python3.11."""

    python: Fact[str]
    cmake: Fact[Tool]
    ninja: Fact[Tool]
    headers: Fact[str]
    cache: Fact[str]  # ccache or sccache
    variables: tuple[SetVariable, ...]
    installed: Fact[tuple[InstalledProject, ...]]
    torch_headers: Fact[tuple[str, ...]] = _NOT_ASKED  # folders with what torch's own headers include


def tools_of_saved(facts: Facts) -> BuildTools:
    """What a facts document tells: that programs are there, not their versions."""
    return BuildTools(
        python=_python(facts),
        cmake=facts.compilers.find("cmake"),
        ninja=facts.compilers.find("ninja"),
        headers=_NOT_ASKED,
        cache=_cache(facts),
        variables=tuple(SetVariable(each.name, each.value) for each in facts.build_variables),
        installed=_NOT_ASKED,
    )


def probe_tools(machine: Machine, facts: Facts) -> BuildTools:
    """The same of a live machine; programs of the environment come before those on PATH."""
    python = _python(facts)
    folder = os.path.dirname(python.value) if isinstance(python, Known) else ""
    return BuildTools(
        python=python,
        cmake=_tool(machine, "cmake", folder),
        ninja=_tool(machine, "ninja", folder),
        headers=_headers(machine, python),
        cache=_cache(facts),
        variables=tuple(SetVariable(name, value) for name in LEAKING if (value := machine.env(name) or "").strip()),
        installed=installed_projects(machine, python),
        torch_headers=probe_torch_headers(machine, facts),
    )


def installed_projects(machine: Machine, python: Fact[str]) -> Fact[tuple[InstalledProject, ...]]:
    """Every distribution that the interpreter itself sees; facts keep only those that have to do with GPUs."""
    if isinstance(python, Unknown):
        return python
    asked = machine.run((python.value, "-I", "-c", _ASK_INSTALLED))
    if not asked.ok:
        return Unknown(asked.complaint)
    pairs = (line.rpartition(" ")[::2] for line in asked.stdout.splitlines())
    return Known(
        tuple(InstalledProject(normal(name), version) for name, version in pairs if name), seen_in=python.value
    )


def _python(facts: Facts) -> Fact[str]:
    if facts.environment is None:
        return Unknown("no Python environment was found")
    return Known(interpreter_of(facts.environment), seen_in="the selected environment")


def _tool(machine: Machine, name: str, folder: str) -> Fact[Tool]:
    inside = f"{folder}/{name}" if folder else ""
    path = inside if inside and machine.stat(inside) is not None else which(machine, name)
    if path is None:
        return Unknown(f"no {name} in the environment or on PATH")
    return Known(with_version(machine, Tool(name, path, Unknown("not asked"))), seen_in=path)


def _headers(machine: Machine, python: Fact[str]) -> Fact[str]:
    if isinstance(python, Unknown):
        return python
    asked = machine.run((python.value, "-I", "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"))
    if not asked.ok:
        return Unknown(asked.complaint)
    folder = asked.first_line
    if machine.stat(f"{folder}/Python.h") is None:
        return Unknown(f"no Python.h in {folder}")
    return Known(folder, seen_in="sysconfig")


def _cache(facts: Facts) -> Fact[str]:
    for name in ("sccache", "ccache"):
        if isinstance(facts.compilers.find(name), Known):
            return Known(name, seen_in="PATH")
    return Unknown("neither sccache nor ccache on PATH")

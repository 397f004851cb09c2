"""The C and C++ runtime libraries a program gets here: glibc and libstdc++, by the symbol versions they offer."""

from __future__ import annotations

import enum

from firstlight.elf.loader import LoaderSetup, loader_setup, search
from firstlight.elf.reader import defined_versions, read_elf
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

_PROGRAMS = ("/bin/sh", "/usr/bin/env", "/bin/ls")  # of the system itself, whatever else was installed beside it


class Libc(enum.Enum):
    """The C library that the system's own programs run with."""

    GLIBC = "glibc"
    MUSL = "musl"


@dataclass(frozen=True, slots=True)
class RuntimeLibraries:
    """Highest symbol versions on offer, e.g. glibc 2.36 and libstdc++ GLIBCXX_3.4.30, and the file of the latter."""

    glibc: Fact[str]  # "2.36"
    libstdcxx: Fact[str]  # "3.4.30"
    libstdcxx_path: Fact[str]  # as the loader finds it, e.g. /lib/x86_64-linux-gnu/libstdc++.so.6
    libc: Fact[Libc]


def probe_runtime_libraries(machine: Machine) -> RuntimeLibraries:
    """glibc and libstdc++ of a plain program on this machine; nothing is run."""
    setup = loader_setup(machine)
    libstdcxx_path = _path(machine, setup, name="libstdc++.so.6")
    glibc = _glibc(machine, setup)
    return RuntimeLibraries(
        glibc=glibc,
        libstdcxx=_highest(machine, libstdcxx_path, prefix="GLIBCXX_"),
        libstdcxx_path=libstdcxx_path,
        libc=_libc(machine, glibc),
    )


def _libc(machine: Machine, glibc: Fact[str]) -> Fact[Libc]:
    """musl or glibc; both may be installed, and then the interpreter of the system's own programs decides."""
    musl = next((f"/lib/{name}" for name in machine.list("/lib", "ld-musl-*.so.1")), "")
    if isinstance(glibc, Known) and not musl:
        return Known(Libc.GLIBC, seen_in=glibc.seen_in)
    if not musl:
        return Unknown(glibc.reason if isinstance(glibc, Unknown) else "no /lib/ld-musl-*.so.1")
    if isinstance(glibc, Unknown):  # libc.so.6 of Alpine's gcompat is musl too: it defines no GLIBC version
        return Known(Libc.MUSL, seen_in=musl)
    for path in _PROGRAMS:
        elf = read_elf(machine, path)
        if elf is not None and elf.interpreter:
            return Known(Libc.MUSL if "/ld-musl-" in elf.interpreter else Libc.GLIBC, seen_in=path)
    return Known(Libc.GLIBC, seen_in=glibc.seen_in)


def _glibc(machine: Machine, setup: LoaderSetup) -> Fact[str]:
    path = _path(machine, setup, name="libc.so.6")
    if isinstance(path, Unknown):
        for name in machine.list("/lib", "ld-musl-*.so.1"):
            return Unknown(f"the C library is musl (/lib/{name}), not glibc")
    return _highest(machine, path, prefix="GLIBC_")


def _path(machine: Machine, setup: LoaderSetup, *, name: str) -> Fact[str]:
    found = search(machine, setup, name=name)
    if found.winner is not None:
        return Known(found.winner.path, seen_in=found.winner.rule.value)
    if found.candidates and not found.candidates[0].arch:
        return Unknown(f"{found.candidates[0].path} is not an ELF file")
    return Unknown(f"no {name} in LD_LIBRARY_PATH, ld.so.cache or the default folders")


def _highest(machine: Machine, path: Fact[str], *, prefix: str) -> Fact[str]:
    """The highest version with a prefix that a library defines, e.g. '2.36' of GLIBC_2.2.5 ... GLIBC_2.36."""
    if isinstance(path, Unknown):
        return path
    numbers: list[tuple[int, ...]] = []
    for name in defined_versions(machine, path.value):
        parts = name.removeprefix(prefix).split(".")
        if name.startswith(prefix) and all(part.isdecimal() and len(part) < 6 for part in parts):
            numbers.append(tuple(int(part) for part in parts))  # not GLIBC_PRIVATE, GLIBC_ABI_DT_RELR
    if not numbers:
        return Unknown(f"{path.value} defines no {prefix} version")
    return Known(".".join(str(part) for part in max(numbers)), seen_in=path.value)

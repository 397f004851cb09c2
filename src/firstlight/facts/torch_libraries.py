"""What the loader does when torch is imported: which file each library name leads to, and what is missing."""

from __future__ import annotations

from firstlight.elf.closure import Closure, closure
from firstlight.elf.loader import Rule
from firstlight.elf.reader import needed_versions
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.torch_install import TorchInstall
from firstlight.frozen import dataclass
from firstlight.machine import Machine

# The first of these that is there is where an import starts; plug-ins beside it have needs of their own.
_ROOTS = ("libtorch_python.so", "libtorch_cuda.so", "libtorch_cpu.so")


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A name and the file it leads to, e.g. libcublasLt.so.13 in /usr/local/cuda/lib64 by LD_LIBRARY_PATH."""

    name: str
    path: str
    found_by: Rule
    entry: str  # the search path element responsible
    requested_by: tuple[str, ...]  # files that ask for the name


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """A name that leads nowhere, e.g. libcudss.so.0, asked for by libtorch_cuda.so."""

    name: str
    requested_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchLibraries:
    """The closure of torch's own libraries as the loader would build it in this environment."""

    root: str
    loaded: tuple[LoadedLibrary, ...]
    missing: tuple[MissingLibrary, ...]
    glibc_needed: Fact[str]  # the newest GLIBC_x.y that torch's files ask for: 2.28
    libstdcxx_needed: Fact[str]  # the newest GLIBCXX_3.4.N: 3.4.24


def probe_torch_libraries(machine: Machine, torch: Fact[TorchInstall]) -> Fact[TorchLibraries]:
    """The libraries that importing torch loads, read from the files; nothing is loaded."""
    if isinstance(torch, Unknown):
        return Unknown("torch is not installed")
    folder = f"{torch.value.folder}/lib"
    for name in _ROOTS:
        found = closure(machine, f"{folder}/{name}")
        if found is not None:
            return Known(_libraries(machine, found, folder), f"{folder}/{name}")
    return Unknown(f"no readable library of torch in {folder}")


def _libraries(machine: Machine, found: Closure, folder: str) -> TorchLibraries:
    own = [found.root.path, *(each.file.path for each in found.objects if each.file.path.startswith(folder))]
    names = [name for path in own for needed in needed_versions(machine, path) for name in needed.names]
    return TorchLibraries(
        root=found.root.path,
        loaded=tuple(
            LoadedLibrary(each.name, each.file.path, each.found.rule, each.found.entry, each.requested_by)
            for each in found.objects
        ),
        missing=_missing(found),
        glibc_needed=_newest("GLIBC_", names),
        libstdcxx_needed=_newest("GLIBCXX_", names),
    )


def _missing(found: Closure) -> tuple[MissingLibrary, ...]:
    """Each missing name once, with everybody who asks for it."""
    askers: dict[str, list[str]] = {}
    for each in found.missing:
        askers.setdefault(each.name, []).append(each.requested_by)
    return tuple(MissingLibrary(name, tuple(dict.fromkeys(files))) for name, files in askers.items())


def _newest(prefix: str, names: list[str]) -> Fact[str]:
    versions = []
    for name in names:
        parts = name.removeprefix(prefix).split(".") if name.startswith(prefix) else []
        if parts and all(part.isdigit() for part in parts):
            versions.append(tuple(int(part) for part in parts))
    if not versions:
        return Unknown(f"its files name no {prefix.rstrip('_')} version")
    return Known(".".join(str(part) for part in max(versions)), "symbol versions of torch's files")

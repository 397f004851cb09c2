"""What the loader does when torch is imported: which file each library name leads to, and what is missing."""

from __future__ import annotations

import posixpath

from firstlight.elf.closure import Closure, LoadedObject, closure
from firstlight.elf.loader import FoundBy, LoaderSetup, loader_setup
from firstlight.elf.reader import defined_versions, needed_versions
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.torch_install import TorchInstall
from firstlight.frozen import dataclass
from firstlight.machine import Machine

# torch/__init__.py opens this before torch._C, and what it brings in is reused later: it alone decides whose
# libcublasLt is taken where it asks for libcublas (pytorch/pytorch#91067).
_FIRST = "libtorch_global_deps.so"
# The first of these that is there is where torch._C starts; plug-ins beside it have needs of their own.
_ROOTS = ("libtorch_python.so", "libtorch_cuda.so", "libtorch_cpu.so")
_SYSTEM = (FoundBy.CACHE, FoundBy.DEFAULT)


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A name and the file it leads to, e.g. libcublasLt.so.13 in /usr/local/cuda/lib64 by LD_LIBRARY_PATH."""

    name: str
    path: str
    found_by: FoundBy
    entry: str  # the search path element responsible
    requested_by: tuple[str, ...]  # files that ask for the name


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """A name that leads nowhere, e.g. libcudss.so.0, asked for by libtorch_cuda.so."""

    name: str
    requested_by: tuple[str, ...]
    damaged: str  # a file of that name that is no ELF file: there the loader stops; "" where nothing is found at all


@dataclass(frozen=True, slots=True)
class ShadowedLibrary:
    """A file that LD_LIBRARY_PATH puts in the place of another: /usr/local/cuda/lib64's libcublasLt for the wheel's."""

    name: str
    path: str
    entry: str  # the element of LD_LIBRARY_PATH
    instead_of: str  # what is loaded without LD_LIBRARY_PATH
    requested_by: str  # the file whose search it is


@dataclass(frozen=True, slots=True)
class TorchLibraries:
    """The closure of torch's own libraries as the loader would build it in this environment."""

    root: str
    loaded: tuple[LoadedLibrary, ...]
    missing: tuple[MissingLibrary, ...]
    shadowed: tuple[ShadowedLibrary, ...]
    glibc_needed: Fact[str]  # the newest GLIBC_x.y that torch and its CUDA libraries ask for: 2.28, with the file
    libstdcxx_needed: Fact[str]  # the newest GLIBCXX_3.4.N: 3.4.22
    libstdcxx_offered: Fact[str]  # what the libstdc++ they get has: 3.4.30


def probe_torch_libraries(machine: Machine, torch: Fact[TorchInstall]) -> Fact[TorchLibraries]:
    """The libraries that importing torch loads, read from the files; nothing is loaded.

    Left out: what torch preloads from Python. Of conda, whose interpreter brings a search path, see _conda_folder.
    """
    if isinstance(torch, Unknown):
        return Unknown("torch is not installed")
    folder = f"{torch.value.folder}/lib"
    conda = _conda_folder(machine, torch.value.folder)
    setup = loader_setup(machine)
    if conda:
        setup = setup._replace(default_folders=(*setup.default_folders, conda))
    for name in _ROOTS:
        found = _import(machine, setup, folder=folder, name=name)
        if found is not None:
            plain = found
            if any(each.found.rule is FoundBy.LIBRARY_PATH for each in found.objects):
                plain = _import(machine, setup._replace(library_path=()), folder=folder, name=name) or found
            return Known(_libraries(machine, found, plain=plain, conda=conda), f"{folder}/{name}")
    return Unknown(f"no readable library of torch in {folder}")


def _conda_folder(machine: Machine, torch: str) -> str:
    """PREFIX/lib of a conda environment, else "".

    conda's interpreter has an RPATH to it, which counts for every library without a RUNPATH. Here the folder comes
    last instead of first: enough to tell what is missing, and libstdc++ is looked for there by itself.
    """
    folder = posixpath.dirname(posixpath.dirname(posixpath.dirname(torch)))  # lib/python3.12/site-packages/torch
    return folder if machine.stat(f"{posixpath.dirname(folder)}/conda-meta") is not None else ""


def _import(machine: Machine, setup: LoaderSetup, *, folder: str, name: str) -> Closure | None:
    """Both steps of an import: the global dependencies, then torch._C, which reuses what is loaded."""
    second = closure(machine, f"{folder}/{name}", setup=setup)
    first = None if second is None else closure(machine, f"{folder}/{_FIRST}", setup=setup)
    if second is None or first is None:
        return second
    objects = {each.name: each for each in first.objects}
    for each in second.objects:
        known = objects.get(each.name)
        askers = each.requested_by if known is None else (*known.requested_by, *each.requested_by)
        one = each if known is None else known
        objects[each.name] = LoadedObject(one.name, one.file, one.found, tuple(dict.fromkeys(askers)))
    missing = tuple(each for each in (*first.missing, *second.missing) if each.name not in objects)
    return Closure(second.root, tuple(objects.values()), missing)


def _libraries(machine: Machine, found: Closure, *, plain: Closure, conda: str) -> TorchLibraries:
    # Not those of the system: they fit their own C library.
    paths = [found.root.path, *(each.file.path for each in found.objects if each.found.rule not in _SYSTEM)]
    wanted = [(name, path) for path in paths for needed in needed_versions(machine, path) for name in needed.names]
    return TorchLibraries(
        root=found.root.path,
        loaded=tuple(
            LoadedLibrary(each.name, each.file.path, each.found.rule, each.found.entry, each.requested_by)
            for each in found.objects
        ),
        missing=_missing(found),
        shadowed=_shadowed(machine, found, plain),
        glibc_needed=_newest("GLIBC_", wanted),
        libstdcxx_needed=_newest("GLIBCXX_", wanted),
        libstdcxx_offered=_libstdcxx(machine, found, conda=conda),
    )


def _libstdcxx(machine: Machine, found: Closure, *, conda: str) -> Fact[str]:
    name = "libstdc++.so.6"
    path = next((each.file.path for each in found.objects if each.name == name), "")
    if conda and machine.stat(f"{conda}/{name}") is not None:
        path = f"{conda}/{name}"
    if not path:
        return Unknown(f"nothing that torch loads asks for {name}")
    return _newest("GLIBCXX_", [(version, path) for version in defined_versions(machine, path)])


def _missing(found: Closure) -> tuple[MissingLibrary, ...]:
    """Each missing name once, with everybody who asks for it."""
    askers: dict[str, list[str]] = {}
    damaged: dict[str, str] = {}
    for each in found.missing:
        askers.setdefault(each.name, []).append(each.requested_by)
        damaged[each.name] = damaged.get(each.name) or each.damaged
    return tuple(MissingLibrary(name, tuple(dict.fromkeys(files)), damaged[name]) for name, files in askers.items())


def _shadowed(machine: Machine, found: Closure, plain: Closure) -> tuple[ShadowedLibrary, ...]:
    """The files by LD_LIBRARY_PATH for which another file, links resolved, is loaded without it."""
    otherwise = {each.name: each.file.path for each in plain.objects}
    return tuple(
        ShadowedLibrary(each.name, each.file.path, each.found.entry, otherwise[each.name], each.requested_by[0])
        for each in found.objects
        if each.found.rule is FoundBy.LIBRARY_PATH
        and each.name in otherwise
        and machine.real_path(otherwise[each.name]) != machine.real_path(each.file.path)
    )


def _newest(prefix: str, versions: list[tuple[str, str]]) -> Fact[str]:
    """The highest of (version, file) with a prefix, seen in that file; GLIBC_PRIVATE and the like are none."""
    found = []
    for name, path in versions:
        parts = name.removeprefix(prefix).split(".") if name.startswith(prefix) else []
        if parts and all(part.isdecimal() and len(part) < 6 for part in parts):
            found.append((tuple(int(part) for part in parts), path))
    if not found:
        return Unknown(f"no {prefix.rstrip('_')} version is named")
    numbers, path = max(found, key=lambda pair: pair[0])
    return Known(".".join(str(part) for part in numbers), posixpath.normpath(path))

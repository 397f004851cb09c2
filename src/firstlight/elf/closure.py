"""Everything that loads with one file: breadth-first, as the dynamic loader does it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.elf.loader import Candidate, LoaderSetup, Rule, expand, loader_setup, walk
from firstlight.elf.reader import ElfFile, read_elf
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

_MOST_OBJECTS = 4096
# Loaded before anything else, under this name; what a library without PT_INTERP gets.
_INTERPRETERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """One loaded file, e.g. libz.so.1 asked for by /usr/bin/git, found as /lib/x86_64-linux-gnu/libz.so.1."""

    name: str  # as the first requester wrote it
    file: ElfFile
    found: Candidate
    requested_by: tuple[str, ...]  # paths, in load order


@dataclass(frozen=True, slots=True)
class MissingName:
    """A name nothing was loaded for, e.g. libcudss.so.0 asked for by .../torch/lib/libtorch_cuda.so."""

    name: str
    requested_by: str
    damaged: str  # the file at which the loader stops because it is no ELF file, else ""


@dataclass(frozen=True, slots=True)
class Closure:
    """What loads with `root`, in load order, and what is missing."""

    root: ElfFile
    objects: tuple[LoadedObject, ...]
    missing: tuple[MissingName, ...]


class _Object:
    """A loaded object; `chain` starts with its file, then the file that asked for it, and ends with the program."""

    __slots__ = ("chain", "found", "name", "requested_by")

    def __init__(self, name: str, found: Candidate, chain: tuple[ElfFile, ...]) -> None:
        self.name, self.found, self.chain = name, found, chain
        self.requested_by: list[str] = []


class _Process:
    """The objects of one process while it starts: grows as names are asked for."""

    def __init__(self, machine: Machine, setup: LoaderSetup, program: ElfFile) -> None:
        self.machine, self.setup = machine, setup
        found = Candidate(program.path, Rule.PATH, entry=program.path, owner="", arch=program.arch)
        self.objects = [_Object(program.path, found, (program,))]
        self.missing: list[MissingName] = []
        self._by_name = {program.soname or program.path: self.objects[0]}
        self._by_file = {machine.real_path(program.path): self.objects[0]}
        self._folders: dict[str, tuple[str, ...]] = {}
        interpreter = program.interpreter or _INTERPRETERS.get(program.arch, "")
        self._interpreter = (interpreter, interpreter.rpartition("/")[2])

    def request(self, name: str, asking: _Object, *, requester: str) -> None:
        """One name, asked for on behalf of `asking`: reused where it is loaded already, else searched."""
        name = expand(name, asking.chain[0], setup=self.setup)
        if name in self._interpreter:
            return
        loaded = self._by_name.get(name) or self._load(name, asking, requester=requester)
        if loaded is not None and requester not in loaded.requested_by:
            loaded.requested_by.append(requester)

    def _load(self, name: str, asking: _Object, *, requester: str) -> _Object | None:
        candidates = walk(self.machine, self.setup, name=name, chain=asking.chain, folders=self._folders)
        usable = (item for item in candidates if item.arch in (self.setup.arch, ""))
        found = next(usable, None)
        if found is None or found.rule is Rule.LATER_CACHE_ENTRY:
            self.missing.append(MissingName(name, requester, damaged=""))
            return None
        real = self.machine.real_path(found.path)
        if (same := self._by_file.get(real)) is not None:  # the loader compares device and inode
            self._by_name[name] = same
            return same
        file = read_elf(self.machine, found.path) if found.arch else None
        if file is None:
            self.missing.append(MissingName(name, requester, damaged=found.path))
            return None
        loaded = _Object(name, found, (file, *asking.chain))
        for key in (name, found.path, file.soname or name):
            self._by_name.setdefault(key, loaded)
        self._by_file[real] = loaded
        self.objects.append(loaded)
        return loaded


def closure(machine: Machine, root: str, *, setup: LoaderSetup | None = None) -> Closure | None:
    """What the loader loads for a program or library, e.g. for .../torch/lib/libtorch_python.so; None: no ELF file.

    The setup is the machine's own unless given. The interpreter itself (ld-linux-x86-64.so.2) is not listed.
    """
    program = read_elf(machine, root)
    if program is None:
        return None
    setup = setup or loader_setup(machine)
    if program.arch != setup.arch:
        setup = setup._replace(arch=program.arch)
    if program.interpreter:
        program = replace(program, path=machine.real_path(root))  # the kernel tells a program its resolved path
    process = _Process(machine, setup, program)
    for name in setup.preload:
        process.request(name, process.objects[0], requester=Rule.PRELOAD.value)
    for loaded in process.objects:  # grows while it is walked
        if len(process.objects) > _MOST_OBJECTS:
            break
        for name in loaded.chain[0].needed:
            process.request(name, loaded, requester=loaded.chain[0].path)
    return Closure(
        program,
        tuple(
            LoadedObject(item.name, item.chain[0], item.found, tuple(item.requested_by)) for item in process.objects[1:]
        ),
        tuple(process.missing),
    )

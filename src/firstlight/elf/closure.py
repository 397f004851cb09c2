"""Everything that loads with one file or with several: breadth-first, as the dynamic loader does it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.elf.loader import Candidate, FoundBy, LoaderSetup, expand, walk, whole_setup
from firstlight.elf.reader import ElfFile, read_elf
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

DLOPEN = "dlopen"  # who asks for a file that the program opens by its path

_MOST_OBJECTS = 4096
# Loaded before anything else, under this name; what a library without PT_INTERP gets.
_INTERPRETERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """One loaded file, e.g. libz.so.1 asked for by /usr/bin/git, found as /lib/x86_64-linux-gnu/libz.so.1."""

    name: str  # as the first requester wrote it
    file: ElfFile
    found: Candidate
    requested_by: tuple[str, ...]  # paths, in load order; also "LD_PRELOAD" and "dlopen"
    other_names: tuple[str, ...] = ()  # names under which the same file was asked for later


@dataclass(frozen=True, slots=True)
class MissingName:
    """A name nothing was loaded for, e.g. libcudss.so.0 asked for by .../torch/lib/libtorch_cuda.so."""

    name: str
    requested_by: str
    damaged: str  # the file at which the loader stops because it cannot be loaded, else ""
    fault: str = ""  # what the loader says of that file, e.g. "file too short"
    is_fatal: bool = False  # at that file the process dies, without a word


@dataclass(frozen=True, slots=True)
class Closure:
    """What loads with `root`, in load order, and what is missing."""

    root: ElfFile
    objects: tuple[LoadedObject, ...]
    missing: tuple[MissingName, ...]
    not_preloaded: tuple[MissingName, ...] = ()  # why some of `preloaded` could not be opened: nothing of them stays
    ignored: tuple[MissingName, ...] = ()  # of LD_PRELOAD: the loader warns "cannot be preloaded" and goes on

    @property
    def interpreter(self) -> str:
        """The dynamic loader itself, which every process has and `objects` leaves out."""
        return interpreter_of(self.root)


def interpreter_of(file: ElfFile) -> str:
    """The loader a file runs under, e.g. /lib64/ld-linux-x86-64.so.2; '' for an arch without a known one."""
    return file.interpreter or _INTERPRETERS.get(file.arch, "")


class _Object:
    """A loaded object; `chain` starts with its file, then the file that asked for it, and ends with the program."""

    __slots__ = ("chain", "found", "name", "other_names", "requested_by")

    def __init__(self, name: str, found: Candidate, chain: tuple[ElfFile, ...]) -> None:
        self.name, self.found, self.chain = name, found, chain
        self.requested_by: list[str] = []
        self.other_names: list[str] = []

    @property
    def loaded(self) -> LoadedObject:
        return LoadedObject(self.name, self.chain[0], self.found, tuple(self.requested_by), tuple(self.other_names))


class _Process:
    """The objects of one process while it runs: grows as names are asked for."""

    def __init__(self, machine: Machine, setup: LoaderSetup, *, interpreter: str) -> None:
        self.machine, self.setup = machine, setup
        self.objects: list[_Object] = []
        self.missing: list[MissingName] = []
        self.ignored: list[MissingName] = []
        self._by_name: dict[str, _Object] = {}
        self._by_file: dict[str, _Object] = {}
        self._folders: dict[str, tuple[str, ...]] = {}
        self._interpreter = (interpreter, interpreter.rpartition("/")[2])

    def start(self, program: ElfFile) -> _Object:
        """The program is there first, and LD_PRELOAD behind it; then what both need."""
        found = Candidate(program.path, FoundBy.PATH, entry=program.path, owner="", arch=program.arch)
        first = self._add(_Object(program.path, found, (program,)), name=program.soname or program.path)
        self._by_file[self.machine.real_path(program.path)] = first
        self.preload(first.chain)
        self.load_needed(0)
        return first

    def preload(self, chain: tuple[ElfFile, ...]) -> None:
        """LD_PRELOAD: what cannot be opened is left out with a warning; what one of them needs has to be there."""
        for name in self.setup.preload:
            self.request(name, chain, requester=FoundBy.PRELOAD.value)
        self.ignored = [each for each in self.missing if not each.is_fatal]
        self.missing = [each for each in self.missing if each.is_fatal]

    def open(self, path: str, chain: tuple[ElfFile, ...]) -> _Object | None:
        """dlopen of a path by the program at the end of `chain`, with what it needs."""
        start = len(self.objects)
        found = self.request(path, chain, requester=DLOPEN)
        self.load_needed(start)
        return found

    def open_or_nothing(self, path: str, chain: tuple[ElfFile, ...]) -> tuple[MissingName, ...]:
        """The same as it really goes: where one name is missing, everything it brought in is taken out again."""
        names, files = dict(self._by_name), dict(self._by_file)
        count, gaps = len(self.objects), len(self.missing)
        self.open(path, chain)
        failed = tuple(self.missing[gaps:])
        if failed:
            gone = {item.chain[0].path for item in self.objects[count:]}
            self._by_name, self._by_file = names, files
            del self.objects[count:], self.missing[gaps:]
            for item in self.objects:
                item.requested_by = [path for path in item.requested_by if path not in gone]
        return failed

    def load_needed(self, start: int) -> None:
        """Walk the objects from `start` on, and those that come in meanwhile, breadth-first."""
        while start < len(self.objects) <= _MOST_OBJECTS:
            asking = self.objects[start]
            file = asking.chain[0]
            for name in (*file.needed, *file.filters):
                self.request(name, asking.chain, requester=file.path)
            gaps = len(self.missing)
            for name in file.auxiliary:
                self.request(name, asking.chain, requester=file.path)
            del self.missing[gaps:]  # nobody minds
            start += 1

    def request(self, name: str, chain: tuple[ElfFile, ...], *, requester: str) -> _Object | None:
        """One name, asked for by the first of `chain`: reused where it is loaded already, else searched."""
        name = expand(name, chain[0] if chain else None, setup=self.setup)
        if name in self._interpreter:
            return None
        loaded = self._by_name.get(name) or self._load(name, chain, requester=requester)
        if loaded is not None and requester not in loaded.requested_by:
            loaded.requested_by.append(requester)
        return loaded

    def _load(self, name: str, chain: tuple[ElfFile, ...], *, requester: str) -> _Object | None:
        candidates = walk(self.machine, self.setup, name=name, chain=chain, folders=self._folders)
        usable = (item for item in candidates if item.arch in (self.setup.arch, ""))
        found = next(usable, None)
        if found is None or found.rule is FoundBy.LATER_CACHE_ENTRY:
            self.missing.append(MissingName(name, requester, damaged=""))
            return None
        real = self.machine.real_path(found.path)
        same = self._by_file.get(real)  # the loader compares device and inode
        file = read_elf(self.machine, found.path) if found.arch and same is None else None
        if file is not None:
            same = self._hard_link_of(file)
        if same is not None:
            self._by_name[name] = same
            same.other_names.append(name)
            return same
        if file is None:
            self.missing.append(MissingName(name, requester, found.path, found.fault, found.is_fatal))
            return None
        loaded = self._add(_Object(name, found, (file, *chain)), name=name)
        for key in (found.path, file.soname or name):
            self._by_name.setdefault(key, loaded)
        self._by_file[real] = loaded
        return loaded

    def _add(self, item: _Object, *, name: str) -> _Object:
        self.objects.append(item)
        self._by_name[name] = item
        return item

    def _hard_link_of(self, file: ElfFile) -> _Object | None:
        """A loaded object that is this file under another path; only what reads the same is looked at."""
        for item in self.objects:
            other = item.chain[0]
            if other.soname == file.soname and other.needed == file.needed:
                one, two = self.machine.stat(other.path), self.machine.stat(file.path)
                if one is not None and one == two and one.inode > 1:  # rebuilt machines give every file inode 1
                    return item
        return None


def closure(
    machine: Machine, root: str, *, setup: LoaderSetup | None = None, preloaded: tuple[str, ...] = ()
) -> Closure | None:
    """What the loader loads for a program or library, e.g. for .../torch/lib/libtorch_python.so; None: no ELF file.

    The answer is that of ldd. The setup is the machine's own unless given. The interpreter (ld-linux-x86-64.so.2) is
    not listed. `preloaded` are files that the program has opened before, as torch/__init__.py does.
    """
    if preloaded:
        return closure_of_many(machine, (root,), setup=setup, preloaded=preloaded)
    program = read_elf(machine, root)
    if program is None:
        return None
    if program.interpreter:
        program = replace(program, path=machine.real_path(root))  # the kernel tells a program its resolved path
    process = _Process(machine, _setup_for(machine, setup, arch=program.arch), interpreter=interpreter_of(program))
    process.start(program)
    loaded = tuple(item.loaded for item in process.objects[1:])
    return Closure(program, loaded, tuple(process.missing), ignored=tuple(process.ignored))


def closure_of_many(
    machine: Machine,
    roots: tuple[str, ...],
    *,
    setup: LoaderSetup | None = None,
    preloaded: tuple[str, ...] = (),
    program: str = "",
) -> Closure | None:
    """What one process has loaded after it opened `preloaded`, then `roots`, by their paths; None: none is an ELF file.

    A preloaded file that lacks something is taken out again, as dlopen does; of a root everything missing is told.
    `program` is what opens them, e.g. /usr/bin/python3: its own libraries come first and its RPATH counts for all.
    The answer's root is the program, or else the first of `roots` that could be read; the others are objects.
    """
    main = read_elf(machine, machine.real_path(program)) if program else None
    first = main or next((file for file in (read_elf(machine, path) for path in roots) if file is not None), None)
    if first is None:
        return None
    setup = _setup_for(machine, setup, arch=first.arch)
    process = _Process(machine, setup, interpreter=interpreter_of(first))
    if main is not None:
        chain = _caller(process, process.start(main))
    else:
        chain = ()
        process.preload(chain)
        process.load_needed(0)
    refused = [missing for path in preloaded for missing in process.open_or_nothing(path, chain)]
    opened = [process.open(path, chain) for path in roots]
    root = process.objects[0] if main is not None else next((item for item in opened if item is not None), None)
    others = tuple(item.loaded for item in process.objects if item is not root)
    start = first if root is None else root.chain[0]
    return Closure(start, others, tuple(process.missing), tuple(refused), tuple(process.ignored))


def _caller(process: _Process, program: _Object) -> tuple[ElfFile, ...]:
    """Whose search paths count for what is opened: libpython where the interpreter is one, then the program."""
    found = next((item for item in process.objects if item.chain[0].soname.startswith("libpython")), program)
    return found.chain


def _setup_for(machine: Machine, setup: LoaderSetup | None, *, arch: str) -> LoaderSetup:
    """The setup that was given, or the machine's; with the folders of another arch where the file is of one."""
    if setup is None:
        return whole_setup(machine, arch=arch)
    if setup.arch == arch:
        return setup
    other = whole_setup(machine, arch=arch)
    return other._replace(library_path=setup.library_path, preload=setup.preload, cache=setup.cache)

"""The chain under a target: where each library comes from and why, what is missing, and what is not as it should be."""

from __future__ import annotations

import enum
import posixpath
import re

from firstlight.diagnosis.provider_choice import DRIVERS_OWN
from firstlight.elf.closure import DLOPEN, Closure, LoadedObject, MissingName, closure, closure_of_many
from firstlight.elf.loader import FoundBy, LoaderSetup, expand, loader_setup, search
from firstlight.elf.reader import ElfFile, read_elf
from firstlight.elf.torch_preload import torch_preloads
from firstlight.elf.version_gaps import VersionGap, version_gaps
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.libraries.target import FIRST_OF_TORCH, Surroundings, Target, TargetKind
from firstlight.libraries.wheel_machine import SHARED
from firstlight.machine.interface import Machine

# What every glibc system has; of another arch it cannot be looked up here, and is not judged.
BASE = (
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
    "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
)  # fmt: skip
# Libraries whose soname carries the CUDA major; libcufft.so.11 is of CUDA 12, so most others do not.
_MAJORS = r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|nvblas|nppc|nvjpeg)\.so\.(\d+)(?:\.\d+)*"
_SYSTEM = (FoundBy.CACHE, FoundBy.DEFAULT)


class Whose(enum.Enum):
    """Who a missing library would have to come from."""

    PACKAGE = "package"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A name and the file it leads to, e.g. libcudart.so.13 in nvidia/cu13/lib by DT_RPATH of libtorch_cuda.so."""

    name: str
    path: str
    rule: FoundBy
    entry: str
    owner: str  # the object whose search path it is, "" for none
    requested_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that leads nowhere, with everybody who asks for it."""

    name: str
    requested_by: tuple[str, ...]
    damaged: str  # the file at which the loader stops because it cannot be loaded, else ""
    whose: Whose
    reach: tuple[str, ...]  # folders that the first who asks has on its own search path, in order
    fault: str = ""  # what the loader says of the damaged file, e.g. "file too short"


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """A file that would be taken if the winner were not there."""

    path: str
    rule: FoundBy
    entry: str


@dataclass(frozen=True, slots=True)
class Shadow:
    """Two or more files for one name, and who wins; `exchanged`: a variable put the winner before the package's own."""

    name: str
    path: str
    rule: FoundBy
    entry: str
    others: tuple[OtherCopy, ...]
    requested_by: str

    @property
    def exchanged(self) -> bool:
        by_variable = self.rule in (FoundBy.LIBRARY_PATH, FoundBy.PRELOAD)
        return by_variable and any(
            each.rule not in (*_SYSTEM, FoundBy.LATER_CACHE_ENTRY, self.rule) for each in self.others
        )


@dataclass(frozen=True, slots=True)
class CudaMajor:
    """The libraries of one CUDA major in the chain, e.g. 12: libcudart.so.12 asked for by libfoo.so."""

    major: int
    names: tuple[str, ...]
    requested_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that was seen of a target's chain."""

    target: Target
    loaded: tuple[Loaded, ...]
    missing: tuple[Missing, ...]
    shadows: tuple[Shadow, ...]
    gaps: tuple[VersionGap, ...]
    majors: tuple[CudaMajor, ...]  # () unless there are two or more
    stubs: tuple[Loaded, ...]
    not_judged: tuple[str, ...]  # of the system, for another arch than this machine's; other_arch.py adds to it
    preloaded: tuple[str, ...]  # files that torch opens by path from Python
    ignored: tuple[MissingName, ...] = ()  # of LD_PRELOAD: the loader warns and goes on without them

    @property
    def sound(self) -> bool:
        """Whether the loader finds and accepts everything."""
        return not self.missing and not self.stubs and not any(not gap.weak for gap in self.gaps)

    @property
    def cuda_major(self) -> int | None:
        """The CUDA major that the chain's own names tell."""
        asked = [each.name for each in self.loaded] + [each.name for each in self.missing]
        found = [int(match[1]) for name in asked if (match := re.fullmatch(_MAJORS, name))]
        return found[0] if found else None


def analyse(around: Surroundings, target: Target) -> Analysis:
    """The chain of everything that the target opens, as the loader of its arch would build it."""
    machine = around.machine
    setup = _setup(machine, target.arch)
    parts = [_one(around, target, setup, opening) for opening in target.openings]
    found = [part for part, _ in parts]
    opened = {path for opening in target.openings for path in opening}
    loaded = _merged(found)
    foreign = target.arch != machine.host.arch
    missing = _missing(
        found,
        setup,
        preloads=around.preloads,
        loaded={name for each in loaded for name in (each.name, *each.other_names)},
    )
    return Analysis(
        target=target,
        loaded=tuple(_loaded(each) for each in loaded if each.file.path not in opened),
        missing=tuple(each for each in missing if not (foreign and each.name in BASE)),
        shadows=tuple(_shadows(machine, setup, found, loaded)),
        gaps=tuple(dict.fromkeys(gap for part in found for gap in version_gaps(machine, part))),
        majors=_majors(loaded, missing),
        stubs=tuple(_loaded(each) for each in loaded if _is_stub(machine, each)),
        not_judged=tuple(each.name for each in missing if foreign and each.name in BASE),
        preloaded=tuple(dict.fromkeys(path for _, paths in parts for path in paths)),
        ignored=tuple(dict.fromkeys(each for part in found for each in part.ignored)),
    )


def _setup(machine: Machine, arch: str) -> LoaderSetup:
    """This machine's loader; for another arch without what this machine's variables put in front."""
    setup = loader_setup(machine, arch=arch)
    return setup if arch == machine.host.arch else setup._replace(preload=())


def _one(
    around: Surroundings, target: Target, setup: LoaderSetup, opening: tuple[str, ...]
) -> tuple[Closure, tuple[str, ...]]:
    """One process of the environment's Python; where torch opens libraries by path before going on, with those."""
    machine = around.machine
    if target.kind is TargetKind.FILE and _is_program(machine, opening[-1]):
        found = closure(machine, opening[-1], setup=setup)
        assert found is not None, opening
        return found, ()
    program = around.interpreter if target.arch == machine.host.arch else ""
    preloads = around.preloads if program else ()
    if posixpath.basename(opening[0]) == FIRST_OF_TORCH:
        folder = posixpath.dirname(posixpath.dirname(opening[0]))
        preloads += torch_preloads(machine, folder, sys_path=around.sites, setup=setup, program=program)
    found = closure_of_many(machine, opening, setup=setup, program=program, preloaded=preloads)
    if found is None:
        raise BadInput(f"{opening[-1]}: not a readable ELF file.")
    return found, tuple(path for path in preloads if path != opening[0])


def _is_program(machine: Machine, path: str) -> bool:
    """Whether a file is started, not opened; libc.so.6 can be both and is a library here."""
    file = read_elf(machine, path)
    return file is not None and bool(file.interpreter) and not SHARED.search(posixpath.basename(path))


def _merged(found: list[Closure]) -> tuple[LoadedObject, ...]:
    """Each file once, under the name it was first asked by, with everybody who asks for it."""
    first: dict[str, LoadedObject] = {}
    askers: dict[str, dict[str, None]] = {}
    names: dict[str, dict[str, None]] = {}
    for each in (each for part in found for each in part.objects):
        first.setdefault(each.file.path, each)
        askers.setdefault(each.file.path, {}).update(dict.fromkeys(each.requested_by))
        names.setdefault(each.file.path, {}).update(dict.fromkeys(each.other_names))
    return tuple(
        LoadedObject(each.name, each.file, each.found, tuple(askers[path]), tuple(names[path]))
        for path, each in first.items()
    )


def _loaded(each: LoadedObject) -> Loaded:
    found = each.found
    return Loaded(each.name, each.file.path, found.rule, found.entry, found.owner, each.requested_by)


def _missing(
    found: list[Closure], setup: LoaderSetup, *, preloads: tuple[str, ...], loaded: set[str]
) -> tuple[Missing, ...]:
    """Each missing name once; torch's own preloading may fail, ours of firstlight-preload.pth may not."""
    askers: dict[str, dict[str, None]] = {}
    damaged: dict[str, MissingName] = {}
    for part in found:
        ours = tuple(each for each in part.not_preloaded if each.requested_by in preloads)
        for each in (*part.missing, *ours):
            askers.setdefault(each.name, {})[each.requested_by] = None
            if each.damaged:
                damaged.setdefault(each.name, each)
    chains = _Chains(found)
    return tuple(
        Missing(
            name=name,
            requested_by=tuple(asking),
            damaged=damaged[name].damaged if name in damaged else "",
            fault=damaged[name].fault if name in damaged else "",
            whose=Whose.DRIVER if name.startswith(DRIVERS_OWN) else Whose.PACKAGE,
            reach=_reach(chains.of(next(iter(asking))), setup),
        )
        for name, asking in askers.items()
        if name not in loaded or name in damaged
    )


def _reach(chain: tuple[ElfFile, ...], setup: LoaderSetup) -> tuple[str, ...]:
    """The folders that an object's RPATH or RUNPATH leads to, e.g. /opt/venv/lib/.../torch/lib; they need not exist."""
    found: dict[str, None] = {}
    requester = chain[0] if chain else None
    if requester is not None and requester.runpath:
        pairs = [(entry, requester) for entry in requester.runpath]
    else:
        pairs = [(entry, holder) for holder in chain if not holder.runpath for entry in holder.rpath]
    for entry, holder in pairs:
        folder = expand(entry, holder, setup=setup)
        if folder.startswith("/"):
            found[posixpath.normpath(folder)] = None
    return tuple(found)


class _Chains:
    """Who loaded whom: the requester, the object that loaded it, and so on to the program."""

    def __init__(self, found: list[Closure]) -> None:
        self._files = {each.file.path: each for part in reversed(found) for each in reversed(part.objects)}
        self._roots = {part.root.path: part.root for part in found}

    def of(self, path: str) -> tuple[ElfFile, ...]:
        """The chain that starts with the file at a path."""
        chain: list[ElfFile] = []
        while (here := self._files.get(path)) is not None and here.file not in chain:
            chain.append(here.file)
            path = here.requested_by[0] if here.requested_by else ""
        root = self._roots.get(path)
        if root is None and path == DLOPEN:
            root = next((each for each in self._roots.values() if each.interpreter), None)
        return (*chain, root) if root is not None else tuple(chain)


def _shadows(
    machine: Machine, setup: LoaderSetup, found: list[Closure], loaded: tuple[LoadedObject, ...]
) -> list[Shadow]:
    """Names for which more than one file lies on the way, links resolved."""
    chains = _Chains(found)
    shadows: list[Shadow] = []
    interpreters = {part.root.path for part in found if part.root.interpreter}
    for each in loaded:
        own = set(each.requested_by) <= interpreters  # libpython, which no target asks for
        if own or not each.requested_by or each.found.rule is FoundBy.PATH:
            continue
        winner = machine.real_path(each.file.path)
        met = {winner}
        others: list[OtherCopy] = []
        for other in search(machine, setup, name=each.name, chain=chains.of(each.requested_by[0])).candidates:
            real = machine.real_path(other.path)
            if real not in met and other.arch:
                met.add(real)
                others.append(OtherCopy(other.path, other.rule, other.entry))
        if others:
            where = each.found
            shadows.append(
                Shadow(each.name, each.file.path, where.rule, where.entry, tuple(others), each.requested_by[0])
            )
    return shadows


def _majors(loaded: tuple[LoadedObject, ...], missing: tuple[Missing, ...]) -> tuple[CudaMajor, ...]:
    names: dict[int, dict[str, None]] = {}
    askers: dict[int, dict[str, None]] = {}
    asked = [(each.name, each.requested_by) for each in loaded] + [(each.name, each.requested_by) for each in missing]
    for name, asking in asked:
        if match := re.fullmatch(_MAJORS, name):
            names.setdefault(int(match[1]), {})[name] = None
            askers.setdefault(int(match[1]), {}).update(dict.fromkeys(asking))
    if len(names) < 2:
        return ()
    return tuple(CudaMajor(major, tuple(names[major]), tuple(askers[major])) for major in sorted(names))


def _is_stub(machine: Machine, each: LoadedObject) -> bool:
    """A toolkit's stubs folder has libraries to link against that answer every call with an error."""
    return "/stubs/" in each.file.path or "/stubs/" in machine.real_path(each.file.path)


def cuda_major_of(around: Surroundings, analysis: Analysis) -> int | None:
    """The CUDA major that is meant: by the names in the chain, else by torch's own version file."""
    if analysis.cuda_major is not None:
        return analysis.cuda_major
    torch = around.torch
    if isinstance(torch, Known) and isinstance(torch.value.wheel_cuda, Known):
        return torch.value.wheel_cuda.value.major
    return None

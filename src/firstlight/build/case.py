"""One build to be judged: the request, the tree as read, the machine as seen."""

from __future__ import annotations

import os
from dataclasses import replace

from firstlight.build.archs import Arch, archs_here
from firstlight.build.backend import Backend
from firstlight.build.flags import Flag, FlagVerdict, JudgedFlag, Through, judge_flag
from firstlight.build.libraries_needed import NeededLibrary, feature_called, flag_of, is_on, needed_libraries
from firstlight.build.needs import Cuda, Needs, needs_of
from firstlight.build.project import Project
from firstlight.build.request import BuildRequest
from firstlight.build.seen_peaks import SeenPeak
from firstlight.build.source_reads import SourceReads
from firstlight.build.tools import BuildTools
from firstlight.build.torch_headers import folder_for_torch
from firstlight.diagnosis.toolkit_in_use import toolkit_in_use
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import Toolkit, toolkit_at
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.tables import Tables

_CUDA_SWITCHES = ("USE_CUDA", "FORCE_CUDA", "WITH_CUDA")


@dataclass(frozen=True, slots=True)
class BuildRoom:
    """The disk that the objects go to, e.g. 38 GB free at /workspace."""

    path: str
    free_bytes: Fact[int]


@dataclass(frozen=True, slots=True)
class BuildCase:
    """Everything that a build is judged by."""

    request: BuildRequest
    project: Project
    source: SourceReads
    facts: Facts
    tools: BuildTools
    tables: Tables
    judged: tuple[JudgedFlag, ...]
    archs: Fact[tuple[Arch, ...]]
    toolkit: Toolkit | None
    cuda: Cuda
    room: BuildRoom
    libraries: tuple[NeededLibrary, ...]
    turned_off: tuple[NeededLibrary, ...]  # on by default, without a library here, and not asked for
    needs: Needs

    @property
    def flags(self) -> tuple[Flag, ...]:
        return tuple(each.flag for each in self.judged)

    @property
    def beside_torch(self) -> Fact[str]:
        """The include folder that an extension's CUDA units need besides the toolkit's; "" = none."""
        if self.project.backend is not Backend.TORCH_EXTENSION or not self.cuda.compiled or self.toolkit is None:
            return Known("", seen_in="nothing here includes torch's CUDA headers")
        return folder_for_torch(self.tools.torch_headers, self.toolkit.include_folders)

    @property
    def unread(self) -> tuple[JudgedFlag, ...]:
        return tuple(each for each in self.judged if each.verdict is FlagVerdict.UNREAD)


@dataclass(frozen=True, slots=True)
class BuildPlace:
    """The machine that the build is for."""

    facts: Facts
    tools: BuildTools
    tables: Tables
    room: BuildRoom | None = None  # None = a saved machine, whose list of disks has to do
    seen: tuple[SeenPeak, ...] = ()  # when this build was at work there before


def case_of(request: BuildRequest, project: Project, source: SourceReads, machine: BuildPlace) -> BuildCase:
    """The request resolved against the tree and the machine; nothing is decided that was given."""
    flags = (
        *request.flags,
        *(flag_of(feature_called(name, "--with"), source, "1", "--with") for name in request.features_on),
        *(flag_of(feature_called(name, "--without"), source, "0", "--without") for name in request.features_off),
    )
    archs: Fact[tuple[Arch, ...]] = (
        Known(request.archs, seen_in="--archs") if request.archs else archs_here(machine.facts)
    )
    compiled = compiles_cuda(project, source, flags)
    cuda = Cuda(compiled, len(archs.value) if isinstance(archs, Known) else 1)
    needs = needs_of(project, machine.facts, machine.tables, asked=request.jobs, cuda=cuda, seen=machine.seen)
    libraries = needed_libraries(source, flags, machine.facts) if compiled else ()
    given = {flag.name for flag in flags}
    off = tuple(
        each
        for each in libraries
        if isinstance(each.found, Unknown) and not each.required and each.flag not in given
        and not _is_bundled(source.root, each.feature.library) and _gets_in(each.flag, source, project)
    )  # fmt: skip
    turned = tuple(Flag(each.flag, "0") for each in off)
    judged = tuple(judge_flag(flag, source, project.backend) for flag in (*flags, *turned))
    return BuildCase(
        request=request, project=project, source=source, facts=machine.facts, tools=machine.tools,
        tables=machine.tables, judged=judged,
        archs=archs if compiled else Unknown("nothing here is compiled for a GPU"),
        toolkit=_toolkit(request, machine.facts), cuda=cuda,
        room=machine.room or _room_of_saved(machine.facts, request.build_dir),
        libraries=tuple(each for each in libraries if each not in off), turned_off=off, needs=needs,
    )  # fmt: skip


def _gets_in(name: str, source: SourceReads, project: Project) -> bool:
    return judge_flag(Flag(name, "0"), source, project.backend).through is not Through.NONE


def _is_bundled(root: str, library: str) -> bool:
    """Whether the tree carries the library's own source, as PyTorch does NCCL's."""
    folder = os.path.join(root, "third_party", library)
    return os.path.isdir(folder) and bool(os.listdir(folder))


def compiles_cuda(project: Project, source: SourceReads, flags: tuple[Flag, ...]) -> bool:
    """Whether CUDA units are compiled: by the switch that the tree has, else because there are any."""
    given = {flag.name: flag.value for flag in flags}
    for name in _CUDA_SWITCHES:
        if name in given:
            return is_on(name, source, given)
    if source.of("USE_CUDA") and project.backend is not Backend.TORCH_EXTENSION:
        return is_on("USE_CUDA", source, given)
    if given.get("FORCE_ONLY_CPU", "0") not in ("0", ""):
        return False
    return project.units.cuda + project.units.heavy > 0


def _room_of_saved(facts: Facts, folder: str) -> BuildRoom:
    disks = sorted(facts.resources.disks, key=lambda each: len(each.path), reverse=True)
    for disk in disks:
        if disk.path == "/" or folder.startswith(disk.path.rstrip("/") + "/"):
            return BuildRoom(disk.path, Known(disk.free_bytes, seen_in=disk.path))
    return BuildRoom(folder or "/", Unknown("this machine does not tell how much is free"))


def with_toolkit(facts: Facts, machine: Machine, path: str) -> Facts:
    """The facts with the toolkit that --toolkit names, also where the machine's own search does not go."""
    found = toolkit_at(machine, os.path.abspath(path))
    if found is None:
        return facts
    others = tuple(each for each in facts.toolkits.toolkits if each.path != found.path)
    return replace(facts, toolkits=replace(facts.toolkits, toolkits=(found, *others)))


def _toolkit(request: BuildRequest, facts: Facts) -> Toolkit | None:
    if request.toolkit:
        wanted = os.path.abspath(request.toolkit)
        return next((each for each in facts.toolkits.toolkits if each.path == wanted or wanted in each.found_by), None)
    return toolkit_in_use(facts) or next(iter(facts.toolkits.toolkits), None)

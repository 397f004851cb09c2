"""What a build takes: jobs by memory and processors, disk; each figure with what it rests on."""

from __future__ import annotations

from firstlight.build.project import Project
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.build_rows import UnitKind, UnitMemory

GIB = 1 << 30
_LEAST_LEFT, _SHARE_LEFT = 1 * GIB, 0.1  # for everything else that runs
_GUESSED_OBJECT = {UnitKind.CXX: 1 << 20, UnitKind.CUDA: 4 << 20, UnitKind.ATTENTION: 8 << 20}
_LINKED = 1.5  # libraries and the wheel, beside the objects they are made of


@dataclass(frozen=True, slots=True)
class UnitNeed:
    """How many units of a kind there are, what one takes, how many run side by side, and who says so."""

    kind: UnitKind
    units: int
    peak_bytes: int
    jobs: int
    basis: str


@dataclass(frozen=True, slots=True)
class Needs:
    """Jobs by kind of unit, what bounds them, and the disk."""

    by_kind: tuple[UnitNeed, ...]
    jobs: int  # for everything at once, where the kinds cannot be told apart
    bound_by: str
    disk_bytes: int
    disk_basis: str


def needs_of(project: Project, facts: Facts, tables: Tables, *, asked: int, cuda: Cuda) -> Needs:
    """Jobs and disk for a project on a machine; `asked` is --jobs, 0 = none."""
    counts = {UnitKind.CXX: project.units.cxx}
    if cuda.compiled:
        counts |= {UnitKind.CUDA: project.units.cuda, UnitKind.ATTENTION: project.units.heavy}
    memory = memory_for_jobs(facts)
    processors = facts.resources.processors
    cores = max(1, int(processors.value)) if isinstance(processors, Known) else 1
    found = []
    for kind, units in counts.items():
        if units:
            row = tables.memory_of(kind, project.name.lower().replace("_", "-"))
            found.append(_need(kind, units, row, memory=memory, cores=cores, asked=asked))
    kinds = tuple(found)
    jobs = min((each.jobs for each in kinds), default=min(cores, asked or cores))
    disk, basis = _disk(project, kinds, archs=max(1, cuda.archs), tables=tables)
    return Needs(kinds, jobs, _bound(asked, memory, cores, processors), disk, basis)


@dataclass(frozen=True, slots=True)
class Cuda:
    """Whether CUDA units are compiled, and for how many architectures."""

    compiled: bool
    archs: int


def memory_for_jobs(facts: Facts) -> Fact[int]:
    """What compilers may take: the free memory or the cgroup's limit, less what everything else needs."""
    resources = facts.resources
    known = [
        each
        for each in (resources.memory_available_bytes, resources.memory_limit_bytes, resources.memory_bytes)
        if isinstance(each, Known)
    ]
    if not known:
        return Unknown("the memory of this machine is not known")
    least = min(known, key=lambda each: each.value)
    return Known(least.value - max(_LEAST_LEFT, int(least.value * _SHARE_LEFT)), seen_in=least.seen_in)


def _need(kind: UnitKind, units: int, row: UnitMemory, *, memory: Fact[int], cores: int, asked: int) -> UnitNeed:
    fitting = max(1, memory.value // row.peak_bytes) if isinstance(memory, Known) else 1
    about = f"{row.project or 'any project'}, {row.confidence.value}: {row.source}"
    return UnitNeed(kind, units, row.peak_bytes, asked or min(cores, int(fitting)), about)


def _bound(asked: int, memory: Fact[int], cores: int, processors: Fact[float]) -> str:
    if asked:
        return f"--jobs {asked}"
    held = (
        f"{memory.value / GIB:.1f} GiB for compilers ({memory.seen_in}, less what the rest needs)"
        if isinstance(memory, Known)
        else f"one job: {memory.reason}"
    )
    many = f"{cores} processors" if isinstance(processors, Known) else f"one processor: {processors.reason}"
    return f"{held}; {many}"


def _disk(project: Project, kinds: tuple[UnitNeed, ...], *, archs: int, tables: Tables) -> tuple[int, str]:
    """Tree, objects, libraries and wheel: measured per unit where a row has it, else guessed and said so."""
    objects, guessed = 0, False
    for each in kinds:
        row = tables.memory_of(each.kind, project.name.lower().replace("_", "-"))
        size = row.object_bytes or _GUESSED_OBJECT[each.kind]
        guessed = guessed or not row.object_bytes
        objects += each.units * size * (archs if each.kind is not UnitKind.CXX else 1)
    total = int(project.tree_bytes + objects * (1 + _LINKED))
    units = sum(each.units for each in kinds)
    how = "assumed" if guessed else "measured"
    counted = "1 unit" if units == 1 else f"{units} units"
    basis = (
        f"tree {project.tree_bytes / GIB:.2f} GiB as counted; objects of {counted} {objects / GIB:.2f} GiB ({how} "
        f"per unit{', each architecture counted' if archs > 1 else ''}); libraries and wheel "
        f"{objects * _LINKED / GIB:.2f} GiB (assumed: 1.5 times the objects)"
    )
    return total, basis

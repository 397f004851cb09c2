"""What a build takes: jobs by memory and processors, disk; each figure with what it rests on."""

from __future__ import annotations

from firstlight.build.project import Project
from firstlight.build.seen_peaks import SeenPeak
from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.build_rows import UnitKind, UnitMemory
from firstlight.ways.compile_jobs import GIB, bound_by, jobs_for, memory_for_jobs, processors_for_jobs

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
    disk_least_bytes: int  # without what is only assumed
    disk_basis: str


def needs_of(
    project: Project, facts: Facts, tables: Tables, *, asked: int, cuda: Cuda, seen: tuple[SeenPeak, ...] = ()
) -> Needs:
    """Jobs and disk for a project on a machine; `asked` is --jobs, 0 = none; `seen` goes before the table's peaks."""
    counts = {UnitKind.CXX: project.units.cxx}
    if cuda.compiled:
        counts |= {UnitKind.CUDA: project.units.cuda, UnitKind.ATTENTION: project.units.heavy}
    memory = memory_for_jobs(facts)
    cores = processors_for_jobs(facts)
    found = []
    for kind, units in counts.items():
        if units:
            row = tables.memory_of(kind, project.name.lower().replace("_", "-"))
            peak = _peak(row, next((each for each in seen if each.kind is kind), None))
            jobs = asked or jobs_for(peak.bytes, memory, cores)
            found.append(UnitNeed(kind, units, peak.bytes, jobs, peak.basis))
    kinds = tuple(found)
    jobs = min((each.jobs for each in kinds), default=min(cores, asked or cores))
    disk = _disk(project, kinds, archs=max(1, cuda.archs), tables=tables)
    bound = f"--jobs {asked}" if asked else bound_by(memory, facts.resources.processors, cores)
    return Needs(kinds, jobs, bound, disk.bytes, disk.least_bytes, disk.basis)


@dataclass(frozen=True, slots=True)
class Cuda:
    """Whether CUDA units are compiled, and for how many architectures."""

    compiled: bool
    archs: int


@dataclass(frozen=True, slots=True)
class _Peak:
    bytes: int
    basis: str


def _peak(row: UnitMemory, seen: SeenPeak | None) -> _Peak:
    """What one unit takes: as seen here where that is more than the table says, or most units were seen."""
    if seen is not None and (seen.speaks_for_all or seen.bytes > row.peak_bytes):
        return _Peak(seen.bytes, f"measured here: the most of {seen.units} of {seen.of} units of this build")
    return _Peak(row.peak_bytes, f"{row.project or 'any project'}, {row.confidence.value}: {row.source}")


@dataclass(frozen=True, slots=True)
class _Disk:
    bytes: int
    least_bytes: int
    basis: str


def _disk(project: Project, kinds: tuple[UnitNeed, ...], *, archs: int, tables: Tables) -> _Disk:
    """Tree, objects, libraries and wheel: measured per unit where a row has it, else guessed and said so."""
    objects, measured = 0, 0
    for each in kinds:
        row = tables.memory_of(each.kind, project.name.lower().replace("_", "-"))
        times = each.units * (archs if each.kind is not UnitKind.CXX else 1)
        measured += times * row.object_bytes
        objects += times * (row.object_bytes or _GUESSED_OBJECT[each.kind])
    units = sum(each.units for each in kinds)
    how = "measured" if measured == objects else "assumed"
    counted = "1 unit" if units == 1 else f"{units} units"
    basis = (
        f"tree {_size(project.tree_bytes)} as counted; objects of {counted} {_size(objects)} ({how} "
        f"per unit{', each architecture counted' if archs > 1 else ''}); libraries and wheel "
        f"{_size(objects * _LINKED)} (assumed: 1.5 times the objects)"
    )
    return _Disk(int(project.tree_bytes + objects * (1 + _LINKED)), project.tree_bytes + measured, basis)


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"

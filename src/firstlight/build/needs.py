"""What a build takes: jobs by memory and processors, disk; each figure with what it rests on."""

from __future__ import annotations

from firstlight.build.project import Project
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact
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
    disk_basis: str


def needs_of(project: Project, facts: Facts, tables: Tables, *, asked: int, cuda: Cuda) -> Needs:
    """Jobs and disk for a project on a machine; `asked` is --jobs, 0 = none."""
    counts = {UnitKind.CXX: project.units.cxx}
    if cuda.compiled:
        counts |= {UnitKind.CUDA: project.units.cuda, UnitKind.ATTENTION: project.units.heavy}
    memory = memory_for_jobs(facts)
    cores = processors_for_jobs(facts)
    found = []
    for kind, units in counts.items():
        if units:
            row = tables.memory_of(kind, project.name.lower().replace("_", "-"))
            found.append(_need(kind, units, row, memory=memory, cores=cores, asked=asked))
    kinds = tuple(found)
    jobs = min((each.jobs for each in kinds), default=min(cores, asked or cores))
    disk, basis = _disk(project, kinds, archs=max(1, cuda.archs), tables=tables)
    bound = f"--jobs {asked}" if asked else bound_by(memory, facts.resources.processors, cores)
    return Needs(kinds, jobs, bound, disk, basis)


@dataclass(frozen=True, slots=True)
class Cuda:
    """Whether CUDA units are compiled, and for how many architectures."""

    compiled: bool
    archs: int


def _need(kind: UnitKind, units: int, row: UnitMemory, *, memory: Fact[int], cores: int, asked: int) -> UnitNeed:
    about = f"{row.project or 'any project'}, {row.confidence.value}: {row.source}"
    return UnitNeed(kind, units, row.peak_bytes, asked or jobs_for(row.peak_bytes, memory, cores), about)


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

"""How long compiling may take, before anything of it was measured here: units, seconds by kind, jobs; the basis."""

from __future__ import annotations

from firstlight.build.backend import Backend
from firstlight.build.case import BuildCase
from firstlight.facts.known import Fact, Known, Origin, Unknown
from firstlight.tables.build_rows import UnitKind
from firstlight.tables.cost_rows import Work
from firstlight.ways.names import normal

NO_RATE: Fact[float] = Unknown("--rate was not given")
# Projects of which somebody told how long the whole takes: many sources of their trees are for other machines.
_WHOLE = {"torch": Work.COMPILE_TORCH, "flash-attn": Work.COMPILE_FLASH_ATTN}


def compile_seconds(case: BuildCase) -> Fact[float]:
    """Seconds of compiling with the jobs of this plan, as an assumption that says what it rests on."""
    if case.request.only:
        return Unknown(f"how many units {case.request.only} has is known after configuring")
    name = normal(case.project.name)
    if name in _WHOLE and case.cuda.compiled:
        row = case.tables.duration(_WHOLE[name])
        jobs = max(1, case.needs.jobs)
        basis = f"the whole of {name} takes {row.seconds:.0f} s of one processor ({row.confidence.value}: {row.source})"
        return Known(row.seconds / jobs, f"{basis}, {_at_a_time(jobs)}", Origin.ASSUMED)
    if not case.needs.by_kind:
        return Unknown("no source files were counted")
    total, said = 0.0, []
    archs = max(1, case.cuda.archs)
    for each in case.needs.by_kind:
        row_of = case.tables.seconds_of(each.kind, name)
        times = archs if each.kind is not UnitKind.CXX else 1
        jobs = each.jobs if _parallel(case) else 1
        total += each.units * row_of.seconds * times / jobs
        whose = row_of.project or "any project"
        more = f" for each of {archs} architectures" if times > 1 else ""
        files = "file" if each.units == 1 else "files"
        said.append(
            f"{each.units} {each.kind.value} source {files} of {row_of.seconds:.0f} s{more} "
            f"({whose}, {row_of.confidence.value}), {_at_a_time(jobs)}"
        )
    return Known(total, "; ".join(said), Origin.ASSUMED)


def _parallel(case: BuildCase) -> bool:
    """Whether units run side by side at all; setuptools alone, or without ninja, takes one after the other."""
    backend = case.project.backend
    return backend is not Backend.SETUPTOOLS and not (
        backend is Backend.TORCH_EXTENSION and not case.project.uses_ninja
    )


def _at_a_time(jobs: int) -> str:
    return "one at a time" if jobs == 1 else f"{jobs} at a time"

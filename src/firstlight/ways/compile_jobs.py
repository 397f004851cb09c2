"""How many units compile side by side: by the memory that is left for compilers, what a unit takes, the processors."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.tables import Tables
from firstlight.tables.build_rows import UnitKind

GIB = 1 << 30
_LEAST_LEFT, _SHARE_LEFT = 1 * GIB, 0.1  # for everything else that runs


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


def processors_for_jobs(facts: Facts) -> int:
    known = facts.resources.processors
    return max(1, int(known.value)) if isinstance(known, Known) else 1


def jobs_for(peak_bytes: int, memory: Fact[int], cores: int) -> int:
    """How many units of that size fit, e.g. 6; one where the memory is not known."""
    fitting = max(1, memory.value // peak_bytes) if isinstance(memory, Known) else 1
    return min(cores, int(fitting))


def bound_by(memory: Fact[int], processors: Fact[float], cores: int) -> str:
    """What the number of jobs rests on, in words."""
    held = (
        f"{memory.value / GIB:.1f} GiB for compilers ({memory.seen_in}, less what the rest needs)"
        if isinstance(memory, Known)
        else f"one job: {memory.reason}"
    )
    many = f"{cores} processors" if isinstance(processors, Known) else f"one processor: {processors.reason}"
    return f"{held}; {many}"


def jobs_in_words(project: str, facts: Facts, tables: Tables) -> str:
    """Jobs: c++ 13 at a time (2.0 GiB each), cuda 8 at a time (4.0 GiB each); 28.0 GiB for compilers; 16 processors."""
    memory, cores = memory_for_jobs(facts), processors_for_jobs(facts)
    peaks = {kind.value: tables.memory_of(kind, project).peak_bytes for kind in UnitKind}
    if isinstance(memory, Unknown):
        each = ", ".join(f"{name} {peak / GIB:.1f} GiB" for name, peak in peaks.items())
        return f"Jobs: as many as memory and processors allow, which are not known here ({each} for a unit)"
    many = (
        f"{name} {jobs_for(peak, memory, cores)} at a time ({peak / GIB:.1f} GiB each)" for name, peak in peaks.items()
    )
    return f"Jobs: {', '.join(many)}; {bound_by(memory, facts.resources.processors, cores)}"

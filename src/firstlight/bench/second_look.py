"""A second look at two runs: which cases are run again, by which command, and what their verdicts become."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from firstlight.bench.compare import CaseChange, Comparison
from firstlight.bench.results import RunResult, Verdict
from firstlight.bench.statistics import Change

PASSES_AGAIN = 5
SECOND_LOOK_S = 60.0  # so that a standard run with a second look stays a matter of minutes
MOST_NAMED = 4  # cases that a command names; of more it names the families
# A result file comes from anybody, and what is printed is pasted: only what `bench` itself writes there is repeated.
_KEPT = re.compile(r"--device=(cpu|all|cuda(:\d{1,3})?)|--no-compile|--strict|[^-].{0,200}\.(py|cu)")


def needs_second_look(comparison: Comparison) -> tuple[CaseChange, ...]:
    """The figures to run again: those that changed, unclear ones that passes can clear up, and unsteady ones.

    Where the base is the unsteady side, no further run of the new code helps.
    """
    changed = [case for case in comparison.cases if case.change in (Change.SLOWER, Change.FASTER)]
    shaky = [case for case in comparison.unsteady if not case.unsteady_base]
    return (*changed, *comparison.unsettled, *shaky)


def repeated(run: RunResult, *, effort: str, only: tuple[str, ...], out: str) -> tuple[str, ...]:
    """The command of a run with another choice of cases: ('firstlight', 'bench', 'mine.py', '--device=cpu', ...)."""
    kept = [word for word in run.run.argv[1:] if _KEPT.fullmatch(word)]
    chosen = ("--only", ",".join(only)) if only else ()
    return ("firstlight", "bench", *kept, "--effort", effort, *chosen, "--out", out)


def named(cases: Iterable[CaseChange]) -> tuple[str, ...]:
    """What --only takes to choose cases: their ids, of many their families."""
    found = tuple(cases)
    ids = tuple(dict.fromkeys(case.id for case in found))
    return ids if len(ids) <= MOST_NAMED else tuple(dict.fromkeys(case.family for case in found))


def second_look_ids(comparison: Comparison, run: RunResult) -> tuple[str, ...]:
    """The cases to run again, changed ones first, as many as fit the time: at the pace of the run, five passes each."""
    spent_s = run.run.gpu_seconds or run.run.wall_seconds or 0.0
    steps = run.run.passes * sum(case.verdict is Verdict.OK for case in run.cases)
    ids = list(dict.fromkeys(case.id for case in needs_second_look(comparison)))
    affordable = len(ids) if spent_s <= 0 else int(SECOND_LOOK_S / (PASSES_AGAIN * spent_s / max(1, steps)))
    return tuple(ids[: max(1, affordable)])


def with_second_look(first: Comparison, again: Comparison) -> Comparison:
    """The first comparison with the verdicts of a second look at some of its figures.

    An unclear figure takes the second verdict; a change that is not confirmed becomes unclear.
    """
    if again.refused:
        return replace(first, refused=again.refused)
    second = {(case.id, case.gpu, case.regime): case for case in again.cases}
    cases = [_confirmed(case, second.get((case.id, case.gpu, case.regime))) for case in first.cases]
    return replace(first, cases=tuple(cases), looks=first.looks + 1)


def _confirmed(first: CaseChange, second: CaseChange | None) -> CaseChange:
    if second is None or first.change is Change.SAME:
        return first
    if first.change in (Change.UNCLEAR, second.change):
        return second
    return replace(
        second, change=Change.UNCLEAR, cause=None, note=f"first {first.change.value}, then {second.change.value}"
    )

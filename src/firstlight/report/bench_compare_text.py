"""A comparison of two runs as plain text and as a JSON document (schema firstlight.compare/1)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from firstlight import __version__
from firstlight.bench.between_processes import SPREADS
from firstlight.bench.compare import CaseChange, Cause, Comparison, FamilyChange, Lost
from firstlight.bench.results import RunResult
from firstlight.bench.second_look import named, needs_second_look, repeated
from firstlight.bench.statistics import Change
from firstlight.numerals import counted
from firstlight.records import encode

if TYPE_CHECKING:
    from firstlight.report.documents.measuring import ComparedRun

SCHEMA = "firstlight.compare/1"
_BASE_AGAIN = "base-again.json"
_NEW_AGAIN = "new-again.json"
_MOST_UNCLEAR = 12
_MARGIN_STEP_PCT = 5  # of a margin that is proposed
_MEANING = {
    Cause.CLOCK: "clock: the same number of cycles, at another clock (power or heat)",
    Cause.SOFTWARE: "software: another number of clock cycles",
    Cause.MEMORY_CLOCK: "memory clock: the memory ran at another clock",
    Cause.MEMORY: "memory or software: bound by memory, and the memory clock is the same",
    Cause.LINK: "link or software",
    Cause.HOST: "host or software: the time of the CPU is in it",
    Cause.NOT_CERTAIN: "not certain: the clocks do not tell",
}


def compare_text(
    comparison: Comparison, base: RunResult, new: RunResult, code: int, *, again: tuple[str, ...] = ()
) -> str:
    """The comparison for people: what changed first, then what could not be told, then the rest in one line.

    `again` is the command that compared, firstlight bench compare BASE NEW ..., to be repeated with a second look or
    with another base; () where there is none to paste.
    """
    lines = [line for name, run in (("base", base), ("new", new)) for line in _run_lines(name, run)]
    lines += [f"differs  {label.what}: {label.base} -> {label.new}" for label in comparison.labels]
    lines.append("")
    if comparison.refused:
        lines += ["The two runs cannot be compared:", *(f"  {reason}" for reason in comparison.refused), ""]
        return "\n".join([*lines, f"exit code {code}: not comparable"]) + "\n"
    for change, heading in ((Change.SLOWER, "slower"), (Change.FASTER, "faster")):
        cases = sorted((case for case in comparison.cases if case.change is change), key=_badness)
        lines += _block(heading, (line for case in cases for line in _changed_lines(case)))
    lines += _block("broken in the new run", (_lost_line(lost) for lost in comparison.broken))
    lines += _block("not steady: no verdict", (_shaky_line(case) for case in comparison.unsteady))
    lines += _unclear_lines(comparison)
    lines += _block("no verdict: two runs of the same code differ by more than the margin", _wide_lines(comparison))
    lines += _block("not compared", _not_compared(comparison))
    lines += _block("families, new time over base time (95 % interval)", _family_lines(comparison.families))
    advice = _advice(comparison, base, new, again)
    return "\n".join([*lines, _summary(comparison), _outcome(comparison, code), *advice]) + "\n"


def compare_document(comparison: Comparison, base: RunResult, new: RunResult, code: int) -> dict[str, Any]:
    """The document, schema first; ratio is new time over base time."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "exit_code": code,
        "comparable": not comparison.refused,
        "counts": {change.value: comparison.count(change) for change in Change},
        **encode(comparison),
        "base": _run_document(base),
        "new": _run_document(new),
    }


def _run_lines(name: str, run: RunResult) -> Iterator[str]:
    yield f"{name:<9}{_run_line(run)}"
    yield from (f"{'':<9}{sentence}" for sentence in run.health.contention)


def _run_line(run: RunResult) -> str:
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in run.gpus)) or run.host.cpu or "CPU"
    passes = "1 pass" if run.run.passes == 1 else f"{run.run.passes} passes"
    return f"{run.run.started}  {gpus}, torch {run.software.torch or 'not known'}, {passes}"


def _run_document(run: RunResult) -> ComparedRun:
    return {
        "id": run.run.id,
        "started": run.run.started,
        "gpus": [gpu.name for gpu in run.gpus],
        "torch": run.software.torch,
        "driver": run.software.driver,
        "passes": run.run.passes,
    }


def _block(heading: str, lines: Iterable[str]) -> Iterator[str]:
    body = list(lines)
    if body:
        yield heading
        yield from (f"  {line}" for line in body)
        yield ""


def _changed_lines(case: CaseChange) -> Iterator[str]:
    span = "" if case.ci95 is None else f" ({_percent(case.ci95[0])} to {_percent(case.ci95[1])} %)"
    yield f"{_name(case)}  {_seconds(case.base_s)} -> {_seconds(case.new_s)}  {_percent(case.ratio)} %{span}"
    if case.cause is not None:
        cycles = "" if case.cycle_ratio is None else f"; in cycles {_percent(case.cycle_ratio)} %"
        yield f"    {_MEANING[case.cause]}{cycles}"


def _unclear_lines(comparison: Comparison) -> Iterator[str]:
    cases = comparison.unsettled
    shown = sorted(cases, key=_badness)[:_MOST_UNCLEAR]
    lines = [_unclear_line(case) for case in shown]
    if len(cases) > len(shown):
        lines.append(f"and {len(cases) - len(shown)} more; --json has all of them")
    yield from _block("unclear: neither a change nor its absence is sure", lines)


def _wide_lines(comparison: Comparison) -> Iterator[str]:
    """One line for each kind of case that no number of passes in one process can judge at this margin."""
    unclear = [case for case in comparison.cases if case.change is Change.UNCLEAR and not case.is_unsteady]
    for row in SPREADS:
        cases = [case for case in unclear if case.kind is row.kind and not case.can_settle(comparison.margin)]
        if cases:
            least = min((case.smallest for case in cases if case.smallest is not None), default=None)
            reach = "" if least is None else f"; a change of {100 * least:.0f} % and more would be"
            worst = min(cases, key=_badness)
            yield (
                f"{counted(len(cases), 'figure')}, by about {100 * row.spread:.1f} %: {row.why}{reach} "
                f"(largest here {_percent(worst.ratio)} %, {worst.id})"
            )


def _shaky_line(case: CaseChange) -> str:
    sides = (("base", case.unsteady_base), ("new", case.unsteady_new))
    why = "; ".join(f"{name}: {reason}" for name, reason in sides if reason)
    return f"{_name(case)}  {_seconds(case.base_s)} -> {_seconds(case.new_s)}  {why}"


def _unclear_line(case: CaseChange) -> str:
    span = "" if case.ci95 is None else f" ({_percent(case.ci95[0])} to {_percent(case.ci95[1])} %)"
    smallest = "" if case.smallest is None else f"; could have found {100 * case.smallest:.1f} %"
    why = f"; {case.note}" if case.note else smallest
    return f"{_name(case)}  {_percent(case.ratio)} %{span}{why}"


def _not_compared(comparison: Comparison) -> Iterator[str]:
    yield from (_lost_line(lost) for lost in comparison.lost if lost not in comparison.broken)
    for where, ids in (("base", comparison.only_in_base), ("new run", comparison.only_in_new)):
        if ids:
            named = ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")
            yield f"only in the {where}: {named}"


def _lost_line(lost: Lost) -> str:
    return f"{lost.id}  {lost.base} -> {lost.new}: {lost.reason}"


def _family_lines(families: Iterable[FamilyChange]) -> Iterator[str]:
    for family in families:
        span = "" if family.ci95 is None else f" ({family.ci95[0]:.3f} to {family.ci95[1]:.3f})"
        yield (
            f"{family.family:<14}{family.regime.value:<11}{family.ratio:.3f}{span}, {counted(family.figures, 'figure')}"
        )


def _summary(comparison: Comparison) -> str:
    parts = [f"{comparison.count(change)} {change.value}" for change in Change]
    return f"{counted(len(comparison.cases), 'figure')}: {', '.join(parts)}; margin {100 * comparison.margin:g} %"


def _outcome(comparison: Comparison, code: int) -> str:
    return f"exit code {code}: {_meaning(comparison, code)}"


def _meaning(comparison: Comparison, code: int) -> str:
    told = len(comparison.cases) - comparison.count(Change.UNCLEAR)
    if comparison.count(Change.SLOWER):
        return "slower than the base"
    if comparison.broken:
        return "the new run has cases that are failed, invalid or impossible"
    if comparison.identical and comparison.cases:
        return "both files hold the same run, so nothing differs"
    if comparison.tells_nothing:
        return "no verdict: no figure is clear" if comparison.cases else "no figure is in both runs"
    if comparison.has_open_ends and code:
        return "not all is clear, and --strict wants that"
    if told < len(comparison.cases):
        return f"no regression in {counted(told, 'figure')}; {len(comparison.cases) - told} have no verdict"
    return "no regression, but not every case was compared" if comparison.has_open_ends else "no regression"


def _advice(comparison: Comparison, base: RunResult, new: RunResult, again: tuple[str, ...]) -> Iterator[str]:
    """What would tell more, as commands: more passes, the base measured anew, or a wider margin."""
    if comparison.looks > 1 or comparison.identical:
        return
    if shaky := [case for case in comparison.unsteady if case.unsteady_base]:
        yield from _measured_anew(shaky, base, new, again)
    if cases := needs_second_look(comparison):
        yield "\nA second look confirms changes and settles what is unclear:"
        yield _pasted(repeated(new, effort="rigorous", only=named(cases), out="again.json"))
        if again:
            yield _pasted((*again, "--again", "again.json"))
    elif not shaky and comparison.tells_nothing and again and (margin := _wider(comparison)):
        yield f"\nTwo runs of the same code differ too much for this margin. To ask for changes above {margin}:"
        yield _pasted((*again, "--margin", margin))


def _measured_anew(shaky: list[CaseChange], base: RunResult, new: RunResult, again: tuple[str, ...]) -> Iterator[str]:
    """The commands that measure the base again, or both runs where the new one is no steadier, and compare then."""
    both = [case for case in shaky if case.unsteady_new]
    if both:
        yield "\nNeither run is steady. Measure both again while the machine is quiet, the base with its own code:"
    else:
        yield "\nThe base is not steady. Measure it again while the machine is quiet, with the code of that run:"
    yield _pasted(repeated(base, effort="rigorous", only=named(shaky), out=_BASE_AGAIN))
    if both:
        yield _pasted(repeated(new, effort="rigorous", only=named(shaky), out=_NEW_AGAIN))
    if again:
        new_file = (_NEW_AGAIN,) if both else again[4:5]
        yield _pasted((*again[:3], _BASE_AGAIN, *new_file, *again[5:]))  # in the place of those that were given


def _wider(comparison: Comparison) -> str:
    """The margin at which about half of the figures could be told, e.g. '55%'; '' where none below 100 % would do."""
    reach = [case.smallest for case in comparison.cases if case.smallest is not None]
    percent = _MARGIN_STEP_PCT * math.ceil(100 * median(reach) / _MARGIN_STEP_PCT) if reach else 100
    return f"{percent}%" if percent < 100 else ""


def _pasted(words: Iterable[str]) -> str:
    return f"  {shlex.join(words)}"


def _badness(case: CaseChange) -> float:
    return -abs(case.ratio - 1)


def _name(case: CaseChange) -> str:
    return f"{case.id} [{case.regime.value}]" + (f" gpu {case.gpu}" if case.gpu > 0 else "")


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"

"""A run on a screen: one line per figure, what was skipped and why, and whether the card looks healthy."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.judgement import RunJudgement, judged
from firstlight.bench.limits import limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.bench.steady import NOT_STEADY, PUT_OFF, unsteady
from firstlight.numerals import DASH, counted, percent_text
from firstlight.report.bench_cells import environment_rows, flag_words, rate_text, spread_text, time_text
from firstlight.report.bench_normal import normal_lines
from firstlight.report.layout import labelled
from firstlight.tables import Tables

_HEAD = ("case", "time", "+-", "rate", "of limit", "tier", "notes")
_SAID = ("cases", "machine", "not-measured")  # notes of a row, "normal?", and the lines of problems say it
_QUIET_FLAGS = ("algorithmic", NOT_STEADY, PUT_OFF)  # the last two are said in words


def bench_text(run: RunResult, tables: Tables) -> str:
    """The whole run as text; ends with one sentence."""
    parts = [labelled(name, (value,)) for name, value in environment_rows(run)]
    parts += ["\n", _table(run), "\n"]
    parts += [labelled("normal?", (line,)) for line in normal_lines(run, tables)]
    parts += [*_problems(run), *judgement_lines(judged(run, tables)), _closing(run)]
    return "".join(parts)


def judgement_lines(judgement: RunJudgement) -> Iterator[str]:
    """The verdict, and what deserves a look and stands in no line of its own yet."""
    for thing in judgement.things:
        if thing.anchor not in _SAID:
            yield labelled("look at", (f"{thing.title}: {thing.saw}",))
    yield labelled("verdict", (judgement.sentence,))


def _table(run: RunResult) -> str:
    rows = [row for case in run.cases for row in _rows(case, run)]
    if not rows:
        return "no case has a figure\n"
    # limits and tiers are a GPU's: a column that no row fills is left out
    filled = [place for place in range(len(_HEAD)) if place < 4 or any(row[place] not in ("", DASH) for row in rows)]
    widths = {place: max(len(row[place]) for row in (_HEAD, *rows)) for place in filled}
    lines = []
    for row in (_HEAD, *rows):
        cells = (
            row[place].ljust(width) if place in (0, 6) else row[place].rjust(width) for place, width in widths.items()
        )
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _rows(case: CaseResult, run: RunResult) -> Iterator[tuple[str, ...]]:
    where = f" [gpu {case.gpu}]" if len(run.gpus) > 1 and case.family != "collective" else ""
    shown = case.shown
    if shown is None or case.verdict is not Verdict.OK:
        return
    yield _row(f"{case.id}{where}", case, shown)
    for figure in case.figures:
        if figure is not shown:
            yield _row(f"  {figure.regime.value}", case, figure)


def _row(name: str, case: CaseResult, figure: Figure) -> tuple[str, ...]:
    _, share = limit_of_interest(figure.limit)
    return (
        name,
        time_text(figure.time_s.median),
        spread_text(figure.time_s),
        rate_text(case, figure),
        percent_text(share),
        figure.tier or DASH,
        ", ".join(_notes(case, figure)),
    )


def _notes(case: CaseResult, figure: Figure) -> Iterator[str]:
    if len(case.figures) > 1 and figure is case.shown:
        yield figure.regime.value
    if case.mode == "host":
        yield "host time"
    if why := unsteady(case, figure):
        yield f"not steady: {why}"
    if case.launch_bound is not None and case.launch_bound > 0.5:
        yield f"eager calls wait for launches {100 * case.launch_bound:.0f} % of the time"
    yield from (flag_words(flag) for flag in (*figure.flags, *case.flags) if flag not in _QUIET_FLAGS)


def _problems(run: RunResult) -> Iterator[str]:
    for verdict in (Verdict.IMPOSSIBLE, Verdict.INVALID, Verdict.FAILED, Verdict.SKIPPED):
        for case in run.cases:
            if case.verdict is verdict:
                yield labelled(verdict.value, (f"{case.id}: {case.reason}",))
    for sentence in run.health.contention:
        yield labelled("warn", (sentence,))
    for finding in run.health.findings:
        yield labelled(finding.severity, (f"{finding.text} [{finding.code}]",))


def _closing(run: RunResult) -> str:
    counts = {verdict: sum(case.verdict is verdict for case in run.cases) for verdict in Verdict}
    told = [f"{counted(counts[Verdict.OK], 'case')} measured"]
    told += [
        f"{counts[verdict]} {verdict.value}"
        for verdict in (Verdict.SKIPPED, Verdict.INVALID, Verdict.IMPOSSIBLE, Verdict.FAILED)
        if counts[verdict]
    ]
    seconds = f" in {run.run.wall_seconds:.0f} s" if run.run.wall_seconds is not None else ""
    broken_off = "; broken off by the user, what was finished is kept" if run.run.interrupted else ""
    return f"{', '.join(told)}{seconds}{broken_off}.\n"

"""A run as Markdown: the tables people post, with interval, limit and share of the limit added at the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from firstlight.bench.limits import limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.numerals import DASH, percent_text
from firstlight.report.bench_cells import environment_rows, flag_words, ms_text, spread_text, time_text, whole
from firstlight.report.bench_normal import normal_lines
from firstlight.report.bench_sections import Cell, Section, param, sections_of
from firstlight.tables import Tables

_LIMITS = ("95 % interval", "Regime", "Limit (ms)", "Bound by", "% of limit", "% of spec", "Tier", "Notes")
_COMPILE = "compile"


def bench_markdown(run: RunResult, tables: Tables) -> str:
    """The report as one Markdown document."""
    lines = ["# Benchmark", "", "## Environment", "", *_table(("", ""), environment_rows(run)), ""]
    measured = [case for case in run.cases if case.verdict is Verdict.OK]
    plain = [case for case in measured if _COMPILE not in case.flags]
    for section, cases in sections_of(plain):
        lines += [f"## {section.title}", "", *_section(section, cases, run), ""]
    lines += _compiled(measured)
    if normal := [f"- {line}" for line in normal_lines(run, tables)]:
        lines += ["## Is it normal", "", *normal, ""]
    lines += _health(run)
    lines += _not_measured(run)
    lines += [
        "Median of all samples. Limit: the larger of FLOP over the rate at the SM clock measured during the case, and "
        "bytes over memory bandwidth; useful FLOP only. GB is 10^9 bytes.",
    ]
    return "\n".join(lines) + "\n"


def _section(section: Section, cases: Sequence[CaseResult], run: RunResult) -> Iterator[str]:
    columns = section.columns
    if len(run.gpus) > 1:
        which: tuple[str, Cell] = ("GPU", lambda case, figure: str(case.gpu))
        columns = (which, *columns)
    if section.versus:
        columns = (*columns, (f"vs {section.versus.upper()}", _versus(section.versus, cases)))
    rows = [
        (*(cell(case, figure) for _, cell in columns), *_limit_cells(case, figure))
        for case in cases
        for figure in sorted(case.figures, key=lambda figure: figure.regime is not case.headline)
    ]
    yield from _table((*(name for name, _ in columns), *_LIMITS), rows)


def _versus(dtype: str, cases: Sequence[CaseResult]) -> Cell:
    """How much faster a row is than the row of `dtype` with the same work: '3.43x'."""

    def cell(case: CaseResult, figure: Figure) -> str:
        base = next(
            (each for each in cases if (each.dtype, each.flops, each.gpu) == (dtype, case.flops, case.gpu)), None
        )
        return _ratio(_seconds(base), figure.time_s.median)

    return cell


def _limit_cells(case: CaseResult, figure: Figure) -> tuple[str, ...]:
    least_s, share = limit_of_interest(figure.limit)
    limit = figure.limit
    notes = [flag_words(flag) for flag in (*figure.flags, *case.flags) if flag != _COMPILE]
    if case.cache != "n/a":
        notes.insert(0, f"{case.cache} cache")
    if case.mode == "host":
        notes.insert(0, "host time")
    return (
        f"± {spread_text(figure.time_s)}",
        figure.regime.value,
        ms_text(least_s),
        DASH if limit is None or limit.bound.value == "none" else limit.bound.value,
        percent_text(share),
        percent_text(None if limit is None else limit.pct_spec),
        figure.tier or DASH,
        ", ".join(notes) or DASH,
    )


def _compiled(measured: Sequence[CaseResult]) -> Iterator[str]:
    """Eager, eager + graph, compiled, compiled + graph side by side, so that launches and kernels are told apart."""
    models = [case for case in measured if param(case, "run") != DASH and case.family == "resnet50"]
    times: dict[tuple[str, int], dict[str, CaseResult]] = {}
    for case in models:
        if (batch := whole(param(case, "batch"))) is not None:
            times.setdefault((case.dtype, batch), {})[param(case, "run")] = case
    rows = [_compiled_row(*key, found) for key, found in sorted(times.items()) if "compiled-graph" in found]
    if rows:
        head = (
            "Precision",
            "Batch",
            "Eager",
            "Compiled + graph",
            "Speedup",
            "Eager + graph",
            "Compiled",
            "By graph alone",
        )
        yield from ("## torch.compile (ResNet-50)", "", *_table(head, rows), "")


def _compiled_row(dtype: str, batch: int, found: dict[str, CaseResult]) -> tuple[str, ...]:
    eager, both = _seconds(found.get("eager")), _seconds(found.get("compiled-graph"))
    graph, compiled = _seconds(found.get("graph")), _seconds(found.get("compiled"))
    return (
        dtype.upper(), str(batch), _time(eager), _time(both), _ratio(eager, both), _time(graph), _time(compiled),
        _ratio(eager, graph),
    )  # fmt: skip


def _seconds(case: CaseResult | None) -> float | None:
    return None if case is None or case.shown is None else case.shown.time_s.median


def _time(seconds: float | None) -> str:
    return DASH if seconds is None else time_text(seconds)


def _ratio(one: float | None, other: float | None) -> str:
    return DASH if one is None or other is None else f"{one / other:.2f}x"


def _health(run: RunResult) -> Iterator[str]:
    health = run.health
    lines = [*(f"- warn: {sentence}" for sentence in health.contention)]
    lines += [f"- {finding.severity}: {finding.text} (`{finding.code}`)" for finding in health.findings]
    if health.throttle_pct:
        shares = ", ".join(f"{name} {share:.1f} %" for name, share in health.throttle_pct)
        lines.append(f"- clock held down during the run: {shares}")
    if lines:
        yield from ("## Health", "", *lines, "")


def _not_measured(run: RunResult) -> Iterator[str]:
    rows = [(f"`{case.id}`", case.verdict.value, case.reason) for case in run.cases if case.verdict is not Verdict.OK]
    if rows:
        yield from ("## Not measured", "", *_table(("Case", "Verdict", "Reason"), rows), "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(text: str) -> str:
    """One cell on one line: a bar or a line break inside would end it."""
    return " ".join(text.split()).replace("|", "\\|")

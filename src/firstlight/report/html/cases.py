"""Every case: time, rate, percent of the limit as a bar, and all samples as a strip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firstlight.bench.limits import LAUNCH_BOUND_ABOVE, limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.bench.steady import NOT_STEADY, PUT_OFF, unsteady
from firstlight.frozen import dataclass
from firstlight.numerals import DASH, counted, percent_text
from firstlight.report.bench_cells import flag_words, rate_text, spread_text, time_text
from firstlight.report.bench_sections import throughput
from firstlight.report.html.formulas import (
    clock_formula,
    rate_formula,
    share_formula,
    spread_formula,
    tier_formula,
    time_formula,
)
from firstlight.report.html.markup import Markup, el, number, section
from firstlight.report.html.page import NOTHING, table
from firstlight.report.html.scales import Axis, line

STRIP_WIDTH, STRIP_HEIGHT = 136, 24
_QUIET = ("algorithmic", "compile", NOT_STEADY, PUT_OFF)  # the last two are said in words
_FORMULAS = "Point at a number, tap it or focus it for its formula; arrow keys go from number to number."
_STRIPS = (
    "Samples: every one is a tick, one row a pass; under it the fastest and the slowest, each strip on a scale of its "
    "own. The band is the 95 % interval, the long line the median."
)
_LIMITS = "Percent of the limit: the least time this GPU can take at the clock it had, over the time it took."


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the tables of cases: its name, its width as a class of look.css, and what a cell of it holds."""

    name: str
    width: str
    cell: Callable[[CaseResult, Figure], str]


def cases_section(run: RunResult) -> Markup:
    """A table per family; a column that no case of the run fills is left out."""
    measured = [case for case in run.cases if case.verdict is Verdict.OK and case.shown is not None]
    if not measured:
        return section("cases", "Every case", el("p", "No case has a figure."))
    columns = [column for column in _columns(run) if _is_filled(column, measured)]
    families = list(dict.fromkeys(case.family for case in measured))
    parts = [_family(family, [case for case in measured if case.family == family], columns) for family in families]
    search = el("label", "Show cases whose name has ", el("input", type="search", id="filter", autocomplete="off",
                placeholder="fp16/8192"), class_="filter", hidden="")  # fmt: skip
    names = [column.name for column in columns]
    told = [_FORMULAS, *((_STRIPS,) if "Samples" in names else ()), *((_LIMITS,) if "Of the limit" in names else ())]
    return section("cases", "Every case", el("p", " ".join(told)), search, *parts)


def _columns(run: RunResult) -> tuple[Column, ...]:
    several = len(run.gpus) > 1
    return (
        Column("Case", "c-case", _named_with_gpu if several else _named),
        Column("Time", "c-time", lambda _, figure: number(time_text(figure.time_s.median), time_formula(figure))),
        Column("±", "c-spread", lambda _, figure: number(spread_text(figure.time_s), spread_formula(figure))),
        Column("Rate", "c-rate", _rate),
        Column("Of the limit", "c-limit", _bar),
        Column("Tier", "c-tier", lambda _, figure: number(figure.tier, tier_formula(figure)) if figure.tier else DASH),
        Column("Samples", "c-samples", lambda _, figure: strip(figure)),
        Column("Notes", "c-notes", _notes),
    )


def _is_filled(column: Column, cases: Sequence[CaseResult]) -> bool:
    return any(column.cell(case, each) not in NOTHING for case in cases for each in case.figures)


def not_measured_section(run: RunResult) -> Markup:
    """What has no figure, and why."""
    cases = [case for case in run.cases if case.verdict is not Verdict.OK]
    if not cases:
        return Markup("")
    rows = [(case.id, case.verdict.value, case.reason) for case in cases]
    body = table(("Case", "Verdict", "Why"), rows, caption=f"{counted(len(cases), 'case')} without a figure")
    return section("not-measured", "Not measured", body)


def _family(family: str, cases: Sequence[CaseResult], columns: Sequence[Column]) -> Markup:
    rows = [
        tuple(column.cell(case, each) for column in columns)
        for case in cases
        for each in sorted(case.figures, key=lambda figure: figure.regime is not case.headline)
    ]
    return table(
        [column.name for column in columns],
        rows,
        caption=f"{family}: {counted(len(cases), 'case')}, {counted(len(rows), 'figure')}",
        class_="cases",
        widths=[column.width for column in columns],
    )


def _named(case: CaseResult, figure: Figure, where: str = "") -> str:
    """The name of a case, with the regime where it has figures of both."""
    if len(case.figures) == 1:
        return f"{case.id}{where}"
    return el("span", f"{case.id}{where}", el("small", f" {figure.regime.value}"))


def _named_with_gpu(case: CaseResult, figure: Figure) -> str:
    return _named(case, figure, f" [gpu {case.gpu}]")


def _rate(case: CaseResult, figure: Figure) -> str:
    rate = throughput(case, figure) if figure.rate.items_per_s is not None else rate_text(case, figure)
    return number(rate, rate_formula(case, figure)) if rate != DASH else DASH


def _bar(case: CaseResult, figure: Figure) -> str:
    percent = limit_of_interest(figure.limit)[1]
    if percent is None:
        return DASH
    inside = el("rect", width=f"{min(100.0, max(0.5, percent)):.1f}%", height="100%")
    return el(
        "span",
        el("svg", inside, class_="bar", aria_hidden="true"),
        number(percent_text(percent), share_formula(figure)),
        class_="barcell",
    )


def strip(figure: Figure) -> Markup:
    """Every sample of a figure as a tick, a row for each pass; nothing where no samples were kept."""
    samples = [sample for each in figure.passes for sample in each.samples]
    if not samples:
        return Markup("")
    low, high = min(samples), max(samples)
    x = Axis(low, high, 2, STRIP_WIDTH - 2)
    time = figure.time_s
    band_from, band_to = x.at(time.ci95[0]), x.at(time.ci95[1])
    parts = [
        el("rect", x=band_from, y=0.0, width=max(1.0, band_to - band_from), height=float(STRIP_HEIGHT), class_="band")
    ]
    tall = max(3, STRIP_HEIGHT // len(figure.passes))
    for place, each in enumerate(figure.passes):
        # Samples on one pixel are one tick: 8,000 samples of a run would be 100 kB otherwise.
        spots = sorted({round(x.at(sample)) for sample in each.samples})
        if not spots:
            continue
        steps = zip(spots[1:], spots, strict=False)
        path = f"M{spots[0]} {tall * place + 1}v{tall - 2}" + "".join(
            f"m{b - a}-{tall - 2}v{tall - 2}" for b, a in steps
        )
        parts.append(el("path", d=path))
    parts.append(line(x.at(time.median), 0, x.at(time.median), STRIP_HEIGHT, class_="median"))
    says = f"{len(samples)} samples from {time_text(low)} to {time_text(high)}, median {time_text(time.median)}"
    drawn = el("svg", *parts, height=STRIP_HEIGHT, viewBox=f"0 0 {STRIP_WIDTH} {STRIP_HEIGHT}", class_="strip",
               preserveAspectRatio="none", aria_hidden="true")  # fmt: skip
    ends = (low, high) if time_text(low) != time_text(high) else (low,)
    scale = (el("small", time_text(end)) for end in ends)
    clock = "" if figure.telemetry is None else f". {clock_formula(figure)}"
    return el("span", drawn, *scale, class_="n samples", title=f"{says}{clock}")


def _notes(case: CaseResult, figure: Figure) -> Markup:
    words = []
    if case.mode == "host":
        words.append("host time")
    if (case.launch_bound or 0) > LAUNCH_BOUND_ABOVE:
        words.append(f"eager: waits {100 * (case.launch_bound or 0):.0f} % for launches")
    if why := unsteady(case, figure):
        words.append(f"not steady: {why}")
    words += [flag_words(flag) for flag in (*figure.flags, *case.flags) if flag not in _QUIET]
    return el("span", ", ".join(words), class_="notes") if words else Markup("")

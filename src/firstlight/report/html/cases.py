"""Every case: time, rate, percent of the limit as a bar, and all samples as a strip."""

from __future__ import annotations

from collections.abc import Sequence

from firstlight.bench.limits import LAUNCH_BOUND_ABOVE
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.report.bench_cells import DASH, limit_of_interest, percent_text, rate_text, spread_text, time_text
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
from firstlight.report.html.page import table
from firstlight.report.html.scales import Axis, line
from firstlight.report.layout import counted

HEAD = ("Case", "Time", "±", "Rate", "Of the limit", "Tier", "Samples", "Notes")
STRIP_WIDTH, STRIP_HEIGHT = 136, 24
_QUIET = ("algorithmic", "compile")


def cases_section(run: RunResult) -> Markup:
    """A table per family."""
    measured = [case for case in run.cases if case.verdict is Verdict.OK and case.shown is not None]
    if not measured:
        return section("cases", "Every case", el("p", "No case has a figure."))
    families = list(dict.fromkeys(case.family for case in measured))
    parts = [_family(family, [case for case in measured if case.family == family], run) for family in families]
    search = el("label", "Show cases whose name has ", el("input", type="search", id="filter", autocomplete="off",
                placeholder="fp16/8192"), class_="filter", hidden="")  # fmt: skip
    how = el(
        "p",
        "Hover or focus a number for its formula; arrow keys go from number to number. A strip holds every sample, one "
        "row a pass, from the fastest to the slowest, each strip on its own scale; the band is the 95 % interval, the "
        "long line the median. Percent of the limit: the least time this GPU can take at the clock it had, over the "
        "time it took.",
    )
    return section("cases", "Every case", how, search, *parts)


def not_measured_section(run: RunResult) -> Markup:
    """What has no figure, and why."""
    cases = [case for case in run.cases if case.verdict is not Verdict.OK]
    if not cases:
        return Markup("")
    rows = [(case.id, case.verdict.value, case.reason) for case in cases]
    body = table(("Case", "Verdict", "Why"), rows, caption=f"{counted(len(cases), 'case')} without a figure")
    return section("not-measured", "Not measured", body)


def _family(family: str, cases: Sequence[CaseResult], run: RunResult) -> Markup:
    rows = [
        _row(case, each, run)
        for case in cases
        for each in sorted(case.figures, key=lambda figure: figure.regime is not case.headline)
    ]
    caption = f"{family}: {counted(len(cases), 'case')}, {counted(len(rows), 'figure')}"
    return table(HEAD, rows, caption=caption, class_="cases measured")


def _row(case: CaseResult, figure: Figure, run: RunResult) -> tuple[str, ...]:
    share = limit_of_interest(figure.limit)[1]
    rate = throughput(case, figure) if figure.rate.items_per_s is not None else rate_text(case, figure)
    where = f" [gpu {case.gpu}]" if len(run.gpus) > 1 else ""
    regime = el("small", f" {figure.regime.value}") if len(case.figures) > 1 else ""
    return (
        el("span", f"{case.id}{where}", regime) if regime else f"{case.id}{where}",
        number(time_text(figure.time_s.median), time_formula(figure)),
        number(spread_text(figure.time_s), spread_formula(figure)),
        number(rate, rate_formula(case, figure)) if rate != DASH else DASH,
        _bar(share, share_formula(figure)),
        number(figure.tier, tier_formula(figure)) if figure.tier else DASH,
        strip(figure),
        _notes(case, figure),
    )


def _bar(percent: float | None, formula: str) -> Markup:
    if percent is None:
        return el("span", DASH)
    inside = el("rect", width=f"{min(100.0, max(0.5, percent)):.1f}%", height="100%")
    return el(
        "span",
        el("svg", inside, class_="bar", aria_hidden="true"),
        number(percent_text(percent), formula),
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
        steps = zip(spots[1:], spots, strict=False)
        path = f"M{spots[0]} {tall * place + 1}v{tall - 2}" + "".join(
            f"m{b - a}-{tall - 2}v{tall - 2}" for b, a in steps
        )
        parts.append(el("path", d=path))
    parts.append(line(x.at(time.median), 0, x.at(time.median), STRIP_HEIGHT, class_="median"))
    says = f"{len(samples)} samples from {time_text(low)} to {time_text(high)}, median {time_text(time.median)}"
    drawn = el(
        "svg",
        *parts,
        width=STRIP_WIDTH,
        height=STRIP_HEIGHT,
        viewBox=f"0 0 {STRIP_WIDTH} {STRIP_HEIGHT}",
        class_="strip",
        aria_hidden="true",
    )
    return el("span", drawn, class_="n", title=f"{says}. {clock_formula(figure)}")


def _notes(case: CaseResult, figure: Figure) -> Markup:
    words = []
    if case.mode == "host":
        words.append("host time")
    if (case.launch_bound or 0) > LAUNCH_BOUND_ABOVE:
        words.append(f"eager: waits {100 * (case.launch_bound or 0):.0f} % for launches")
    words += [flag.replace("_", " ") for flag in (*figure.flags, *case.flags) if flag not in _QUIET]
    return el("span", ", ".join(words), class_="notes") if words else Markup("")

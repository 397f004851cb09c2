"""How near to the limit each family comes: a bar for its median, a mark for each case."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from firstlight.bench.limits import TIERS
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.frozen import dataclass
from firstlight.report.bench_cells import limit_of_interest, percent_text
from firstlight.report.html.formulas import share_formula
from firstlight.report.html.markup import Markup, el, figure, mark, section
from firstlight.report.html.roofline import colour
from firstlight.report.html.scales import Axis, drawing, label, line
from firstlight.report.layout import counted

WIDTH, ROW, TOP = 880, 34, 30
LEFT, RIGHT = 130, 770


@dataclass(frozen=True, slots=True)
class Share:
    """A case and the percent of the limit that its shown figure reached, e.g. 81.3."""

    case: CaseResult
    figure: Figure
    percent: float


def families_section(run: RunResult) -> Markup:
    """The chart of families; nothing where no limit is known."""
    shares = tuple(shares_of(run))
    if not shares:
        return Markup("")
    families = list(dict.fromkeys(share.case.family for share in shares))
    x = Axis(0, 100, LEFT, RIGHT)
    height = TOP + ROW * len(families) + 34
    parts = [*_axes(x, height - 34)]
    for place, family in enumerate(families):
        inside = [share for share in shares if share.case.family == family]
        parts += _row(family, inside, x, TOP + ROW * (place + 0.5))
    caption = (
        "Bar: the median of the family. Each mark: one case, coloured by precision as above. 100 % is the least time "
        "this GPU can take at the clock it had meanwhile, from FLOP and bytes alone. Letters: tiers."
    )
    chart = drawing(WIDTH, height, *parts, name="Percent of the limit by family")
    return section("families", "Percent of the limit, by family", figure(chart, caption))


def shares_of(run: RunResult) -> Iterator[Share]:
    """Measured cases with a known limit, in the order of the run."""
    for case in run.cases:
        if case.verdict is Verdict.OK and case.shown is not None:
            percent = limit_of_interest(case.shown.limit)[1]
            if percent is not None:
                yield Share(case, case.shown, percent)


def _axes(x: Axis, bottom: float) -> Iterator[Markup]:
    for tick in (0, 25, 50, 75, 90, 100):
        yield line(x.at(tick), TOP, x.at(tick), bottom, class_="grid")
        yield label(x.at(tick), bottom + 18, f"{tick} %", class_="tick", text_anchor="middle")
    edges = [*(floor for floor, _ in TIERS), 100.0]
    highs = (100.0, *edges[:-2])
    for (floor, tier), high in zip(TIERS, highs, strict=True):
        yield label(x.at((floor + high) / 2), TOP - 10, tier, class_="tick", text_anchor="middle")


def _row(family: str, shares: list[Share], x: Axis, y: float) -> Iterator[Markup]:
    middle = median(share.percent for share in shares)
    low, high = min(share.percent for share in shares), max(share.percent for share in shares)
    says = (
        f"{family}: median {percent_text(middle)} of the limit over {counted(len(shares), 'case')}, "
        f"{percent_text(low)} to {percent_text(high)}"
    )
    yield label(LEFT - 10, y + 4, family, class_="name", text_anchor="end")
    bar = el("rect", x=float(LEFT), y=y - 9, width=max(1.0, x.at(middle) - LEFT), height=18.0, class_="bar")
    yield mark(says, bar, label(RIGHT + 12, y + 4, f"{percent_text(middle)}, {len(shares)}x", class_="value"))
    for share in shares:
        dot = el("circle", cx=x.at(share.percent), cy=y, r=4.0, class_=f"filled {colour(share.case.peak)}")
        yield mark(f"{share.case.id}: {share_formula(share.figure)}", dot)

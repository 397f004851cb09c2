"""How near to the limit each family comes: a bar for its median, a mark for each case."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from firstlight.bench.limits import TIERS, limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.frozen import dataclass
from firstlight.numerals import counted, percent_text
from firstlight.report.html.apart import lanes
from firstlight.report.html.formulas import share_formula
from firstlight.report.html.markup import Markup, el, figure, mark, section
from firstlight.report.html.roofline import colour
from firstlight.report.html.scales import Axis, drawing, fitted, label, line, text_width

WIDTH, ROW, TOP = 880, 34, 30
RIGHT = 770
DOT = 4.0
GAP = 2 * DOT + 1


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
    rows = [_Row(family, [each for each in shares if each.case.family == family], WIDTH / 3) for family in
            dict.fromkeys(share.case.family for share in shares)]  # fmt: skip
    x = Axis(0, 100, 24 + max(text_width(row.name) for row in rows), RIGHT)
    bottom = TOP + sum(row.height(x) for row in rows)
    parts = [*_axes(x, bottom)]
    top: float = TOP
    for row in rows:
        parts += row.drawn(x, top + row.height(x) / 2)
        top += row.height(x)
    caption = (
        "Bar: the median of the family. Each mark: one case, coloured by precision as in the roofline. 100 % is the "
        "least time this GPU can take at the clock it had meanwhile, from FLOP and bytes alone. Letters: tiers. At "
        "the right: the median, and how many cases."
    )
    chart = drawing(WIDTH, bottom + 34, *parts, name="Percent of the limit by family")
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


class _Row:
    """One family: as high as its marks need so that none lies on another."""

    def __init__(self, family: str, shares: list[Share], room: float) -> None:
        self.family, self.shares, self.name = family, shares, fitted(family, room)

    def height(self, x: Axis) -> float:
        return max(ROW, GAP * (1 + 2 * max(map(abs, self._lanes(x)))) + 7)

    def drawn(self, x: Axis, y: float) -> Iterator[Markup]:
        percents = [share.percent for share in self.shares]
        middle = median(percents)
        says = (
            f"{self.family}: median {percent_text(middle)} of the limit over {counted(len(self.shares), 'case')}, "
            f"{percent_text(min(percents))} to {percent_text(max(percents))}"
        )
        yield label(x.start - 10, y + 4, self.name, class_="name", text_anchor="end")
        bar = el("rect", x=x.start, y=y - 9, width=max(1.0, x.at(middle) - x.start), height=18.0, class_="bar")
        yield mark(says, bar, label(RIGHT + 12, y + 4, f"{percent_text(middle)} ({len(percents)})", class_="value"))
        for share, lane in zip(self.shares, self._lanes(x), strict=True):
            dot = el("circle", cx=x.at(share.percent), cy=y + lane * GAP, r=DOT,
                     class_=f"filled {colour(share.case.peak)}")  # fmt: skip
            yield mark(f"{share.case.id}: {share_formula(share.figure)}", dot)

    def _lanes(self, x: Axis) -> tuple[int, ...]:
        return lanes([x.at(share.percent) for share in self.shares], gap=GAP)

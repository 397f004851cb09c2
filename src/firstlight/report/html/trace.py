"""Clock, power and temperature: over the warm-up, and from case to case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from firstlight.bench.results import CaseResult, Figure, RunResult, SoakPoint
from firstlight.frozen import dataclass
from firstlight.report.html.formulas import clock_formula
from firstlight.report.html.markup import Markup, el, figure, mark, section
from firstlight.report.html.scales import Axis, drawing, fitted, label, line, round_ticks, text_width

WIDTH, PANEL, GAP, TOP = 880, 96, 22, 14
LEFT, RIGHT = 92, 790
NAME_WIDTH, NAME_HEIGHT = 170, 15


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity over time: 'SM clock', 'MHz', and how to read it of a point."""

    name: str
    unit: str
    of: Callable[[SoakPoint], float | None]


PANELS = (
    Panel("SM clock", "MHz", lambda point: point.sm_mhz),
    Panel("Power", "W", lambda point: point.power_w),
    Panel("Temperature", "°C", lambda point: point.temp_c),
)


def trace_section(run: RunResult) -> Markup:
    """The warm-up as curves, then the clock of each figure; nothing where nothing was read."""
    parts = [part for part in (_soak(run), _by_case(run)) if part]
    if not parts:
        return Markup("")
    held = ", ".join(f"{name.replace('_', ' ')} {share:.1f} %" for name, share in run.health.throttle_pct)
    words = f"Share of the run in which the clock was held down: {held}." if held else "The clock was not held down."
    harmless = " Running into the power limit (sw power) is what a busy card does." if "sw power" in held else ""
    return section("trace", "Clock and power", el("p", words + harmless), *parts)


def _soak(run: RunResult) -> Markup:
    points = run.health.soak
    panels = [panel for panel in PANELS if sum(panel.of(point) is not None for point in points) > 1]
    if not panels:
        return Markup("")
    x = Axis(0, max(point.seconds for point in points), LEFT, RIGHT)
    height = TOP + len(panels) * (PANEL + GAP) + 10
    parts: list[Markup] = []
    for place, panel in enumerate(panels):
        parts += _curve(panel, points, x, top=TOP + place * (PANEL + GAP), most=_most(run, panel))
    for tick in round_ticks(0, x.high, about=6):
        parts.append(label(x.at(tick), height - 8, f"{tick:g} s", class_="tick", text_anchor="middle"))
    steady = {True: "it ended steady", False: "it did not become steady", None: ""}[run.health.soak_steady]
    caption = f"The warm-up before anything is timed: {len(points)} readings of NVML" + (
        f"; {steady}." if steady else "."
    )
    return figure(drawing(WIDTH, height, *parts, name="Warm-up: clock, power and temperature"), caption)


def _most(run: RunResult, panel: Panel) -> float | None:
    """What the card allows of a quantity: 700 W, 1980 MHz; None where it does not say, or there are several cards."""
    gpus = run.gpus if len(run.gpus) == 1 else ()
    return next(({"W": gpu.power_limit_w, "MHz": gpu.clock_max_mhz}.get(panel.unit) for gpu in gpus), None)


def _curve(panel: Panel, points: Sequence[SoakPoint], x: Axis, *, top: float, most: float | None) -> Iterator[Markup]:
    known = [(point.seconds, value) for point in points if (value := panel.of(point)) is not None]
    values = [value for _, value in known]
    room = max(1.0, (max(values) - min(values)) * 0.15)
    y = Axis(max(0.0, min(values) - room), max(values) + room, top + PANEL, top)
    for tick in round_ticks(y.low, y.high):
        yield line(LEFT, y.at(tick), RIGHT, y.at(tick), class_="grid")
        yield label(LEFT - 8, y.at(tick) + 4, f"{tick:,g}", class_="tick", text_anchor="end")
    yield label(LEFT + 4, top + 2, f"{panel.name}, {panel.unit}", class_="name")
    if most is not None and y.low < most < y.high:
        yield line(LEFT, y.at(most), RIGHT, y.at(most), class_="zero")
        yield label(RIGHT + 4, y.at(most) + 4, f"limit {most:g}", class_="tick")
    path = "".join(
        f"{'L' if place else 'M'}{x.at(at):.1f} {y.at(value):.1f}" for place, (at, value) in enumerate(known)
    )
    yield el("path", d=path, class_="curve")
    for at, value in known:
        dot = el("circle", cx=x.at(at), cy=y.at(value), r=2.6, class_="filled p1")
        yield mark(f"{value:g} {panel.unit} after {at:.2f} s, read by NVML", dot)


def _by_case(run: RunResult) -> Markup:
    """Median clock of each figure in the order of the suite, with its range; power where it was read."""
    figures = [
        (case, each)
        for case in run.cases
        for each in case.figures
        if each.telemetry is not None and each.telemetry.sm_mhz is not None
    ]
    if len(figures) < 2:
        return Markup("")
    lows = [each.telemetry.sm_mhz[0] for _, each in figures if each.telemetry and each.telemetry.sm_mhz]
    highs = [each.telemetry.sm_mhz[2] for _, each in figures if each.telemetry and each.telemetry.sm_mhz]
    top_mhz = max([*highs, *(gpu.clock_max_mhz for gpu in run.gpus if gpu.clock_max_mhz)])
    y = Axis(min(lows) * 0.97, top_mhz * 1.01, TOP + 170, TOP)
    x = Axis(0, len(figures), LEFT, RIGHT)
    parts: list[Markup] = []
    for tick in round_ticks(y.low, y.high):
        parts += [line(LEFT, y.at(tick), RIGHT, y.at(tick), class_="grid"),
                  label(LEFT - 8, y.at(tick) + 4, f"{tick:,g}", class_="tick", text_anchor="end")]  # fmt: skip
    names, bottom = [*_names(figures, x)], TOP + 170
    for each in names:
        at = bottom + NAME_HEIGHT * (each.row + 1)
        parts += [line(each.begins, TOP, each.begins, bottom + 4, class_="grid"),
                  label(each.middle, at, each.text, class_="tick", text_anchor="middle")]  # fmt: skip
    height = bottom + NAME_HEIGHT * (1 + max(each.row for each in names)) + 12
    parts += [_range(case, one, x.at(place + 0.5), y) for place, (case, one) in enumerate(figures)]
    parts.append(label(LEFT - 86, TOP - 2, "SM clock, MHz", class_="name"))
    caption = (
        "The clock while each figure was taken, in the order of the suite: the mark is the median, the line its range."
    )
    return figure(drawing(WIDTH, height, *parts, name="SM clock by case"), caption)


def _range(case: CaseResult, each: Figure, x: float, y: Axis) -> Markup:
    assert each.telemetry is not None, case.id
    assert each.telemetry.sm_mhz is not None, case.id
    low, middle, high = each.telemetry.sm_mhz
    return mark(
        f"{case.id} ({each.regime.value}): {clock_formula(each)}",
        line(x, y.at(low), x, y.at(high), class_="whisker"),
        el("circle", cx=x, cy=y.at(middle), r=2.8, class_="filled p1"),
    )


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a family under its stretch: where that begins, where the name stands, in which row."""

    begins: float
    middle: float
    row: int
    text: str


def _names(figures: Sequence[tuple[CaseResult, Figure]], x: Axis) -> Iterator[Name]:
    """A name for each stretch of one family, as low as it takes so that none lies on another."""
    ends: list[float] = []  # of the last name of each row
    start = 0
    for family, stretch in groupby(figures, lambda pair: pair[0].family):
        end = start + sum(1 for _ in stretch)
        text = fitted(family, NAME_WIDTH)
        half = text_width(text) / 2
        middle = min(max((x.at(start) + x.at(end)) / 2, half), WIDTH - half)
        row = next((row for row, last in enumerate(ends) if last <= middle - half), len(ends))
        ends[row : row + 1] = [middle + half]
        yield Name(x.at(start), middle, row, text)
        start = end

"""The roofline: every case by its FLOP per byte and the TFLOPS it reached, under what the GPU can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstlight.bench.peaks import Peaks, canonical, peaks_of
from firstlight.bench.results import CaseResult, Figure, Regime, RunResult, Verdict
from firstlight.frozen import dataclass
from firstlight.numerals import significant
from firstlight.report.bench_cells import peaks_words
from firstlight.report.html.apart import Area, apart
from firstlight.report.html.formulas import bandwidth_formula, peak_formula, share_formula
from firstlight.report.html.markup import Markup, el, figure, joined, mark, section
from firstlight.report.html.scales import LogAxis, decades, drawing, fitted, label, line, text_width
from firstlight.tables import Tables

WIDTH, HEIGHT, RADIUS = 880, 470, 4.4
LEFT, RIGHT, TOP, BOTTOM = 64, 742, 18, 418
COLOURS = ("fp16", "bf16", "fp8", "tf32", "fp32", "fp64", "int8", "fp4", "bandwidth")
_LABEL_GAP = 15


@dataclass(frozen=True, slots=True)
class Point:
    """One figure: 682.7 FLOP per byte, 740 TFLOPS."""

    case: CaseResult
    figure: Figure
    intensity: float
    tflops: float


def roofline_section(run: RunResult, tables: Tables) -> Markup:
    """One chart per model of GPU; nothing where no case has FLOP and a rate."""
    charts = []
    for name in dict.fromkeys(gpu.name for gpu in run.gpus):
        places = [place for place, gpu in enumerate(run.gpus) if gpu.name == name]
        points = tuple(point for place in places for point in _points(run, place))
        peaks = peaks_of(run.gpus[places[0]], tables)
        if points and peaks.bandwidth_gbps and peaks.spec:
            which = f"{len(places)} x {name}. " if len(run.gpus) > 1 else ""
            caption = (
                f"{which}Each mark is a case. Filled: sustained; hollow: burst. Lines: the datasheet's peaks and "
                f"memory bandwidth ({peaks_words(peaks.source)}). The nearer to its line, the better. Where marks "
                "would lie on each other, they stand side by side and a thin line leads to the true place."
            )
            charts.append(figure(_chart(run, places[0], peaks, points), caption) + _legend(points))
    return section("roofline", "Roofline", *(Markup(chart) for chart in charts)) if charts else Markup("")


def colour(peak: str) -> str:
    """The class that colours a precision: 'p0' for fp16."""
    name = canonical(peak)
    return f"p{COLOURS.index(name)}" if name in COLOURS else "p8"


def _points(run: RunResult, gpu: int) -> Iterator[Point]:
    for case in run.cases:
        if case.gpu != gpu or case.verdict is not Verdict.OK or not case.flops or not case.bytes:
            continue
        for each in case.figures:
            yield Point(case, each, case.flops / case.bytes, case.flops / each.time_s.median / 1e12)


def _chart(run: RunResult, gpu: int, peaks: Peaks, points: Sequence[Point]) -> Markup:
    bandwidth = (peaks.bandwidth_gbps or 0.0) / 1000  # TB/s: TFLOPS per FLOP/byte
    roofs = _roofs(peaks, points)
    highest = max([tflops for _, tflops in roofs] + [point.tflops for point in points])
    x = LogAxis(min(0.1, *(p.intensity for p in points)), 2 * max(p.intensity for p in points), LEFT, RIGHT)
    lowest = min(*(p.tflops for p in points), highest / 100) / 1.5
    y = LogAxis(lowest, highest * 1.6, BOTTOM, TOP)
    parts = [
        *_axes(x, y),
        _memory_roof(run, gpu, bandwidth, x, y, highest),
        *_peak_roofs(roofs, bandwidth, x, y, peaks),
    ]
    parts += _marks(sorted(points, key=lambda point: -point.tflops), x, y)
    return drawing(WIDTH, HEIGHT, *parts, name=f"Roofline of {run.gpus[gpu].name}")


def _roofs(peaks: Peaks, points: Sequence[Point]) -> list[tuple[str, float]]:
    """Precisions with a mark, those of one peak together: [('fp8, int8', 1979.0), ('fp16, bf16', 989.0)]."""
    used = dict.fromkeys(canonical(point.case.peak) for point in points)
    names: dict[float, list[str]] = {}
    for name in used:
        tflops = peaks.spec_tflops(name)
        if tflops is not None:
            names.setdefault(tflops, []).append(name)
    return sorted(((", ".join(group), tflops) for tflops, group in names.items()), key=lambda roof: -roof[1])


def _axes(x: LogAxis, y: LogAxis) -> Iterator[Markup]:
    for tick in decades(x.low, x.high):
        yield line(x.at(tick), TOP, x.at(tick), BOTTOM, class_="grid")
        yield label(x.at(tick), BOTTOM + 18, f"{tick:,g}", class_="tick", text_anchor="middle")
    for tick in decades(y.low, y.high):
        yield line(LEFT, y.at(tick), RIGHT, y.at(tick), class_="grid")
        yield label(LEFT - 8, y.at(tick) + 4, f"{tick:,g}", class_="tick", text_anchor="end")
    yield label((LEFT + RIGHT) / 2, HEIGHT - 8, "FLOP per byte that must move", class_="axis", text_anchor="middle")
    yield label(16, (TOP + BOTTOM) / 2, "TFLOPS", class_="axis", text_anchor="middle",
                transform=f"rotate(-90 16 {(TOP + BOTTOM) / 2:g})")  # fmt: skip


def _memory_roof(run: RunResult, gpu: int, bandwidth: float, x: LogAxis, y: LogAxis, highest: float) -> Markup:
    first = max(x.low, y.low / bandwidth)
    last = min(highest / bandwidth, x.high)
    gbps = bandwidth * 1000
    x1, y1, x2, y2 = x.at(first), y.at(first * bandwidth), x.at(last), y.at(last * bandwidth)
    share = 0.3
    at_x, at_y = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
    turn = _degrees(x2 - x1, y2 - y1)
    return mark(
        bandwidth_formula(run, gpu, gbps),
        line(x1, y1, x2, y2, class_="roof"),
        label(at_x - 6, at_y - 8, f"memory {significant(gbps)} GB/s", class_="rooftext", text_anchor="middle",
              transform=f"rotate({turn:.1f} {at_x - 6:.1f} {at_y - 8:.1f})"),
    )  # fmt: skip


def _degrees(dx: float, dy: float) -> float:
    import math

    return math.degrees(math.atan2(dy, dx))


def _peak_roofs(
    roofs: Sequence[tuple[str, float]], bandwidth: float, x: LogAxis, y: LogAxis, peaks: Peaks
) -> Iterator[Markup]:
    last = -1e9
    for names, tflops in roofs:
        height = y.at(tflops)
        text_y = max(height + 4, last + _LABEL_GAP)
        room = WIDTH - RIGHT - 16 - text_width(significant(tflops))
        last = text_y
        yield mark(
            peak_formula(names, tflops, peaks.source),
            line(
                x.at(max(x.low, tflops / bandwidth)),
                height,
                RIGHT,
                height,
                class_=f"roof {colour(names.split(',')[0])}",
            ),
            label(RIGHT + 8, text_y, f"{fitted(names, room)} {significant(tflops)}", class_="rooftext"),
        )


def _marks(points: Sequence[Point], x: LogAxis, y: LogAxis) -> Iterator[Markup]:
    """Every point as a mark that no other one covers, above the lines to where moved ones belong."""
    true = [complex(x.at(point.intensity), y.at(point.tflops)) for point in points]
    area = Area(LEFT + RADIUS, TOP + RADIUS, RIGHT - RADIUS, BOTTOM - RADIUS)
    shown = apart(true, gap=2 * RADIUS + 1.4, area=area)
    for at, now in zip(true, shown, strict=True):
        if abs(now - at) > 1:
            yield line(at.real, at.imag, now.real, now.imag, class_="leader")
    for point, now in zip(points, shown, strict=True):
        yield _mark(point, now)


def _mark(point: Point, at: complex) -> Markup:
    where = f", GPU {point.case.gpu}" if point.case.gpu > 0 else ""
    burst = point.figure.regime is Regime.BURST
    says = (
        f"{point.case.id} ({point.figure.regime.value}{where}): {significant(point.tflops)} TFLOPS at "
        f"{significant(point.intensity)} FLOP per byte; {share_formula(point.figure)}"
    )
    dot = el("circle", cx=at.real, cy=at.imag, r=RADIUS,
             class_=f"{'hollow' if burst else 'filled'} {colour(point.case.peak)}")  # fmt: skip
    return mark(says, dot)


def _legend(points: Sequence[Point]) -> Markup:
    names = [name for name in COLOURS if any(canonical(point.case.peak) == name for point in points)]
    return el(
        "ul",
        joined(
            el("li", el("span", class_=f"key {colour(name)}", aria_hidden="true"), _meaning(name)) for name in names
        ),
        class_="legend",
        aria_label="Colours",
    )


def _meaning(name: str) -> str:
    return "compared with memory alone" if name == "bandwidth" else name

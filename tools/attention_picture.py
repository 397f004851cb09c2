"""The picture of attention's time against density, as SVG: ours, FlexAttention, cuDNN and the limit.

Both axes are logarithmic, so that equal rates are parallel lines. Colours follow the reader's light or dark scheme; the
background is painted, so that nothing depends on the page behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT = 860, 510
LEFT, RIGHT, TOP, BOTTOM = 56, 232, 84, 84
NICE = (1, 2, 3, 5)
STYLE = """
  .paper { fill: #ffffff } .ink { fill: #24292f } .faint { fill: #57606a }
  .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #57606a; stroke-width: 1 }
  .ours { stroke: #0969da; fill: #0969da } .flex { stroke: #bc4c00; fill: #bc4c00 }
  .dense { stroke: #6e7781; fill: #6e7781 } .limit { stroke: #1a7f37; fill: #1a7f37 }
  .wish { stroke: #8250df; fill: #8250df }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 }
    .grid { stroke: #30363d } .axis { stroke: #9198a1 }
    .ours { stroke: #58a6ff; fill: #58a6ff } .flex { stroke: #f0883e; fill: #f0883e }
    .dense { stroke: #9198a1; fill: #9198a1 } .limit { stroke: #3fb950; fill: #3fb950 }
    .wish { stroke: #bc8cff; fill: #bc8cff }
  }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; stroke: none !important }
  .title { font-size: 16px; font-weight: 600 } .small { font-size: 12px }
  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round }
  .dashed { stroke-dasharray: 6 5 } .dotted { stroke-dasharray: 2 4 }
"""
Point = tuple[float, float]  # density, milliseconds


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of the picture; two points are enough for what does not depend on the density."""

    name: str
    look: str  # ours, flex, dense, limit, wish
    points: tuple[Point, ...]
    dashes: str = ""
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Scales:
    """From density and milliseconds to places in the picture."""

    densities: Point
    times: Point

    def x(self, density: float) -> float:
        low, high = self.densities
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(density / low) / math.log(high / low)

    def y(self, time: float) -> float:
        low, high = self.times
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(time / low) / math.log(high / low)


def picture(found: dict[str, Any]) -> str:
    """The SVG of a results document with a sweep."""
    curves = curves_of(found["parts"]["sweep"])
    blocks = round(max(row["blocks_per_row"] / row["density"] for row in found["parts"]["sweep"]))
    scales = scales_of(curves)
    labels = [label for each in labels_of(curves, scales) for label in each]
    where = f"{found['gpu']['name']}, torch {found['software']['torch']}, {found['date']}"
    sizes = found["parts"]["sweep"][0]["sizes"].split("-")
    shape = " ".join(f"{one[0].upper()}{one[1:]}" for one in sizes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="name"><title id="name">Time of attention against the share of blocks computed</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        _text(20, 28, "Attention forward: time against density", "ink title"),
        _text(20, 47, f"{shape}, fp16, lists of 128 x 128 blocks; {where}; medians of bursts", "faint small"),
        *grid(scales, blocks),
        *(line for curve in curves for line in drawn(curve, scales)),
        *labels,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def curves_of(rows: Sequence[dict[str, Any]]) -> tuple[Curve, ...]:
    """What the sweep measured; a line is left out where nothing was."""
    rows = sorted(rows, key=lambda row: float(row["density"]))
    ends = (float(rows[0]["density"]), float(rows[-1]["density"]))

    def across(field: str) -> tuple[Point, ...]:
        return tuple((float(row["density"]), float(row[field])) for row in rows if row.get(field))

    def level(field: str, share: float = 1.0) -> tuple[Point, ...]:
        time = next((float(row[field]) for row in rows if row.get(field)), None)
        return () if time is None else tuple((end, time * share) for end in ends)

    made = (
        Curve("cuDNN, full", "dense", level("cudnn_full_ms")),
        Curve("cuDNN, causal", "dense", level("cudnn_causal_ms"), "dashed"),
        Curve("a fifth of cuDNN causal", "wish", level("cudnn_causal_ms", 0.2), "dotted"),
        Curve("the limit (roofline)", "limit", across("limit_ms"), "dashed"),
        Curve("FlexAttention", "flex", across("flex_ms"), dots=True),
        Curve("firstlight", "ours", across("ms"), dots=True),
    )
    return tuple(curve for curve in made if curve.points)


def scales_of(curves: Sequence[Curve]) -> Scales:
    densities = [density for curve in curves for density, _ in curve.points]
    times = [time for curve in curves for _, time in curve.points]
    return Scales((min(densities) / 1.06, max(densities)), (min(times) / 1.25, max(times) * 1.15))


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... between two numbers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**decade for decade in decades for digit in NICE if low <= digit * 10.0**decade <= high * 1.001]


def grid(scales: Scales, blocks: int) -> list[str]:
    """Lines, the numbers beside them and what they are."""
    left, right, floor = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM
    made = []
    for time in ticks(*scales.times):
        y = scales.y(time)
        made.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        made.append(_text(left - 8, y + 4.5, f"{time:g}", "faint", anchor="end"))
    for density in ticks(*scales.densities):
        x = scales.x(density)
        made.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{floor}"/>')
        made.append(_text(x, floor + 19, f"{density:g}", "faint", anchor="middle"))
        made.append(_text(x, floor + 36, f"{density * blocks:.3g}", "faint small", anchor="middle"))
    made.append(f'<line class="axis" x1="{left}" y1="{floor}" x2="{right}" y2="{floor}"/>')
    middle = (left + right) / 2
    made.append(_text(left - 8, TOP - 8, "ms", "faint", anchor="end"))
    words = f"share of the blocks that is computed; below it key blocks a row, of {blocks}"
    made.append(_text(middle, floor + 62, words, "ink", anchor="middle"))
    return made


def drawn(curve: Curve, scales: Scales) -> list[str]:
    """The line, and a dot at each measured density."""
    places = [(scales.x(density), scales.y(time)) for density, time in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    made = [f'<polyline class="line {curve.look} {curve.dashes}" style="fill:none" points="{path}"/>']
    if curve.dots:
        made += [f'<circle class="{curve.look}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
    return made


def labels_of(curves: Sequence[Curve], scales: Scales) -> list[list[str]]:
    """The name of each curve at its right end, moved apart where they would touch."""
    gap = 17.0
    wanted = sorted((scales.y(curve.points[-1][1]), place) for place, curve in enumerate(curves))
    spots = [y for y, _ in wanted]
    for _ in range(40):
        for one in range(1, len(spots)):
            short = gap - (spots[one] - spots[one - 1])
            if short > 0:
                spots[one - 1] -= short / 2
                spots[one] += short / 2
    made = []
    for spot, (y, place) in zip(spots, wanted, strict=True):
        curve, end = curves[place], WIDTH - RIGHT
        lead = f'x1="{end + 3}" y1="{y:.1f}" x2="{end + 15}" y2="{spot:.1f}" stroke-width="1"'
        name = _text(end + 19, spot + 4.5, f"{curve.name} {_ms(curve.points[-1][1])}", curve.look)
        made.append([f'<line class="{curve.look}" {lead}/>', name])
    return made


def _ms(time: float) -> str:
    return f"{time:.1f} ms" if time >= 1 else f"{time:.2f} ms"


def _text(x: float, y: float, words: str, look: str, *, anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'

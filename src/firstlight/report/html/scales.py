"""Where a value lies on a chart: linear and logarithmic axes with round ticks."""

from __future__ import annotations

import math

from firstlight.frozen import dataclass
from firstlight.report.html.markup import Markup, el, joined

_LETTER, _WIDE = 7.6, 11.5  # pixels of DejaVu Sans at 12.5, the widest of the fonts that look.css names


@dataclass(frozen=True, slots=True)
class Axis:
    """From values low..high to pixels start..end, e.g. Axis(0, 100, 40, 440) puts 50 at 240."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class LogAxis:
    """The same with equal factors at equal distances; low is above 0."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.high / self.low)
        share = math.log(max(value, self.low) / self.low) / span if span > 0 else 0.5
        return self.start + min(1.0, share) * (self.end - self.start)


def decades(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten from low to high: (0.1, 1, 10)."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return tuple(10.0**power for power in range(first, last + 1))


def round_ticks(low: float, high: float, *, about: int = 4) -> tuple[float, ...]:
    """Round values between low and high: (0, 200, 400, 600) of 0..700."""
    if high <= low:
        return (low,)
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= about + 0.5)
    first = math.ceil(low / step - 1e-9)
    return tuple(round((first + index) * step, 12) for index in range(int((high - first * step) / step + 1e-9) + 1))


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str) -> Markup:
    """A straight line."""
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def label(x: float, y: float, text: str, **attributes: str) -> Markup:
    """Text in a chart."""
    return el("text", text, x=float(x), y=float(y), **attributes)


def text_width(text: str) -> float:
    """About how many pixels a label takes, rather too many: 86 for 'gemm, burst'."""
    return sum(_WIDE if letter.isupper() or letter in "%+mwMW@" else _LETTER for letter in text)


def fitted(text: str, room: float) -> str:
    """The label, cut with dots where it is wider than that many pixels."""
    if text_width(text) <= room:
        return text
    while text and text_width(text) + 3 * _LETTER > room:
        text = text[:-1]
    return f"{text}..."


def drawing(width: float, height: float, *parts: str, name: str, class_: str = "chart") -> Markup:
    """An SVG that scales with the page; `name` is what a screen reader calls it."""
    return el(
        "svg", joined(parts), viewBox=f"0 0 {width:g} {height:g}", class_=class_, role="group", aria_label=name,
        width=float(width), height=float(height),
    )  # fmt: skip

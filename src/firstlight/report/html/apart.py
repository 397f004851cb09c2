"""Marks that would hide each other, moved to the nearest free spot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from firstlight.frozen import dataclass

TURNS = 16  # directions that are tried around a spot
MOST_RINGS = 60


@dataclass(frozen=True, slots=True)
class Area:
    """The stretch of a chart in which marks may stand."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, spot: complex) -> bool:
        return self.left <= spot.real <= self.right and self.top <= spot.imag <= self.bottom


def apart(spots: Sequence[complex], *, gap: float, area: Area) -> tuple[complex, ...]:
    """Where to draw each of x + yi: its own spot while that is free, else the nearest that is `gap` from all others."""
    placed: list[complex] = []
    for spot in spots:
        placed.append(next((try_ for try_ in _around(spot, gap, area) if _is_free(try_, placed, gap)), spot))
    return tuple(placed)


def lanes(xs: Sequence[float], *, gap: float) -> tuple[int, ...]:
    """A lane for each mark of one row so that those side by side do not touch: 0, then 1, -1, 2, -2."""
    taken: list[tuple[float, int]] = []
    for x in xs:
        near = {lane for other, lane in taken if abs(other - x) < gap}
        lane = next(each for each in _by_turns(len(xs)) if each not in near)
        taken.append((x, lane))
    return tuple(lane for _, lane in taken)


def _by_turns(count: int) -> Iterator[int]:
    yield 0
    for lane in range(1, count + 1):
        yield from (lane, -lane)


def _around(spot: complex, gap: float, area: Area) -> Iterator[complex]:
    """The spot itself, then rings around it, the nearest first."""
    yield spot
    for ring in range(1, MOST_RINGS):
        for turn in range(TURNS):
            try_ = spot + ring * gap / 2 * complex(math.cos(turn * math.tau / TURNS), math.sin(turn * math.tau / TURNS))
            if area.holds(try_):
                yield try_


def _is_free(spot: complex, placed: Sequence[complex], gap: float) -> bool:
    return all(abs(spot - other) >= gap - 1e-6 for other in placed)

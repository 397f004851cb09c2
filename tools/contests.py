"""Files of benchmarks.rivals and benchmarks.ragged: read, refused without evidence, and put into words.

A contest is one case: everybody's time on the same numbers in one process, and why who has no time has none.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS, REGIMES = "ours", ("burst_ms", "sustained_ms")
NAMED = 3  # more rows than this are counted


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one contender, e.g. Times(9.7, 10.5)."""

    burst_ms: float
    sustained_ms: float
    apart: float  # the slowest of its samples over the fastest, of the regime where they differ more, e.g. 1.06

    def over(self, other: Times) -> Times:
        """As times the other's."""
        return Times(self.burst_ms / other.burst_ms, self.sustained_ms / other.sustained_ms, self.apart)


@dataclass(frozen=True, slots=True)
class Contest:
    """One row of a file."""

    name: str  # of the mask or the batch, e.g. 'lists 0.25'
    backward: bool
    row: dict[str, Any]  # shape, density and the like, as the file has them
    times: dict[str, Times]
    why_not: dict[str, str]  # of those without a time

    def ratio(self, contender: str) -> Times:
        """Its time over ours."""
        return self.times[contender].over(self.times[OURS])

    def fastest(self) -> tuple[str, str]:
        """Whose burst and whose sustained figure is the smallest."""
        return self.fastest_of(tuple(self.times))

    def fastest_of(self, names: tuple[str, ...]) -> tuple[str, str]:
        """The same among these."""
        times = self.times
        return min(names, key=lambda one: times[one].burst_ms), min(names, key=lambda one: times[one].sustained_ms)


@dataclass(frozen=True, slots=True)
class Contests:
    """A whole file."""

    about: dict[str, Any]  # date, commit, gpu, driver, torch, versions
    rows: tuple[Contest, ...]

    def way(self, *, backward: bool) -> tuple[Contest, ...]:
        """The rows of one direction."""
        return tuple(row for row in self.rows if row.backward == backward)

    @property
    def apart(self) -> str:
        """How far samples of one figure lie apart: 'half of them within 1 %, the worst 6 %'."""
        shares = [100 * (times.apart - 1) for row in self.rows for times in row.times.values()]
        return f"half of them within {statistics.median(shares):.1f} %, the worst {max(shares):.0f} %"


def read(path: Path) -> Contests:
    """The file, refused where a figure lacks its code, its answer held against float64, its samples or its clocks."""
    found: dict[str, Any] = json.loads(path.read_text())
    name = f"results/{path.name}"
    if found["commit"] in (None, "", "not told"):
        sys.exit(f"{name} names no commit")
    if not found["rows"]:
        sys.exit(f"{name} holds no rows")
    rows = tuple(_contest(row, name) for row in found["rows"])
    return Contests({key: value for key, value in found.items() if key != "rows"}, rows)


def _contest(row: dict[str, Any], file: str) -> Contest:
    times, why_not = {}, {}
    for name, contender in row["contenders"].items():
        spot = f"{file}: {row['case']}, {name}"
        if reason := contender.get("takes no part"):
            why_not[name] = reason
            continue
        if not contender.get("error"):
            sys.exit(f"{spot} was not held against float64")
        samples = contender["samples"]
        if not all(len(samples[regime]) >= 2 for regime in REGIMES):
            sys.exit(f"{spot} holds fewer than two samples")
        if not samples["clock_mhz"] or not all(samples["clock_mhz"]):
            sys.exit(f"{spot} holds no clocks")
        apart = max(max(samples[regime]) / min(samples[regime]) for regime in REGIMES)
        times[name] = Times(contender["burst_ms"], contender["sustained_ms"], apart)
    if OURS not in times:
        sys.exit(f"{file}: {row['case']} has no time of ours")
    return Contest(row["name"], row["backward"], row, times, why_not)


def pair(times: Times, digits: int = 2) -> str:
    """e.g. '9.70 / 10.47', burst and sustained."""
    return f"{times.burst_ms:.{digits}f} / {times.sustained_ms:.{digits}f}"


def ratio_cell(row: Contest, contender: str) -> str:
    """Its time over ours, or a dash."""
    return pair(row.ratio(contender)) if contender in row.times else "-"


def ahead_cell(row: Contest, called: dict[str, str]) -> str:
    """Who is the fastest; two names where burst and sustained figures differ on it."""
    burst, sustained = (called[name] for name in row.fastest())
    return burst if burst == sustained else f"{burst} / {sustained}"


def standing(rows: Sequence[Contest], contender: str, called: str) -> str:
    """How one contender stands to ours over those of these rows that it takes, in a sentence."""
    rows = [row for row in rows if contender in row.times]
    faster = [row for row in rows if max(_both(row, contender)) < 1]
    slower = [row for row in rows if min(_both(row, contender)) > 1]
    level = [row for row in rows if row not in faster and row not in slower]
    parts = [
        f"{verb} in {_which(some, rows)} ({spread(some, contender)} {of_ours})"
        for some, verb, of_ours in (
            (faster, "faster", "of our time"), (slower, "slower", "times our time"),
            (level, "faster in one figure and slower in the other", "times our time"),
        )
        if some
    ]  # fmt: skip
    return f"{called} is {listed(parts)}."


def spread(rows: Sequence[Contest], contender: str) -> str:
    """Its time over ours in these rows, e.g. '1.03 to 1.70'; rows without it do not count."""
    found = [f"{ratio:.2f}" for row in rows if contender in row.times for ratio in _both(row, contender)]
    low, high = min(found, key=float), max(found, key=float)
    return low if low == high else f"{low} to {high}"


def label(row: Contest, rows: Sequence[Contest]) -> str:
    """Its name, with the length where another of the rows has that name, e.g. '`causal` at 4096'."""
    alone = [other.name for other in rows].count(row.name) == 1
    return f"`{row.name}`" if alone else f"`{row.name}` at {row.row['shape'][2]}"


def listed(names: Sequence[str]) -> str:
    """e.g. 'a, b and c'."""
    return ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1]


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, words: int) -> str:
    """The first `words` columns and the last are text, the others numbers."""
    marks = ["---"] * words + ["--:"] * (len(heads) - words - 1) + ["---"]
    return "\n".join([_line(heads), f"|{'|'.join(marks)}|", *(_line(each) for each in lines)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _both(row: Contest, contender: str) -> tuple[float, float]:
    found = row.ratio(contender)
    return found.burst_ms, found.sustained_ms


def _which(some: Sequence[Contest], rows: Sequence[Contest]) -> str:
    """Names where they are few, else how many."""
    if len(some) == len(rows):
        return f"all {len(rows)} rows that it takes" if rows[1:] else f"{label(rows[0], rows)}, the one that it takes"
    return listed([label(row, rows) for row in some]) if len(some) <= NAMED else f"{len(some)} of {len(rows)} rows"

"""Summaries of samples, and the test that decides whether two sets of passes differ.

The unit of repetition is the pass: samples of one pass share its heat, its buffers and its clocks, so tests on pooled
samples call noise a change in most A/A runs. Here the log of the pass medians is compared.
"""

from __future__ import annotations

import enum
import itertools
import math
import statistics as plain
from collections.abc import Sequence

from firstlight.bench.distributions import median_ranks, t_quantile, t_tail
from firstlight.bench.results import TimeSummary
from firstlight.frozen import dataclass

LEAST_PASSES = 3  # two passes a side leave two degrees of freedom: rates and limits, but no verdict
P95_FROM = 40
MOST_DF = 1000  # from there on Student's t is the normal distribution


class Change(enum.Enum):
    """The verdict on one case."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Difference:
    """New against base on a log scale: log_ratio 0.05 is 5 % slower; the intervals are of the same scale."""

    log_ratio: float
    ci95: tuple[float, float]
    ci90: tuple[float, float]
    p_value: float
    df: int

    @property
    def ratio(self) -> float:
        """New time over base time, e.g. 1.051."""
        return math.exp(self.log_ratio)


@dataclass(frozen=True, slots=True)
class Background:
    """What is known beyond the passes of one case, both on a log scale: 0.01 is 1 %.

    Three passes tell their own spread badly, so `floor`, that of the family, counts as much as two more of them.
    `between` is how much two processes running the same code differ, which no number of passes in one process shows.
    """

    floor: float | None = None
    between: float = 0.0


NO_BACKGROUND = Background()
FLOOR_WEIGHT = 2  # degrees of freedom, as many as three passes have


def summarise(samples: Sequence[float], *, half_width: float, least_n: int) -> TimeSummary:
    """The summary of samples in seconds; ci_reached when n and the interval's half-width (0.005: 0.5 %) suffice."""
    ordered = sorted(samples)
    middle = plain.median(ordered)
    low, high = median_interval(samples)
    reached = len(ordered) >= least_n and (high - low) / 2 <= half_width * middle
    return TimeSummary(
        median=middle,
        ci95=(low, high),
        min=ordered[0],
        q1=_at(ordered, 0.25),
        q3=_at(ordered, 0.75),
        mad=plain.median(abs(sample - middle) for sample in ordered),
        n=len(ordered),
        n_eff=effective_count(samples),
        ci_reached=reached,
        p95=_at(ordered, 0.95) if len(ordered) >= P95_FROM else None,
    )


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The order-statistic interval of the median, widened for samples that follow each other; no normality assumed."""
    ordered = sorted(samples)
    n = len(ordered)
    rank = median_ranks(n, confidence)[0]
    if (worth := int(effective_count(samples))) < n:
        fewer = median_ranks(worth, confidence)[0]
        # The same share of the range that so few independent samples would need.
        rank = 1 if fewer == 1 else min(rank, max(1, fewer * (n + 1) // (worth + 1)))
    return ordered[rank - 1], ordered[n - rank]


def effective_count(samples: Sequence[float]) -> float:
    """How many independent samples these are worth, from the lag-1 correlation; never more than there are."""
    n = len(samples)
    if n < 3 or min(samples) == max(samples):
        return float(n)
    mean = math.fsum(samples) / n
    away = [sample / mean - 1 for sample in samples]
    spread = math.fsum(each * each for each in away)
    rho = math.fsum(a * b for a, b in itertools.pairwise(away)) / spread if spread > 0 else 0.0
    return float(n) if rho <= 0 else max(1.0, n * (1 - rho) / (1 + rho))


def compare_passes(
    base: Sequence[float], new: Sequence[float], background: Background = NO_BACKGROUND
) -> Difference | None:
    """Welch's t on the log of the pass medians, degrees of freedom rounded down; None with fewer than 2 a side."""
    if min(len(base), len(new)) < 2:
        return None
    first, second = [math.log(value) for value in base], [math.log(value) for value in new]
    delta = plain.fmean(second) - plain.fmean(first)
    sides = _side(first, background.floor), _side(second, background.floor)
    known = 2 * background.between**2
    error, df = math.sqrt(sum(part for part, _ in sides) + known), _welch_df(sides, known)
    wide, narrow = t_quantile(0.975, df) * error, t_quantile(0.95, df) * error
    if error == 0:  # passes as equal as the timer can tell
        return Difference(delta, (delta, delta), (delta, delta), 1.0 if delta == 0 else 0.0, df)
    p_value = min(1.0, 2 * t_tail(abs(delta) / error, df))
    return Difference(delta, (delta - wide, delta + wide), (delta - narrow, delta + narrow), p_value, df)


def _side(logs: Sequence[float], floor: float | None) -> tuple[float, int]:
    """The variance of one side's mean and its degrees of freedom, the family's noise weighed in."""
    own, freedom = plain.variance(logs), len(logs) - 1
    if floor is not None:
        own = (freedom * own + FLOOR_WEIGHT * floor**2) / (freedom + FLOOR_WEIGHT)
        freedom += FLOOR_WEIGHT
    return own / len(logs), freedom


def verdict_of(difference: Difference | None, margin: float) -> Change:
    """SLOWER or FASTER when the 95 % interval leaves 0 out and the change is above the margin (0.03: 3 %).

    SAME when the 90 % interval lies inside the margin on both sides (equivalence); else UNCLEAR.
    """
    if difference is None:
        return Change.UNCLEAR
    limit = math.log1p(margin)
    if difference.ci95[0] > 0 and difference.log_ratio > limit:
        return Change.SLOWER
    if difference.ci95[1] < 0 and difference.log_ratio < -limit:
        return Change.FASTER
    return Change.SAME if -limit < difference.ci90[0] and difference.ci90[1] < limit else Change.UNCLEAR


def noise_floor(passes: Sequence[Sequence[float]]) -> float | None:
    """The spread of pass medians on a log scale, pooled over cases and sides; None without two passes of one case."""
    squares, freedom = 0.0, 0
    for medians in passes:
        if len(medians) >= 2:
            squares += plain.variance([math.log(value) for value in medians]) * (len(medians) - 1)
            freedom += len(medians) - 1
    return math.sqrt(squares / freedom) if freedom else None


def smallest_detectable(background: Background, passes: int, margin: float) -> float | None:
    """The smallest change (0.05: 5 %) found four times in five with this noise and so many passes a side."""
    if background.floor is None or passes < 2:
        return None
    side = background.floor**2 / passes, passes - 1 + FLOOR_WEIGHT
    known = 2 * background.between**2
    reach = (t_quantile(0.975, _welch_df((side, side), known)) + 0.84) * math.sqrt(2 * side[0] + known)
    return max(margin, math.expm1(reach))


def false_discoveries_held(p_values: Sequence[float], q: float = 0.05) -> tuple[bool, ...]:
    """Benjamini-Hochberg: which p-values stay significant when so many are looked at, e.g. (True, False)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    kept = 0
    for rank, index in enumerate(order, start=1):
        if p_values[index] <= q * rank / len(p_values):
            kept = rank
    chosen = set(order[:kept])
    return tuple(index in chosen for index in range(len(p_values)))


def _welch_df(sides: tuple[tuple[float, int], tuple[float, int]], known: float) -> int:
    """Satterthwaite's degrees of freedom; a known variance has as many as anybody wants."""
    total = sum(part for part, _ in sides) + known
    if total == 0:
        return sum(freedom for _, freedom in sides)
    bottom = sum(part**2 / freedom for part, freedom in sides)
    if bottom == 0:  # variances so small that their squares vanish
        return MOST_DF if known else min(freedom for _, freedom in sides)
    return min(MOST_DF, max(1, math.floor(total**2 / bottom + 1e-9)))


def _at(ordered: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between order statistics."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

"""Student's t and the binomial at one half, without numpy: quantiles and tails to about twelve digits."""

from __future__ import annotations

import functools
import math

_TINY = 1e-300
_STEPS = 300


def t_tail(t: float, df: float) -> float:
    """The probability of a value above t: 0.025 for t = 2.776 with 4 degrees of freedom."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    # below t^2 = df by the other end: near t = 0 the distance of df / (df + t^2) from 1 is lost in rounding
    if t * t < df:
        half = 0.5 - 0.5 * _incomplete_beta(t * t / (df + t * t), 0.5, df / 2)
    else:
        half = 0.5 * _incomplete_beta(df / (df + t * t), df / 2, 0.5)
    return half if t >= 0 else 1 - half


@functools.cache
def t_quantile(probability: float, df: float) -> float:
    """The value with this probability below it: 2.7764 for 0.975 and 4 degrees of freedom."""
    if not 0 < probability < 1 or df <= 0:
        raise ValueError(f"t_quantile({probability}, {df}): accepted: a probability between 0 and 1 and df above 0")
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > 1 - probability else (low, middle)
        if high - low <= 1e-13 * high:
            break
    return (low + high) / 2


@functools.cache
def median_ranks(n: int, confidence: float) -> tuple[int, int]:
    """Ranks (from 1) whose order statistics hold the median with this confidence: (2, 10) of 11 samples at 95 %.

    With too few samples for the confidence it is the whole range: (1, n).
    """
    tail, allowed = 0.5**n, (1 - confidence) / 2
    rank, term = 1, 0.5**n
    while rank < n // 2:
        term *= (n - rank + 1) / rank
        if tail + term > allowed:
            break
        tail += term
        rank += 1
    return rank, n + 1 - rank


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

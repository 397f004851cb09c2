"""What an option takes: the sums of its ways, and the money that the minutes are."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.option import Cost
from firstlight.plan.request import Request
from firstlight.tables import Tables
from firstlight.ways.costs import bytes_of_all, seconds_of_all
from firstlight.ways.way import Way
from firstlight.ways.wheels_fetched import Asked

_UNPACKED = Unknown("what it takes once unpacked is not on record")
_NO_RATE_USED = Unknown("nothing is fetched")


def cost_of(ways: tuple[Way, ...], facts: Facts, tables: Tables, request: Request) -> Cost:
    """Minutes, bytes and money of a chain; 0 only where nothing is fetched, built or waited for."""
    size = bytes_of_all(ways, facts, tables, request.sizes)
    seconds = seconds_of_all(ways, Asked(facts, tables, request.sizes), request.download_rate)
    minutes = seconds if isinstance(seconds, Unknown) else replace(seconds, value=seconds.value / 60)
    fetches = isinstance(size, Unknown) or size.value > 0
    return Cost(
        minutes=minutes,
        download_bytes=size,
        disk_bytes=_UNPACKED if fetches else size,
        money=_money(minutes, request.rate),
        download_rate=request.download_rate if fetches else _NO_RATE_USED,
    )


def _money(minutes: Fact[float], rate: Fact[float]) -> Fact[float]:
    if isinstance(minutes, Unknown):
        return Unknown("the minutes are not known")
    if isinstance(rate, Unknown):
        return rate
    if minutes.value == 0:
        return Known(0.0, minutes.seen_in)
    return Known(minutes.value / 60 * rate.value, f"{rate.value} an hour ({rate.seen_in})")

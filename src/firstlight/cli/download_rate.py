"""How fast downloads are: --download-rate, else what apply measured here, else an assumption."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from firstlight.errors import BadInput
from firstlight.facts.known import Fact, Known, Origin
from firstlight.facts.look import Look

if TYPE_CHECKING:
    from firstlight.plan.request import Request

_UNITS = {
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
    "kbit": 125.0, "mbit": 125e3, "gbit": 125e6,
}  # fmt: skip
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmg](?:i?b|bit))\s*(?:/\s*s)?", re.IGNORECASE)


rate_option = click.option(
    "--download-rate", "download_rate", metavar="RATE", default="",
    help="How fast this machine downloads, e.g. 50MB/s. Default: what apply measured, else 50MB/s.",
)  # fmt: skip


def parse_rate(text: str) -> Fact[float]:
    """Bytes per second of 50MB/s, 1.2GB/s or 400Mbit/s; "" is the assumption."""
    if not text:
        from firstlight.ways.costs import ASSUMED_SPEED  # not before: doctor may need no planner

        return ASSUMED_SPEED
    match = _RATE.fullmatch(text.strip())
    value = float(match["number"]) * _UNITS[match["unit"].lower()] if match else 0.0
    if not 1e3 <= value <= 1e11:
        raise BadInput(
            f"--download-rate {text!a}: accepted is a number with its unit, from 1kB/s to 100GB/s, e.g. "
            "--download-rate 50MB/s or --download-rate 400Mbit/s."
        )
    return Known(value, "--download-rate")


def at_the_rate_here(request: Request, look: Look) -> Request:
    """The request with what apply measured, where this machine is looked at and nobody stated a rate."""
    given = request.download_rate
    if look.is_elsewhere or not isinstance(given, Known) or given.origin is not Origin.ASSUMED:
        return request
    from firstlight.apply.download_rate import kept_rate
    from firstlight.machine.live import LiveMachine

    kept = kept_rate(LiveMachine())
    return replace(request, download_rate=kept) if isinstance(kept, Known) else request

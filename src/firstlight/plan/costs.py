"""What an option takes: minutes and money follow from bytes, the download speed and the rate; nothing is a constant."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.option import Cost
from firstlight.plan.request import Request

NOTHING = Known(0, "nothing is downloaded or built")


def cost(request: Request, *, download: Fact[int], disk: Fact[int], waits: str = "") -> Cost:
    """The cost of fetching some bytes; `waits` says what else takes time of which no length is known, e.g. a reboot."""
    minutes = _minutes(request, download, waits)
    return Cost(minutes, download, disk, _money(request, minutes))


def no_cost(request: Request) -> Cost:
    """The cost of an option that fetches, builds and waits for nothing."""
    return cost(request, download=NOTHING, disk=NOTHING)


def not_known(request: Request, reason: str) -> Cost:
    """The cost of an option of which nothing is known, e.g. another machine."""
    return cost(request, download=Unknown(reason), disk=Unknown(reason), waits=reason)


def summed(parts: tuple[Fact[int], ...]) -> Fact[int]:
    """The bytes of all parts; Unknown where one of them is."""
    unknown = next((part for part in parts if isinstance(part, Unknown)), None)
    if unknown is not None:
        return unknown
    known = [part for part in parts if isinstance(part, Known)]
    sources = dict.fromkeys(part.seen_in for part in known if part.value)
    return Known(sum(part.value for part in known), "; ".join(sources) or NOTHING.seen_in)


def _minutes(request: Request, download: Fact[int], waits: str) -> Fact[float]:
    if waits:
        return Unknown(waits)
    if isinstance(download, Unknown):
        return Unknown(f"the size is not known: {download.reason}")
    if download.value == 0:
        return Known(0.0, download.seen_in)
    speed = request.download_rate
    if isinstance(speed, Unknown):
        return speed
    return Known(
        download.value / speed.value / 60,
        f"{download.value / 1e9:.2f} GB at {speed.value / 1e6:.0f} MB/s ({speed.seen_in}); unpacking not counted",
    )


def _money(request: Request, minutes: Fact[float]) -> Fact[float]:
    if isinstance(minutes, Unknown):
        return Unknown("the minutes are not known")
    if minutes.value == 0:
        return Known(0.0, minutes.seen_in)
    if isinstance(request.rate, Unknown):
        return request.rate
    return Known(minutes.value / 60 * request.rate.value, f"{request.rate.value} an hour ({request.rate.seen_in})")

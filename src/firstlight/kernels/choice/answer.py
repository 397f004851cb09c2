"""The answer to "which backend": as named, or the one that is expected to take the least time, and why.

Products and attention each bring an Asking: what they ask the models, what keeps a backend from running, and what is
taken where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from firstlight.kernels.backends import BACKENDS
from firstlight.kernels.choice.models import Estimate, Models, models_for

WORTH = 0.8  # of the time with all that is prepared, above which the first calls take what the others take
NEW_CALLS = 2  # calls with a new pattern that are not worth preparing much for


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend that a call takes and the reason, e.g. Choice('sm90', 'sm90 83.1 us, triton 120 us, ...')."""

    backend: str
    why: str


generation = 0  # counts forget(): what was kept of an older one is not taken


def forget(*kept: Any) -> None:
    """Makes the next calls choose again; kept: functools' caches of those who choose."""
    global generation
    generation += 1
    for cache in (*kept, models_for):
        cache.cache_clear()


class Answer(NamedTuple):
    """What auto takes from the third call on, and before, where that costs less in all."""

    settled: Choice
    at_first: Choice

    @property
    def is_settled(self) -> bool:
        """Whether both are one."""
        return self.settled.backend == self.at_first.backend


class Asking(NamedTuple):
    """How one kind of question is asked."""

    auto: Callable[[Any], Answer]
    require: Callable[[str, Any], None]  # raises where a named backend does not exist or cannot run


def answer(name: str, question: Any, asking: Asking) -> Answer:
    """The choice for a backend name as the caller gave it."""
    if name == "auto":
        return asking.auto(question)
    asking.require(name, question)
    return _AS_NAMED[name]


def same(choice: Choice) -> Answer:
    """An answer that does not change after the first calls."""
    return Answer(choice, choice)


_AS_NAMED = {name: same(Choice(name, "it was asked for")) for name in BACKENDS}


def shortest(offers: Mapping[str, Estimate], prepare_us: Mapping[str, float], models: Models) -> Answer:
    """The backend that is expected to take the least time; at first the least with what it prepares."""
    settled = min(offers, key=lambda name: offers[name].us)
    at_first = min(offers, key=lambda name: _whole(offers, prepare_us, name))
    if _whole(offers, prepare_us, at_first) > WORTH * _whole(offers, prepare_us, settled):
        at_first = settled
    told = Choice(settled, f"{_times(offers)}: {_fitted(offers[settled], models)}")
    if at_first == settled:
        return same(told)
    waits = ", ".join(f"{name} {prepare_us.get(name, 0.0) / 1e3:.2f} ms" for name in (at_first, settled))
    return Answer(told, Choice(at_first, f"a new pattern costs {waits} once; from call {NEW_CALLS + 1} on {settled}"))


def _whole(offers: Mapping[str, Estimate], prepare_us: Mapping[str, float], name: str) -> float:
    return offers[name].us + prepare_us.get(name, 0.0)


def together(parts: list[Estimate]) -> Estimate:
    """One estimate of several one after the other, e.g. of a dense copy and the product with it."""
    total = sum(part.us for part in parts)
    error = sum(part.us * part.error for part in parts) / max(total, 1e-9)
    return Estimate(total, min(part.rows for part in parts), error)


def _times(offers: Mapping[str, Estimate]) -> str:
    ordered = sorted(offers.items(), key=lambda item: item[1].us)
    return ", ".join(f"{name} {_shown(offer.us)} us" for name, offer in ordered)


def _shown(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def _fitted(offer: Estimate, models: Models) -> str:
    trouble = f" ({models.trouble})" if models.trouble else ""
    return f"fitted to {offer.rows} {models.source}, half of which it meets within {100 * offer.error:.0f} %{trouble}"

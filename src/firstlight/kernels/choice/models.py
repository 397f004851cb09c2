"""What each backend is expected to take on the card at hand: fits of the rows that were measured, or are borrowed.

Rows that ship with the package are fitted; those of another card are borrowed where it is of the same family (compute
capability 9.0) and scaled by multiprocessors, clock and bandwidth. Rows that autotune wrote on this card correct them,
or stand alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firstlight.errors import BadInput
from firstlight.kernels.choice.cases import Case
from firstlight.kernels.choice.fit import Fit, corrected, fitted, kind_of, times_by_kind
from firstlight.kernels.choice.made import Made, made_for
from firstlight.kernels.choice.rows import Card, Machine, own, shipped

FIRST = "new "  # see measuring.py
USUAL = 0.5  # of the rows


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a backend is expected to take and how well that is known, e.g. 83 us from 576 rows, half within 8 %."""

    us: float
    rows: int
    error: float


class Models:
    """The fits for one card, each made when it is first asked for."""

    def __init__(
        self, card: Card, base: Machine | None, mine: Machine | None = None, *, trouble: str = "",
        made: Mapping[tuple[str, ...], Made] | None = None,
    ) -> None:  # fmt: skip
        self.card = card
        self.base = base
        self.mine = mine
        self.trouble = trouble  # why rows that are there cannot be read
        self._base_times = {} if base is None else times_by_kind(base.rows)
        self._own_times = {} if mine is None else times_by_kind(mine.rows)
        self._made = {} if made is None else made  # what was fitted to the base before
        self._fits: dict[tuple[str, ...], Fit | None] = {}

    @property
    def is_borrowed(self) -> bool:
        """Whether the rows are another card's."""
        return self.base is not None and self.base.card.gpu != self.card.gpu

    def fit(self, kind: tuple[str, ...]) -> Fit | None:
        """The fit of one kind of case, None where too little was measured."""
        if kind not in self._fits:
            base = None if self.base is None else self._base_fit(kind, self.base)
            here = self._own_times.get(kind, [])
            self._fits[kind] = fitted(kind[0], here, self.card) if base is None else corrected(base, here, self.card)
        return self._fits[kind]

    def _base_fit(self, kind: tuple[str, ...], machine: Machine) -> Fit | None:
        times = self._base_times.get(kind, [])
        if "tf32" in kind:  # few rows, and the same matrix units at half the rate
            like = self._base_fit(tuple("16 bits" if part == "tf32" else part for part in kind), machine)
            return None if like is None else corrected(like, times, machine.card)
        if kind in self._made and self._made[kind].fits(times):
            return self._made[kind].with_rows(kind[0], times, machine.card)
        return fitted(kind[0], times, machine.card)

    def estimate(self, case: Case, backend: str) -> Estimate | None:
        """What a backend is expected to take; None where nothing like it was measured."""
        found = self.fit(kind_of(case, backend))
        return None if found is None else Estimate(found.us(case, self.card), found.rows, found.error)

    def offers(self, case: Case, backends: Iterable[str]) -> dict[str, Estimate]:
        """What each of some backends is expected to take; without those of which nothing like it was measured."""
        return {name: found for name in backends if (found := self.estimate(case, name)) is not None}

    def prepare_us(self, case: Case, backend: str) -> float:
        """What a new pattern or mask costs a backend once, e.g. 3100; 0 where that was not measured."""
        kind = kind_of(case, FIRST + backend)
        rows = self._base_times.get(kind, self._own_times.get(kind, []))
        times = sorted(time for other, time in rows if other.block == case.block)
        return max(0.0, times[int(USUAL * len(times))]) if times else 0.0

    @property
    def source(self) -> str:
        """Where the times come from, e.g. 'rows measured on NVIDIA H200'."""
        if self.base is None:
            return f"rows of autotune on {self.card.gpu}"
        if self.is_borrowed:
            said = (
                f"borrowed rows of {self.base.card.gpu}, scaled to {self.card.gpu} by multiprocessors, clock and "
                "bandwidth"
            )
        else:
            said = f"rows measured on {self.base.card.gpu}"
        return said if self.mine is None else f"{said}, corrected by those of autotune here"


@functools.lru_cache(maxsize=16)
def models_for(card: Card) -> Models | str:
    """The fits for a card, or why there are none; rows are read once."""
    trouble = ""
    try:
        mine = own(card.gpu)
    except BadInput as error:
        mine, trouble = None, str(error)
    base = base_for(card, shipped())
    if base is None and mine is None:
        return trouble or f"{card.gpu} was not measured; `firstlight kernels autotune` does it"
    return Models(card, base, mine, trouble=trouble, made=None if base is None else made_for(base.card.gpu))


def base_for(card: Card, machines: Sequence[Machine]) -> Machine | None:
    """The machine of this very card, else one of its family, else None."""
    same = [machine for machine in machines if machine.card.gpu == card.gpu]
    family = [machine for machine in machines if machine.card.capability == card.capability]
    return next(iter((*same, *family)), None)

"""What ranks are told to do, as the one argument of each."""

from __future__ import annotations

from dataclasses import replace

from firstlight.bench.case import Effort
from firstlight.bench.patience import PATIENCE, Patience
from firstlight.bench.second_look import PASSES_AGAIN
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """What ranks are told to do."""

    device: str  # cpu or cuda
    nodes: int
    effort: Effort
    only: tuple[str, ...]
    most_bytes: int
    limit_s: float  # that a step may take
    again: bool  # a second look: five passes of the same length

    @property
    def patience(self) -> Patience:
        given = PATIENCE[self.effort]
        if not self.again:
            return given
        budget_s = given.pass_budget_s * PASSES_AGAIN
        return replace(given, passes=PASSES_AGAIN, sustained_passes=PASSES_AGAIN, budget_s=budget_s)

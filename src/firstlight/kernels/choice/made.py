"""Fits of the rows that ship, made beforehand: a process that chooses for the first time need not fit a thousand rows.

data/choice-fits.json is written by `python -m tools.generate choice-fits` and holds for each GPU model and kind of case
the weights of its terms, the pull of each row and the error. It counts for the very rows it was made of alone: those
whose file has the digest that it names. Anything else is fitted when it is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstlight.kernels.choice import rows
from firstlight.kernels.choice.cases import Case
from firstlight.kernels.choice.fit import Fit, marks_tensor, pull_tensor
from firstlight.kernels.choice.rows import Card

SCHEMA = "firstlight.choice-fits/1"
MADE = Path(__file__).parent.parent / "data" / "choice-fits.json"


@dataclass(frozen=True, slots=True)
class Made:
    """One fit as it is kept, e.g. 16 weights and 966 pulls."""

    weights: tuple[float, ...]
    pull: tuple[float, ...]
    error: float

    def fits(self, times: Sequence[tuple[Case, float]]) -> bool:
        """Whether it was made of as many rows."""
        return len(self.pull) == len(times)

    def with_rows(self, backend: str, times: Sequence[tuple[Case, float]], card: Card) -> Fit:
        """The fit that it is kept of."""
        marks = marks_tensor([case for case, _ in times], backend, card)
        return Fit(backend, card, self.weights, marks, pull_tensor(self.pull), len(times), self.error)


def made_for(gpu: str) -> dict[tuple[str, ...], Made]:
    """The fits that were made of a GPU model's shipped rows; none where the rows are others."""
    try:
        kept: Any = json.loads(MADE.read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA or kept["rows_sha256"] != rows_digest():
            return {}
    except (OSError, ValueError, KeyError):
        return {}
    return {
        tuple(one["kind"]): Made(tuple(one["weights"]), tuple(one["pull"]), float(one["error"]))
        for one in kept["machines"].get(gpu, [])
    }


def rows_digest() -> str:
    """Of the file of rows that ships, as it lies there."""
    return hashlib.sha256(rows.SHIPPED.read_bytes()).hexdigest()

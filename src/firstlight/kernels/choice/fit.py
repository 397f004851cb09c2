"""A backend's time as a sum of terms, fitted to measured rows, and what the rows nearby say beyond it.

time = sum(weight * term), weights of 0 or more, by least squares of the relative error (terms.py); times
exp(what is left), which is alike for cases that lie near each other (marks_of) and fades to nothing far from any row:
a Gaussian process over the logarithms. Leaving each row out in turn gives the error that is told with a choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

import torch
from torch import Tensor

from firstlight.kernels.choice.cases import AttentionCase, Case
from firstlight.kernels.choice.rows import Card, Row
from firstlight.kernels.choice.terms import marks_of, terms_of

REACH = 2.2  # of a row, in marks
SPREAD, NOISE = 0.5, 0.03  # of the logarithms: what terms leave, and what a time measured twice differs by
OUTLIER = 0.3  # logarithms: rows further off count less in the sum of terms
LEAST_US = 0.5
SWEEPS, ROUNDS = 60, 3
FEWEST = 8  # rows of a kind below which nothing is fitted
FEWEST_CORRECTIONS = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """One kind of case on one backend, e.g. forward passes on sm90 from 235 rows, half of them within 7 %."""

    backend: str
    card: Card  # whose rows these are
    weights: tuple[float, ...]  # of the terms; of what `before` expects, where there is one
    marks: Tensor  # [rows, marks]
    pull: Tensor  # [rows]
    rows: int
    error: float  # half of the rows are predicted within this share of their time from the others
    before: Fit | None = None  # which this one corrects

    def us(self, case: Case, card: Card) -> float:
        """The time expected on a card, which need not be the one that was measured."""
        plain: float = max(sum(map(mul, self.weights, _terms(case, self.backend, card, self.before))), LEAST_US)
        here = marks_tensor((case,), self.backend, self.card)
        return plain * math.exp(float(_alike(here, self.marks)[0] @ self.pull))


def _terms(case: Case, backend: str, card: Card, before: Fit | None) -> tuple[float, ...]:
    return terms_of(case, backend, card) if before is None else (before.us(case, card),)


def kind_of(case: Case, backend: str) -> tuple[str, ...]:
    """Cases of one kind are fitted together: an operation, 16 bits or not, torch's attention by name or with a mask."""
    precision = "16 bits" if case.dtype in ("float16", "bfloat16") else case.dtype
    if isinstance(case, AttentionCase):
        asked = "listed" if case.shape == "listed" else "by name"
        return (backend, precision, case.operation, asked if backend == "dense" else "")
    operation = case.operation if case.operation == "sample" else "multiply"
    return (backend, precision, operation, "")


def times_by_kind(rows: Sequence[Row]) -> dict[tuple[str, ...], list[tuple[Case, float]]]:
    """The measured times, sorted into kinds."""
    found: dict[tuple[str, ...], list[tuple[Case, float]]] = {}
    for row in rows:
        for backend, us in row.us:
            found.setdefault(kind_of(row.case, backend), []).append((row.case, us))
    return found


def fitted(backend: str, times: Sequence[tuple[Case, float]], card: Card) -> Fit | None:
    """The fit of one kind; None where there are too few rows."""
    return None if len(times) < FEWEST else _fitted(backend, times, card, None)


def corrected(base: Fit, times: Sequence[tuple[Case, float]], card: Card) -> Fit:
    """A fit that goes by the rows of this card where there are any, and by another's fit for the rest."""
    return _fitted(base.backend, times, card, base) if len(times) >= FEWEST_CORRECTIONS else base


def _fitted(backend: str, times: Sequence[tuple[Case, float]], card: Card, before: Fit | None) -> Fit:
    us = torch.tensor([time for _, time in times], dtype=torch.float64, device="cpu")
    terms = torch.tensor([_terms(case, backend, card, before) for case, _ in times], dtype=torch.float64, device="cpu")
    weights = _weights(terms / us[:, None])
    left = -((terms / us[:, None]) @ weights).clamp_min(0.02).log()
    marks = marks_tensor([case for case, _ in times], backend, card)
    inverse = torch.linalg.inv(_alike(marks, marks) + NOISE**2 * torch.eye(len(us), dtype=torch.float64, device="cpu"))
    pull = inverse @ left
    without = (pull / inverse.diagonal()).abs()  # each row's error when it is left out
    error = math.expm1(float(without.median()))
    rows = len(us) + (0 if before is None else before.rows)
    return Fit(backend, card, tuple(weights.tolist()), marks, pull, rows, error, before)


def marks_tensor(cases: Sequence[Case], backend: str, card: Card) -> Tensor:
    """The marks of some cases, [cases, marks]."""
    return torch.tensor([marks_of(case, backend, card) for case in cases], dtype=torch.float64, device="cpu")


def pull_tensor(pull: Sequence[float]) -> Tensor:
    """The pull of each row as a fit holds it."""
    return torch.tensor(pull, dtype=torch.float64, device="cpu")


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """Matern 3/2: how much what is left of two cases is the same."""
    far = math.sqrt(3.0) / REACH * torch.cdist(one, other)
    return SPREAD**2 * (1.0 + far) * torch.exp(-far)


def _weights(shares: Tensor) -> Tensor:
    """Weights of 0 or more with which the shares of each row add up to 1, rows that will not fit counted less."""
    scale = shares.abs().max(0).values.clamp_min(1e-12)
    trust = torch.ones(shares.shape[0], dtype=torch.float64, device="cpu")
    weights = trust
    for _ in range(ROUNDS):
        weights = _not_negative(shares / scale * trust[:, None], trust) / scale
        off = (shares @ weights).clamp_min(0.02).log()
        trust = 1.0 / (1.0 + (off / OUTLIER) ** 2)
    return weights


def _not_negative(matrix: Tensor, wanted: Tensor) -> Tensor:
    """Least squares with weights of 0 or more, one after the other."""
    square, target = (matrix.T @ matrix).tolist(), (matrix.T @ wanted).tolist()
    count = len(target)
    weights = [0.0] * count
    for _ in range(SWEEPS):
        for place in range(count):
            if square[place][place] > 0.0:
                along = sum(a * b for a, b in zip(square[place], weights, strict=True))
                weights[place] = max(0.0, weights[place] + (target[place] - along) / square[place][place])
    return torch.tensor(weights, dtype=torch.float64, device="cpu")

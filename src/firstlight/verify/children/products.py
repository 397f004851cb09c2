"""How far a matrix product may be from the float64 one, and how far it is."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

# One rounding of the sums, and of the result, for each kind of arithmetic. Tensor cores cut sums off instead of
# rounding them (2^-23 for float32 sums); those of Hopper keep about 14 bits of a sum of 8-bit floats.
HALF_ULP = {
    "float64": (2.0**-53, 2.0**-53),
    "float32": (2.0**-24, 2.0**-24),
    "tf32": (2.0**-11, 2.0**-24),
    "float16": (2.0**-23, 2.0**-11),
    "bfloat16": (2.0**-23, 2.0**-8),
    "float8_e4m3fn": (2.0**-13, 2.0**-8),
}


class Distance(NamedTuple):
    """max error 3.1e-07 of the largest element, 2 % of what rounding allows; wrong above 100 %."""

    relative: float
    share: float

    @property
    def fine(self) -> bool:
        return self.share <= 1.0  # False for NaN too

    def __str__(self) -> str:
        return f"max error {self.relative:.2g}, {100 * self.share:.2g} % of what rounding allows"


def distance(got: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, kind: str) -> Distance:
    """Of a product that was computed in `kind` from the float64 product of the same (rounded) inputs, on the CPU.

    Sums of n terms are allowed 10 sqrt(n) roundings of |left| |right| (errors of random sign, Higham and Mary 2019),
    and the result one rounding of its own.
    """
    a, b = left.detach().cpu().double(), right.detach().cpu().double()
    exact = a @ b
    of_sums, of_result = HALF_ULP[kind]
    allowed = 10 * math.sqrt(a.shape[-1]) * of_sums * (a.abs() @ b.abs()) + 2 * of_result * exact.abs() + 1e-300
    error = (got.detach().cpu().double() - exact).abs()
    share = float((error / allowed).max())
    relative = float(error.max() / exact.abs().max())
    broken = not bool(torch.isfinite(got.detach().cpu().double()).all())
    return Distance(relative, math.inf if broken else share)


def farthest_off(got: torch.Tensor | None, exact: torch.Tensor | None) -> float:
    """The largest difference of a result, in parts of the largest exact value; infinite where one is not finite."""
    assert got is not None
    assert exact is not None
    there = got.detach().cpu().double()
    if not bool(torch.isfinite(there).all()):
        return float("inf")
    return float((there - exact.detach()).abs().max() / exact.detach().abs().max())

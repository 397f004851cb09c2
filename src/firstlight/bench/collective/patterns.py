"""Data whose right result is known at every element: a missed, doubled or swapped rank shows in each of them.

Element i of rank r is 1 + (r * STEP + i * STRIDE + turn) mod PRIME. All are whole numbers from 1 to 8191, so that fp32
adds them exactly for up to 2048 ranks; ranks differ at every element, elements at every shift, and turns in all.
A sum that lacks a rank is too small by that rank's number, which is at least 1; one that has rank s in the place of
rank r differs by the difference of two different numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

PRIME, STEP, STRIDE = 8191, 2741, 1013
MOST_RANKS = 2048  # 2048 x 8191 is below 2^24, up to which fp32 has every whole number
BLOCK = PRIME * 512  # elements that are compared at once: 16 MB


def value(rank: int, element: int, turn: int) -> int:
    """What a rank brings at an element."""
    return 1 + (rank * STEP + element * STRIDE + turn) % PRIME


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first element that is not as it should be."""

    element: int
    found: float
    right: float
    sender: int = -1  # whose number it should be; -1 where all ranks are added up


class Pattern:
    """Repeating fp32 data on a device: `sum_of` ranks at the elements from `first` on."""

    def __init__(self, ranks: tuple[int, ...], *, first: int, turn: int, device: str) -> None:
        import torch

        elements = torch.arange(PRIME, dtype=torch.int64) + first % PRIME
        summed = torch.zeros(PRIME, dtype=torch.int64)
        for rank in ranks:
            summed += 1 + (rank * STEP + elements * STRIDE + turn) % PRIME
        self._once = summed.to(torch.float32).to(device)

    def fill(self, target: Tensor) -> None:
        """Write the data into a flat tensor."""
        for place in range(0, target.numel(), BLOCK):
            part = target[place : place + BLOCK]
            part.copy_(self._tiled(part.numel()))

    def wrong_in(self, found: Tensor) -> Wrong | None:
        """The first element of a flat tensor that differs, None where all are right; NaN differs."""
        for place in range(0, found.numel(), BLOCK):
            part = found[place : place + BLOCK]
            right = self._tiled(part.numel())
            differs = (part != right).nonzero()
            if differs.numel():
                at = int(differs[0])
                return Wrong(place + at, float(part[at]), float(right[at]))
        return None

    def _tiled(self, count: int) -> Tensor:
        times = -(-count // PRIME)
        return self._once.repeat(times)[:count]

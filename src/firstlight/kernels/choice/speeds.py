"""A card's peaks, as terms are counted in: what it can compute and move in a microsecond."""

from __future__ import annotations

import math
from dataclasses import dataclass

from firstlight.kernels.choice.rows import Card

PER_CLOCK = {"float16": 4096.0, "bfloat16": 4096.0, "tf32": 2048.0, "float32": 256.0}  # of a multiprocessor
L2_PER_CLOCK = 4814.3e3 / (132 * 1980.0)  # bytes of a multiprocessor; an H200's bandwidth, as only how it scales counts


@dataclass(frozen=True, slots=True)
class Speeds:
    """Operations and bytes in a microsecond, e.g. of an H200 in float16 1.07e9 and 4.8e6.

    L2 runs at the clock of the multiprocessors: a card with slower memory does not read it more slowly.
    """

    flops_us: float
    bytes_us: float
    l2_bytes_us: float
    sms: int

    @staticmethod
    def of(card: Card, dtype: str) -> Speeds:
        """A card's peaks for one type."""
        flops = card.sms * card.clock_mhz * PER_CLOCK.get(dtype, 256.0)
        return Speeds(flops, card.bandwidth_gbs * 1e3, card.sms * card.clock_mhz * L2_PER_CLOCK, card.sms)


def element_bytes(dtype: str) -> int:
    """E.g. 2 for bfloat16."""
    return 2 if dtype in ("float16", "bfloat16") else 4


def up(size: int, to: int) -> int:
    """How many pieces of `to` cover a size, e.g. 3 of 64 for 129."""
    return -(-size // to)


def wasted(waves: float) -> float:
    """How many times as long whole waves take as the work in them, e.g. 1.5 for 1.33 waves; 8 at most."""
    return min(math.ceil(waves) / max(waves, 1e-3), 8.0)

"""Cards and rows that the tests of the choice share."""

from __future__ import annotations

import functools
from dataclasses import replace

from firstlight.kernels.choice.rows import Card, Machine, shipped

H200 = Card("NVIDIA H200", "9.0", 132, 1980.0, 4814.3)
H100 = Card("NVIDIA H100 80GB HBM3", "9.0", 132, 1980.0, 3352.3)
UNKNOWN = Card("NVIDIA Test", "8.0", 108, 1410.0, 1555.0)


@functools.lru_cache(maxsize=4)
def shipped_machine(gpu: str = "") -> Machine:
    """The machine whose rows ship, under another name if one is given."""
    [machine] = shipped()
    return replace(machine, card=replace(machine.card, gpu=gpu)) if gpu else machine

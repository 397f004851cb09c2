"""Turning a dense operand over: [n, cols] to [cols, pitch], for blocks whose rows are too short to be read by token."""

from __future__ import annotations

from firstlight.kernels.sm90.arguments import TurnFields, turn_bytes
from firstlight.kernels.sm90.driver import Kernel, Launch
from firstlight.kernels.sm90.problem import TURNED_PITCH, round_up
from firstlight.kernels.sm90.variants import TURN_SIDE, TURN_THREADS

MOST_TILES = 65535  # of a grid's second dimension


def turn_launches(kernel: Kernel, source: int, to: int, *, n: int, cols: int) -> tuple[Launch, ...]:
    """One launch, or several where there are more than 8 million tokens; what is past n becomes zero."""
    pitch, most = round_up(n, TURNED_PITCH), MOST_TILES * TURN_SIDE
    return tuple(
        Launch(
            kernel,
            turn_bytes(TurnFields(source + 2 * first * cols, to + 2 * first, min(most, n - first), cols, pitch)),
            grid=(-(-cols // TURN_SIDE), -(-min(most, n - first) // TURN_SIDE), 1),
            threads=TURN_THREADS,
        )
        for first in range(0, n, most)
    )

"""Dense operands made such that TMA reads them well: turned over, or with longer rows.

Turned: [n, cols] to [cols, pitch], for blocks whose rows are too short to be read by token. Longer rows: [cols, n] to
[cols, pitch], where n is no multiple of 8 or 16, and a result the other way.
"""

from __future__ import annotations

from firstlight.kernels.sm90.arguments import PitchFields, TurnFields, pitch_bytes, turn_bytes
from firstlight.kernels.sm90.driver import Kernel, Launch
from firstlight.kernels.sm90.problem import TURNED_PITCH, Problem, round_up
from firstlight.kernels.sm90.variants import PITCH_THREADS, TURN_SIDE, TURN_THREADS

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


def widening_launches(kernel: Kernel, source: int, to: int, problem: Problem) -> tuple[Launch, ...]:
    """X [batch, cols, n] to rows of problem.pitch; what is past n becomes zero."""
    n, pitch = problem.n, problem.pitch
    fields = PitchFields(source, to, n, pitch, n, pitch)
    return _rows_launched(kernel, fields, problem.cols * problem.batch)


def cutting_launches(kernel: Kernel, source: int, to: int, problem: Problem) -> tuple[Launch, ...]:
    """A result with rows of problem.out_pitch to [batch, rows, n]."""
    fields = PitchFields(source, to, problem.out_pitch, problem.n, problem.n, problem.n)
    return _rows_launched(kernel, fields, problem.rows * problem.batch)


def _rows_launched(kernel: Kernel, fields: PitchFields, rows: int) -> tuple[Launch, ...]:
    return (Launch(kernel, pitch_bytes(fields), grid=(rows, 1, 1), threads=PITCH_THREADS),)

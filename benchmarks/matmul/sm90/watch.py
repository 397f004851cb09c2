"""The stopwatch of firstlight.bench in three manners: burst, sustained and brief. For sm90/run.py.

Calls are launched one by one: inside a CUDA graph the Hopper kernels' work queue is zeroed by a kernel of its own,
which an eager call does not need. Launches stay out of the times, the stopwatch blocks the stream first.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.matmul.products import PATIENCE, Entry, Kit, checked

from firstlight.bench.attempts import Attempt
from firstlight.bench.figures import case_results
from firstlight.bench.results import CaseResult, Regime, Verdict
from firstlight.bench.rotation import how_cold
from firstlight.bench.stopwatch import BIG_CALL_S, FIRST_PAUSE_S, PassTiming, Regimes, Stopwatch, Subject
from firstlight.bench.tape import Launching

FAST_FLOPS = 700e12  # to guess which calls are big: those pause by themselves
KEPT = 60  # samples of a sustained figure that are written down
BURST = replace(PATIENCE, host_samples=0)
# Back to back: 0.2 s until the power limit holds the clock, then 0.35 s of samples in series of 20 ms.
SUSTAINED = replace(
    PATIENCE, warm_up_s=0.2, warm_up_limit_s=0.2, block=400, least_samples=10, precise_from=10, most_samples=1 << 20,
    half_width=0.0, host_samples=0,
)  # fmt: skip
SUSTAIN_S = 0.35
BRIEF = replace(
    PATIENCE, warm_up_limit_s=0.002, block=3, least_samples=5, precise_from=5, most_samples=9, half_width=0.01,
    host_samples=0,
)  # fmt: skip


class Manner(enum.Enum):
    """How a thing is timed."""

    BURST = "burst"  # a few calls after a pause
    SUSTAINED = "sustained"  # back to back for half a second
    BRIEF = "brief"  # a few calls, for one of very many


def take_turns(
    kit: Kit, entries: Sequence[Entry], *, passes: int, manner: Manner, pause_s: float = 0.0
) -> dict[str, CaseResult]:
    """Every entry is checked, then all are timed in pass 1, all in pass 2 and so on; results by id."""
    attempts = [checked(kit, entry) for entry in entries]
    for number in range(passes):
        for spot, entry in enumerate(entries):
            if attempts[spot].verdict is Verdict.OK and (not entry.passes or number < entry.passes):
                attempts[spot] = _timed(kit, entry, attempts[spot], manner=manner, pause_s=pause_s)
    return {result.id: result for result in case_results(attempts, kit.setting)}


def _timed(kit: Kit, entry: Entry, attempt: Attempt, *, manner: Manner, pause_s: float) -> Attempt:
    cold = how_cold(entry.case, kit.place, sets=len(entry.calls))
    regimes = Regimes.BURST_IF_BIG if manner is Manner.BURST else Regimes.SUSTAINED
    subject = Subject(entry.calls, entry.case.mode, cold, Launching.PLAIN, regimes)
    patience = {Manner.BURST: BURST, Manner.SUSTAINED: SUSTAINED, Manner.BRIEF: BRIEF}[manner]
    budget_s = SUSTAIN_S if manner is Manner.SUSTAINED and kit.timer.has_launches else PATIENCE.pass_budget_s
    if manner is Manner.BURST and entry.case.work.flops < FAST_FLOPS * BIG_CALL_S:
        pause_s = FIRST_PAUSE_S if kit.timer.has_launches else 0.0
    kit.timer.pause(pause_s)
    try:
        timing = Stopwatch(kit.timer, kit.gauge, patience=patience).time_pass(subject, budget_s=budget_s)
    except RuntimeError as problem:
        return replace(attempt, verdict=Verdict.FAILED, reason=f"{type(problem).__name__}: {problem}"[:300])
    timing = _named(timing, manner)
    flags = tuple(dict.fromkeys((*attempt.flags, *(flag for flag in timing.flags if flag != "uncaptured"))))
    return replace(attempt, passes=(*attempt.passes, timing), flags=flags)


def _named(timing: PassTiming, manner: Manner) -> PassTiming:
    """The regime that was asked for: a short call after a pause is a burst too. Sustained samples are thinned."""
    regime = Regime.SUSTAINED if manner is Manner.SUSTAINED else Regime.BURST
    stretches = tuple(
        replace(each, regime=regime, samples=each.samples[:: -(-len(each.samples) // KEPT)])
        for each in timing.stretches
    )
    return replace(timing, stretches=stretches)

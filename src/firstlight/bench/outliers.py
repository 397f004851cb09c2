"""The odd GPU out: the same case on several GPUs of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from firstlight.bench.results import CaseResult, HealthFinding, Verdict
from firstlight.bench.steady import is_unsteady

LEAST_GPUS = 3  # of two, nobody can say which one is odd
SLOWER_BY = 0.07  # healthy GPUs of one node differ by up to 5 %
LEAST_Z = 3.0


def outliers(cases: Sequence[CaseResult]) -> tuple[HealthFinding, ...]:
    """A finding for each GPU that is far below its neighbours in a steady case: robust z and more than 7 % slower."""
    by_id: dict[str, list[CaseResult]] = {}
    for case in cases:
        if case.verdict is Verdict.OK and case.shown is not None and not is_unsteady(case):
            by_id.setdefault(case.id, []).append(case)
    found = []
    for case_id, same in by_id.items():
        speeds = {case.gpu: 1 / case.shown.time_s.median for case in same if case.shown is not None}
        if len(speeds) < LEAST_GPUS:
            continue
        middle = median(speeds.values())
        spread = max(1.4826 * median(abs(speed - middle) for speed in speeds.values()), 0.01 * middle)
        for gpu, speed in speeds.items():
            below = 1 - speed / middle
            if below > SLOWER_BY and (middle - speed) / spread > LEAST_Z:
                text = f"{case_id}: {100 * below:.0f} % slower than the median of {len(speeds)} GPUs"
                found.append(HealthFinding("slow-gpu", "warn", text, gpu=gpu))
    return tuple(found)

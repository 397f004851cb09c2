"""One thing back to back for a second, with the clock and the power that NVML read meanwhile. For attention.py."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.kernels_products import Entry, Kit
from benchmarks.sm90_watch import KEPT, SUSTAINED

from firstlight.bench.rotation import how_cold
from firstlight.bench.stopwatch import Regimes, Stopwatch, Stretch, Subject
from firstlight.bench.tape import Launching

PATIENT = replace(SUSTAINED, warm_up_s=0.2, warm_up_limit_s=0.2)


def back_to_back(kit: Kit, entry: Entry, *, seconds: float) -> dict[str, Any]:
    """Median of what was sampled in `seconds`, after 0.2 s in which the power limit takes hold; {} where it failed."""
    cold = how_cold(entry.case, kit.place, sets=len(entry.calls))
    subject = Subject(entry.calls, entry.case.mode, cold, Launching.PLAIN, Regimes.SUSTAINED)
    patience = PATIENT if kit.timer.has_launches else replace(PATIENT, warm_up_s=0.0, warm_up_limit_s=0.0, block=2)
    try:
        [stretch] = Stopwatch(kit.timer, kit.gauge, patience=patience).time_pass(subject, budget_s=seconds).stretches
    except RuntimeError as problem:
        return {"error": f"{type(problem).__name__}: {problem}"[:300]}
    return figure(entry, stretch)


def figure(entry: Entry, stretch: Stretch) -> dict[str, Any]:
    """What is kept of one: its median, the middle clock and power, every so many samples.

    Power is NVML's reading, an average over up to a second before it: after a pause it lags.
    """
    middle = median(stretch.samples)
    readings = stretch.watch.readings
    clocks = [each.sm_mhz for each in readings if each.sm_mhz is not None]
    powers = [each.power_w for each in readings if each.power_w is not None]
    return {
        "ms": round(1e3 * middle, 5),
        "tflops": round(entry.case.work.flops / middle / 1e12, 1),
        "sm_mhz": median(clocks) if clocks else None,
        "power_w": round(median(powers[len(powers) // 2 :]), 1) if powers else None,
        "samples_ms": [float(f"{1e3 * each:.5g}") for each in stretch.samples[:: -(-len(stretch.samples) // KEPT)]],
    }

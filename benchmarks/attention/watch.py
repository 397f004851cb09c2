"""Two of three ways in which attention.py times a thing; the third, a few calls after a pause, is the stopwatch's.

A call of 10 ms at full power shows the difference: for 40 ms an H200 holds 1.95 GHz, then its power limit takes hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.matmul.products import Entry, Kit
from benchmarks.matmul.sm90.watch import KEPT, SUSTAINED

from firstlight.bench.rotation import how_cold
from firstlight.bench.stopwatch import Regimes, Stopwatch, Stretch, Subject
from firstlight.bench.tape import Launching, Tape, make_shots
from firstlight.bench.timers import nothing

IN_A_ROW, PAUSE_S = 15, 0.4
PATIENT = replace(SUSTAINED, warm_up_s=0.2, warm_up_limit_s=0.2)


def in_a_row(kit: Kit, entries: Mapping[str, Entry], *, passes: int) -> dict[str, dict[str, Any]]:
    """15 calls in a row after a pause, L2 flushed before each; all entries in turns, once for each pass; by role."""
    timer, on_gpu = kit.timer, kit.timer.has_launches
    taken: dict[str, tuple[list[float], list[float]]] = {role: ([], []) for role in entries}
    for _ in range(passes):
        for role, entry in entries.items():
            cold = how_cold(entry.case, kit.place, sets=len(entry.calls))
            shots = make_shots(timer, entry.calls, cold=cold, launching=Launching.PLAIN).shots
            tape = Tape(timer, shots, before_each=timer.flush if on_gpu else nothing)
            timer.pause(PAUSE_S if on_gpu else 0.0)
            series = tape.take(IN_A_ROW if on_gpu else 2)
            taken[role][0].extend(series.seconds)
            taken[role][1].extend([] if series.sm_mhz is None else [series.sm_mhz])
    return {
        role: {
            "ms": round(1e3 * median(seconds), 5),
            "tflops": round(entries[role].case.work.flops / median(seconds) / 1e12, 1),
            "sm_mhz": round(median(clocks), 1) if clocks else None,
            "samples_ms": [float(f"{1e3 * each:.5g}") for each in seconds],
        }
        for role, (seconds, clocks) in taken.items()
    }


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

"""Readings that tell why timers differ: single calls with a dirty and a clean L2, and graphs replayed back to back.

    python -m benchmarks.timer_differences --out results/bench-checks-<machine>.json     # written there as `readings`

A single call after writing 256 MB meets an L2 full of lines that must be written back first; after reading 256 MB the
lines can be dropped. Replays back to back show what the power limit does to the clock while a timer keeps going.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.bench_checks import LARGE, shown_us

from firstlight.bench.case import Case, Place
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.place import describe, place_of
from firstlight.bench.rotation import sets_wanted
from firstlight.bench.timers import CudaTimer, NotCaptured, Shot, nothing

GRAPHS = ("gemm/fp16/2048x2048x2048", "gemm/fp16/1024x1024x1024")
CALLS_IN_GRAPH = (8, 32, 200)
SINGLES = 40
BLOCK_CYCLES = 40_000_000  # about 20 ms, longer than queueing the calls takes
REPLAY_S = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    document = json.loads(options.out.read_text()) if options.out.exists() else {}
    document["readings"] = readings(place_of(describe("cuda:0")))
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["readings"], indent=1))


def readings(place: Place) -> dict[str, Any]:
    """Everything, on the current GPU."""
    from triton.testing import do_bench

    cases = {case.id: case for case in ALL_CASES(place)}
    timer = CudaTimer("cuda:0", l2_bytes=place.l2_bytes)
    buffer = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    found: dict[str, Any] = {
        "events_alone_us": shown_us(single_s(nothing, nothing, blocked=True)),
        "null_kernel_us": shown_us(single_s(_null_kernel, nothing, blocked=True)),
        "do_bench_of_null_kernel_us": shown_us(float(do_bench(_null_kernel, return_mode="median")) * 1e-3),
        "single_calls": {name: single_calls(cases[name], place, buffer) for name in LARGE},
    }
    torch.cuda.empty_cache()
    found["graphs"] = {name: [replays(cases[name], place, timer, count) for count in CALLS_IN_GRAPH] for name in GRAPHS}
    return found


def single_s(call: Callable[[], object], before: Callable[[], object], *, blocked: bool) -> float:
    """Median seconds by events around single calls, each after `before`; blocked: everything is queued first."""
    pairs = [(_event(), _event()) for _ in range(SINGLES)]
    for start, stop in pairs:  # recorded once, so that making them is not in the loop
        start.record()
        stop.record()
    torch.cuda.synchronize()
    if blocked:
        torch.cuda._sleep(BLOCK_CYCLES)  # type: ignore[no-untyped-call]
    for start, stop in pairs:
        before()
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return median(float(start.elapsed_time(stop)) for start, stop in pairs) * 1e-3


def single_calls(case: Case, place: Place, buffer: torch.Tensor) -> dict[str, float]:
    """One case after writing 256 MB (dirty L2), after reading it (clean), and alone; queued first or not."""
    call = case.prepare(place, 1).calls[0]
    for _ in range(5):
        call()
    ways: dict[str, Callable[[], object]] = {"dirty": buffer.zero_, "clean": buffer.sum, "none": nothing}
    return {
        f"{name}{'_blocked' if blocked else ''}_us": shown_us(single_s(call, before, blocked=blocked))
        for name, before in ways.items()
        for blocked in (False, True)
    }


def replays(case: Case, place: Place, timer: CudaTimer, calls_in_graph: int) -> dict[str, Any]:
    """A graph back to back after a pause: a call's time in the first, tenth and last replays, and the clock after."""
    calls = case.prepare(place, sets_wanted(case, place)).calls
    for call in calls:
        call()
    shot = timer.batch([calls[index % len(calls)] for index in range(calls_in_graph)])
    assert not isinstance(shot, NotCaptured), case.id
    timer.pause(0.3)
    times, stop_at = [], time.perf_counter() + REPLAY_S
    start, stop = _event(), _event()
    while time.perf_counter() < stop_at:
        start.record()
        shot.launch()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)) * 1e-3 / calls_in_graph)
    after = timer.series((Shot(nothing, 1),))
    return {
        "calls_in_graph": calls_in_graph,
        "replays": len(times),
        "first_us": shown_us(times[0]),
        "tenth_us": shown_us(times[min(9, len(times) - 1)]),
        "last_us": shown_us(median(times[-5:])),
        "median_us": shown_us(median(times)),
        "sm_mhz_after": after.sm_mhz,
    }


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _null_kernel() -> None:
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

"""Processor time of one call: calls in turns, so that a host that changes its pace changes it for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

CALLS, ROUNDS, WARM_CALLS = 200, 21, 50
Call = Callable[[], object]


def call_times(calls: Mapping[str, Call], *, on_gpu: bool) -> dict[str, Any]:
    """Microseconds of the processor for one call of each, by batches of calls that nobody waits for.

    A round holds one batch of every call. A host was seen to go from 16 us to 11 within a run that timed one call after
    the other, so that two calls of one path differed by half; within a round they share its pace.
    A name with "gradients" or "backward" in it is called with gradients recorded.
    """
    count = CALLS if on_gpu else 2
    found: dict[str, dict[str, Any]] = {}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        try:
            _batch(name, call, min(WARM_CALLS, count))
        except Exception as error:  # noqa: BLE001 one call that cannot run must not take the others with it
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
            del samples[name]
    for _ in range(ROUNDS):
        for name, taken in samples.items():
            if on_gpu:
                torch.cuda.synchronize()
            taken.append(round(_batch(name, calls[name], count) / count * 1e6, 3))
    for name, taken in samples.items():
        found[name] = {"median_us": round(median(taken), 2), "min_us": round(min(taken), 2), "samples_us": taken}
        print(f"{name}: {median(taken):.1f} us of the processor", flush=True)
    return {"calls_in_a_sample": count, "in_turns": True, "calls": {name: found[name] for name in calls}}


def _batch(name: str, call: Call, count: int) -> float:
    """Seconds of the processor for some calls in a row."""
    with torch.set_grad_enabled("gradients" in name or "backward" in name):
        began = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - began

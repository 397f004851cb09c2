"""Contenders for one thing: who is right, then who is fast, in turns."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from benchmarks.gradients import burst, sustained
from benchmarks.rivals.cases import Answer
from benchmarks.rivals.clock import Clock
from benchmarks.rivals.runner import Refused, Runner

OURS, TIMES = "ours", ("burst_ms", "sustained_ms")
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}  # norm of the error over the norm
FLUSH_BYTES = 256 << 20
Row = dict[str, Any]
Entered = Callable[[], "Runner | Refused"]


class Timing(NamedTuple):
    """How often and how long each contender runs; in every round, a burst after a pause and calls back to back."""

    rounds: int = 2
    pause_s: float = 0.5
    sustained_s: float = 0.6


LONG = Timing()


def contest(
    entered: Mapping[str, Entered], exact: Callable[[], Answer], *, dtype: torch.dtype, tflop: float,
    timing: Timing = LONG,
) -> Row:  # fmt: skip
    """By name: the error of each, and of who is right the times; every sample is kept."""
    right, fit = exact(), dict[str, Runner]()
    found = {name: judged(entry, right, fit, name, BOUNDS[dtype]) for name, entry in entered.items()}
    del right
    gc.collect()
    torch.cuda.empty_cache()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(timing.rounds):
        for name, runner in fit.items():
            _timed(runner, flush, found[name]["samples"], timing)
    for name in fit:
        found[name] |= {kind: statistics.median(found[name]["samples"][kind]) for kind in TIMES}
        found[name]["tflops"] = round(tflop / found[name]["burst_ms"] * 1e3, 1)
    return found


def judged(entry: Entered, right: Answer, fit: dict[str, Runner], name: str, bound: float) -> Row:
    """What is known before the clock runs; whoever is right is added to `fit`."""
    try:
        runner = entry()
        if isinstance(runner, Refused):
            return {"takes no part": runner.why}
        errors = _errors(runner.answer(), right)
    except Exception as problem:
        if name == OURS:
            raise
        lines = str(problem).strip().splitlines() or ["no words"]
        return {"takes no part": f"{type(problem).__name__}: {lines[0][:200]}"}
    if not max(errors.values()) <= bound:
        return {"error": errors, "takes no part": f"it is wrong: more than {bound} off"}
    fit[name] = runner
    return {"error": errors, "samples": {"burst_ms": [], "sustained_ms": [], "clock_mhz": []}}


def _errors(made: Answer, right: Answer) -> dict[str, float]:
    found = {"out": _off(made.out, right.out)}
    if right.gradients is not None:
        assert made.gradients is not None
        pairs = zip(("dq", "dk", "dv"), made.gradients, right.gradients, strict=True)
        found |= {name: _off(one, other) for name, one, other in pairs}
    return found


def _off(one: torch.Tensor, right: torch.Tensor) -> float:
    off = float((one - right).norm() / right.norm())
    return off if off == off else float("inf")


def _timed(runner: Runner, flush: torch.Tensor, samples: Row, timing: Timing) -> None:
    quick = burst(runner.call, flush, pause_s=timing.pause_s)
    with Clock() as clock:
        slow = sustained(runner.call, quick, timing.sustained_s)
    samples["burst_ms"].append(quick)
    samples["sustained_ms"].append(slow)
    samples["clock_mhz"].append(clock.median)


def fastest(contenders: dict[str, Row]) -> dict[str, str]:
    """Who took the least time, e.g. {'burst_ms': 'ours', 'sustained_ms': 'flash4'}; {} where nobody was timed."""
    timed = {name: found for name, found in contenders.items() if TIMES[0] in found}
    return {kind: min(timed, key=lambda name: float(timed[name][kind])) for kind in TIMES if timed}


def said(row: Row) -> str:
    """One line: our time, and that of each other as times ours."""
    mine = row["contenders"][OURS]
    if "burst_ms" not in mine:
        return f"{row['case']}: ours {mine['takes no part']}"
    words = [f"{row['case']}: ours {mine['burst_ms']:.3f} / {mine['sustained_ms']:.3f} ms"]
    for name, other in row["contenders"].items():
        if name == OURS:
            continue
        if "burst_ms" not in other:
            words.append(f"{name}: {other['takes no part'][:60]}")
            continue
        times = [other[kind] / mine[kind] for kind in TIMES]
        words.append(f"{name} takes {times[0]:.2f} / {times[1]:.2f} times ours")
    return "; ".join(words)

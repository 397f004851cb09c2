"""Attention beside its rivals in one process, in turns: results/rivals-<machine>.json.

    python -m benchmarks.rivals --out results/rivals-h200.json --commit HASH [--only backward] [--budget-s 300]
    python -m benchmarks.rivals --list
    python -m benchmarks.rivals --compile    # FlashAttention-4's kernels, without a GPU: are they called rightly?

FlashAttention-4 and cuDNN's block-sparse attention take part where they are installed (`pip install '.[rivals]'`),
torch's cuDNN kernel always. Two heads of every answer are held against float64 before anything is timed: who is wrong
gets no time. burst: median of 10 calls after a pause, L2 flushed before each; sustained: 0.6 s back to back, with the
clock read meanwhile. All contenders of a case take turns, twice; each figure is the median of both, and all are kept.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.gradients import burst, sustained
from benchmarks.rivals.cases import CASES, Answer, Case, Setting, exact, setting_of, useful_tflop
from benchmarks.rivals.cudnn_lists import cudnn_lists, cudnn_lists_version
from benchmarks.rivals.flash4 import HOPPER_BACKWARD_BLOCK, flash4, flash4_version
from benchmarks.rivals.ours import cudnn_dense, ours, torch_version
from benchmarks.rivals.runner import Refused, Runner

OURS = "ours"
ROUNDS, FLUSH_BYTES, CLOCK_EVERY_S = 2, 256 << 20, 0.05
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}  # norm of the error over the norm
Row = dict[str, Any]
Entrant = Callable[[Case, Setting], "Runner | Refused"]


def entrants() -> dict[str, Entrant]:
    """Who is here."""
    found: dict[str, Entrant] = {OURS: ours}
    if flash4_version():
        found["flash4"] = flash4
        found["flash4 deterministic"] = partial(flash4, deterministic=True)
    if cudnn_lists_version():
        found["cudnn lists"] = cudnn_lists
    found["cudnn dense"] = cudnn_dense
    return found


def compare(case: Case, here: dict[str, Entrant]) -> Row:
    """One case: everybody's error, then everybody's times in turns."""
    setting = setting_of(case)
    right = exact(case, setting)
    row: Row = {"case": case.id, "name": case.name, "shape": case.shape, "backward": case.backward, "block": case.block,
                "dtype": str(case.dtype).removeprefix("torch."), "density": round(setting.mask.density, 4)}  # fmt: skip
    fit: dict[str, Runner] = {}
    row["contenders"] = {name: _judged(case, setting, entrant, right, fit, name) for name, entrant in here.items()}
    del right
    gc.collect()
    torch.cuda.empty_cache()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(ROUNDS):
        for name, runner in fit.items():
            _timed(runner, flush, row["contenders"][name])
    for name in fit:
        found = row["contenders"][name]
        for kind in ("burst_ms", "sustained_ms"):
            found[kind] = statistics.median(found["samples"][kind])
        found["tflops"] = round(useful_tflop(case, setting) / found["burst_ms"] * 1e3, 1)
    return row


def _judged(case: Case, setting: Setting, entrant: Entrant, right: Answer, fit: dict[str, Runner], name: str) -> Row:
    """What is known before the clock runs; whoever is right is added to `fit`."""
    try:
        runner = entrant(case, setting)
        if isinstance(runner, Refused):
            return {"takes no part": runner.why}
        errors = _errors(runner.answer(), right)
    except Exception as problem:
        if name == OURS:
            raise
        return {"takes no part": f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:200]}"}
    torch.cuda.synchronize()
    if not max(errors.values()) <= BOUNDS[case.dtype]:
        return {"error": errors, "takes no part": f"it is wrong: more than {BOUNDS[case.dtype]} off"}
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


def _timed(runner: Runner, flush: torch.Tensor, into: Row) -> None:
    quick = burst(runner.call, flush)
    clocks: list[int] = []
    done = threading.Event()
    reader = threading.Thread(target=_read_clock, args=(clocks, done))
    reader.start()
    try:
        slow = sustained(runner.call, quick)
    finally:
        done.set()
        reader.join()
    into["samples"]["burst_ms"].append(quick)
    into["samples"]["sustained_ms"].append(slow)
    into["samples"]["clock_mhz"].append(int(statistics.median(clocks)) if clocks else None)


def _read_clock(into: list[int], done: threading.Event) -> None:
    while not done.wait(CLOCK_EVERY_S):
        into.append(torch.cuda.clock_rate())


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
        times = [other[kind] / mine[kind] for kind in ("burst_ms", "sustained_ms")]
        words.append(f"{name} takes {times[0]:.2f} / {times[1]:.2f} times ours")
    return "; ".join(words)


def about(commit: str) -> Row:
    """Machine and versions."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    versions = {"flash4": flash4_version(), "cudnn lists": cudnn_lists_version(), "cudnn dense": torch_version()}
    return {
        "schema": "firstlight.rivals/1", "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit,
        "gpu": torch.cuda.get_device_name(), "driver": driver, "torch": torch.__version__, "versions": versions,
    }  # fmt: skip


def _compile(chosen: Sequence[Case], parser: argparse.ArgumentParser) -> None:
    if flash4_version() is None:
        parser.error("flash-attn-4 is not installed; pip install '.[rivals]' brings it")
    from benchmarks.rivals.compiled import compiled

    for case in chosen:
        if case.backward and case.block != HOPPER_BACKWARD_BLOCK:
            print(f"{case.id}: it has no such kernel", flush=True)
            continue
        for each in compiled(case):
            print(f"{each.case}: {each.what} compiled in {each.seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the document goes; written after every case")
    parser.add_argument("--commit", default="not told", help="of the code that is measured")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--budget-s", type=float, default=600.0, help="no case is begun later (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the cases and who would take part, and stop")
    parser.add_argument(
        "--compile", action="store_true", help="compile FlashAttention-4's kernels for Hopper, and stop"
    )
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if given.only in case.id]
    if not chosen:
        parser.error(f"no case has {given.only!r} in its name; --list prints them")
    if given.list:
        print("\n".join(case.id for case in chosen))
        print("contenders here: " + ", ".join(entrants()))
        return
    if given.compile:
        _compile(chosen, parser)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use; these are kernels of Hopper GPUs")
    began, document, here = time.monotonic(), {**about(given.commit), "rows": []}, entrants()
    for case in chosen:
        if time.monotonic() - began > given.budget_s:
            print(f"the time is up before {case.id}", flush=True)
            break
        document["rows"].append(compare(case, here))
        print(said(document["rows"][-1]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(document, indent=1) + "\n")
        gc.collect()
        torch.cuda.empty_cache()

"""Checks of the stopwatch on a GPU: planted slowdowns are found, and independent timers agree.

    python benchmarks/bench_checks.py --out results/bench-checks-<machine>.json [--only planted,agreement,ncu]

Planted: four cases are measured, then the same ids doing 5 % and 10 % more work; `bench compare` must say SLOWER.
Agreement: cases of 100 us and more against triton.testing.do_bench (within 2 %), shorter ones against
gpu__time_duration of Nsight Compute (within 5 % or 1 us). Parts that are not run again are taken over from the file;
what explains the differences (benchmarks/timer_differences.py) goes when the agreement is measured anew.

The L2 is in the same state for both: do_bench writes 256 MB before every call and the large cases exceed the L2 by
themselves; ncu runs with --cache-control none and the child goes through the same rotated buffer sets as the stopwatch.
Clocks are left alone (--clock-control none). ncu runs kernels one by one with pauses between, so a case whose sustained
figure is held down by the power limit is faster there; the clock of our passes is kept beside the difference.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import glob
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from firstlight.bench.case import Case, Effort, Place
from firstlight.bench.cases.bandwidth import ARRAY_BYTES, stream_case
from firstlight.bench.cases.gemm import product_case
from firstlight.bench.cases.rows import layernorm_case, softmax_case
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.choice import Choice
from firstlight.bench.compare import compare_runs
from firstlight.bench.place import describe, place_of
from firstlight.bench.results import CaseResult, RunResult
from firstlight.bench.rotation import sets_wanted
from firstlight.bench.runner import BenchSetting, Request, run_bench
from firstlight.facts.collect import Facts
from firstlight.facts.look import Look, look_at
from firstlight.report.summary import machine_summary
from firstlight.tables import load

LARGE = (
    "gemm/fp16/4096x4096x4096", "bandwidth/copy/fp16/512MiB", "bandwidth/add/fp16/512MiB",
    "softmax/fp16/32x12x512x512", "layernorm/fp16/32x512x4096",
)  # fmt: skip
SMALL = (
    "gemm/fp16/1024x1024x1024", "gemm/fp16/2048x2048x2048", "sdpa/flash/fp16/b8-h12-s512-d64/full",
    "linear/fp16/m32-k4096-n11008",
)  # fmt: skip
PARTS = ("planted", "agreement", "ncu")
EXPLAINED = ("readings", "explained")
NCU_CALLS = 16
NCU_LIMIT_S = 120
MARKER = "spin_kernel"  # of torch.cuda._sleep: stands between the cases in ncu's list
NS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--commit", default="", help="of the code that runs, where it is not a checkout")
    parser.add_argument("--under-ncu", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    place = place_of(describe("cuda:0"))
    if options.under_ncu:
        run_under_ncu(place)
        return
    if options.out is None:
        parser.error("--out FILE is needed")
    facts, parts = look_at(Look()), options.only.split(",")
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    document = {
        "schema": "firstlight.bench-checks/2",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit or None,
        "machine": ", ".join(machine_summary(facts)),
        "planted": planted(facts) if "planted" in parts else before.get("planted", []),
        "agreement": agreement(facts, place, parts) if "agreement" in parts else before.get("agreement", []),
    }
    if "agreement" not in parts:
        document |= {key: before[key] for key in EXPLAINED if key in before}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def _cases(more: float) -> tuple[Case, ...]:
    """Four cases doing `more` times their work under their own ids."""
    plain = (
        product_case("fp16", 4096, 4096, 4096),
        stream_case("add", "fp16", ARRAY_BYTES),
        layernorm_case("fp16", (32, 512, 4096)),
        softmax_case("fp16", (32, 12, 512, 512)),
    )
    if more == 1:
        return plain
    heavier = (
        product_case("fp16", 4096, 4096, int(4096 * more) // 8 * 8),
        stream_case("add", "fp16", int(ARRAY_BYTES * more)),
        layernorm_case("fp16", (32, int(512 * more), 4096)),
        softmax_case("fp16", (32, 12, int(512 * more), 512)),
    )
    return tuple(
        dataclasses.replace(one, id=base.id, params=base.params, work=base.work)
        for one, base in zip(heavier, plain, strict=True)
    )


def _run(facts: Facts, cases: tuple[Case, ...], effort: Effort) -> RunResult:
    request = Request(Choice(effort), "cuda:0", ("bench",))
    world = BenchSetting(lambda _: cases, facts, load(), lambda _: None, lambda _: None)
    return run_bench(request, world)


def planted(facts: Facts) -> list[dict[str, Any]]:
    base = _run(facts, _cases(1), Effort.STANDARD)
    rows = []
    for more in (1.0, 1.05, 1.10):
        again = _run(facts, _cases(more), Effort.STANDARD)
        rows += [
            {
                "case": each.id,
                "regime": each.regime.value,
                "more_work": more,
                "verdict": each.change.value,
                "ratio": round(each.ratio, 4),
            }
            for each in compare_runs(base, again).cases
        ]
    return rows


def agreement(facts: Facts, place: Place, parts: list[str]) -> list[dict[str, Any]]:
    """One row for each case: our time, the other timer's, the difference and whether it is within the bounds."""
    cases = {case.id: case for case in ALL_CASES(place)}
    picked = tuple(cases[name] for name in (*LARGE, *SMALL))
    ours = {case.id: case for case in _run(facts, picked, Effort.STANDARD).cases}
    rows = [_row(ours[name], by_do_bench(cases[name], place), "triton do_bench") for name in LARGE]
    if "ncu" in parts:
        theirs, why = by_ncu()
        rows += [_row(ours[name], theirs.get(name), "ncu gpu__time_duration", why) for name in SMALL]
    return rows


def _row(mine: CaseResult, theirs_s: float | None, timer: str, why: str = "") -> dict[str, Any]:
    figure = mine.shown
    assert figure is not None, f"{mine.id}: {mine.verdict.value}, {mine.reason}"
    mine_s = figure.time_s.median
    clocks = [each.sm_mhz for each in figure.passes]
    row = {"case": mine.id, "ours_us": shown_us(mine_s), "graph_calls": mine.graph_calls, "sm_mhz": clocks}
    row |= {"flags": [*mine.flags, *figure.flags], "timer": timer}
    if theirs_s is None:
        return row | {"theirs_us": None, "why": why}
    allowed_s = 0.02 * theirs_s if theirs_s >= 100e-6 else max(0.05 * theirs_s, 1e-6)
    return row | {
        "theirs_us": shown_us(theirs_s),
        "difference": round(mine_s / theirs_s - 1, 4),
        "difference_us": shown_us(mine_s - theirs_s),
        "within": abs(mine_s - theirs_s) <= allowed_s,
    }


def shown_us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def by_do_bench(case: Case, place: Place) -> float:
    """Seconds of one call by triton's timer."""
    from triton.testing import do_bench

    prepared = case.prepare(place, 1)
    return float(do_bench(prepared.calls[0], warmup=25, rep=100, return_mode="median")) * 1e-3


def by_ncu() -> tuple[dict[str, float], str]:
    """Seconds of one call of each small case by Nsight Compute in a child; () and the reason where it cannot run."""
    found = shutil.which("ncu") or next(iter(sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"))), "")
    if not found:
        return {}, "ncu is not installed"
    command = [
        found, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
        "--metrics", "gpu__time_duration.sum", "--csv", "--page", "raw", "--print-units", "base",
        sys.executable, __file__, "--under-ncu",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NCU_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {}, f"ncu took more than {NCU_LIMIT_S} s"
    kernels = read_ncu(done.stdout)
    if not kernels:
        return {}, f"ncu gave no times: {(done.stdout + done.stderr)[-600:]}"
    return _by_case(kernels), ""


def read_ncu(text: str) -> list[tuple[str, float]]:
    """(kernel, seconds) of every line of ncu's raw page; the line under the names holds the units."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    units, *rows = list(csv.DictReader(lines[start:]))
    scale = NS[units["gpu__time_duration.sum"]] * 1e-9
    return [(row["Kernel Name"], float(row["gpu__time_duration.sum"].replace(",", "")) * scale) for row in rows]


def _by_case(kernels: list[tuple[str, float]]) -> dict[str, float]:
    """The sum of the kernels after each marker, over the calls that made them."""
    totals: list[float] = []
    for name, seconds in kernels:
        if MARKER in name:
            totals.append(0.0)
        elif totals:
            totals[-1] += seconds
    assert len(totals) == len(SMALL), f"{len(totals)} markers for {len(SMALL)} cases"
    return {case_id: total / NCU_CALLS for case_id, total in zip(SMALL, totals, strict=True)}


def run_under_ncu(place: Place) -> None:
    """The small cases with the buffer sets of the stopwatch, so that every call meets a cold L2."""
    import torch

    cases = {case.id: case for case in ALL_CASES(place)}
    prepared = [cases[name].prepare(place, sets_wanted(cases[name], place)) for name in SMALL]
    for each in prepared:
        for call in each.calls:
            call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for each in prepared:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        for index in range(NCU_CALLS):
            each.calls[index % len(each.calls)]()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

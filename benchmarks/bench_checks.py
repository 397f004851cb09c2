"""Checks of the stopwatch on a GPU: planted slowdowns are found, and independent timers agree.

    python benchmarks/bench_checks.py --out results/bench-checks-<machine>.json

Planted: four cases are measured, then the same ids doing 5 % and 10 % more work; `bench compare` must say SLOWER.
Agreement: eight cases against triton.testing.do_bench (100 us and more) or a CUDA graph of 200 calls over rotated
buffers (below). Large products swing with the power limit, so the burst figure is the one compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
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
from firstlight.bench.results import RunResult
from firstlight.bench.runner import Request, World, run_bench
from firstlight.facts.collect import Facts
from firstlight.facts.look import Look, look_at
from firstlight.report.summary import machine_summary
from firstlight.tables import load

AGREEMENT = (
    "gemm/fp16/4096x4096x4096", "gemm/bf16/8192x8192x8192", "bandwidth/copy/fp16/512MiB", "bandwidth/add/fp16/512MiB",
    "softmax/fp16/32x12x512x512", "layernorm/fp16/32x512x4096", "gemm/fp16/1024x1024x1024", "gemm/fp16/2048x2048x2048",
)  # fmt: skip
LARGE_S = 100e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs, where it is not a checkout")
    options = parser.parse_args()
    facts, place = look_at(Look()), place_of(describe("cuda:0"))
    document = {
        "schema": "firstlight.bench-checks/1",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit or None,
        "machine": ", ".join(machine_summary(facts)),
        "planted": _planted(facts),
        "agreement": _agreement(facts, place),
    }
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
    world = World(lambda _: cases, facts, load(), lambda _: None, lambda _: None)
    return run_bench(request, world)


def _planted(facts: Facts) -> list[dict[str, Any]]:
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


def _agreement(facts: Facts, place: Place) -> list[dict[str, Any]]:
    cases = {case.id: case for case in ALL_CASES(place)}
    picked = tuple(cases[name] for name in AGREEMENT)
    ours = {case.id: case for case in _run(facts, picked, Effort.STANDARD).cases}
    rows = []
    for case in picked:
        shown = {figure.regime.value: figure.time_s.median for figure in ours[case.id].figures if figure.time_s}
        mine = shown.get("burst") or shown["sustained"]
        theirs, timer = _independent(case, place)
        rows.append(
            {"case": case.id, "ours_us": shown_us(mine), "theirs_us": shown_us(theirs), "timer": timer,
             "difference": round(mine / theirs - 1, 4)}
        )  # fmt: skip
    return rows


def shown_us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _independent(case: Case, place: Place) -> tuple[float, str]:
    """Seconds of one call by a timer that is not ours."""
    import torch
    from triton.testing import do_bench

    prepared = case.prepare(place, 1)
    guess = float(do_bench(prepared.calls[0], warmup=25, rep=100, return_mode="median")) * 1e-3
    if guess >= LARGE_S:
        time.sleep(1.0)
        return float(do_bench(prepared.calls[0], warmup=5, rep=30, return_mode="median")) * 1e-3, "triton do_bench"
    sets = max(2, -(-3 * place.l2_bytes // case.set_bytes))
    calls = case.prepare(place, min(sets, 64)).calls
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(200):
            calls[index % len(calls)]()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    times = []
    for _ in range(20):
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3 / 200)
    return sorted(times)[len(times) // 2], "graph of 200 calls over rotated buffers"


if __name__ == "__main__":
    main()

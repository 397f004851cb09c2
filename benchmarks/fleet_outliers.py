"""How often `fleet bench` names a GPU: 200 fleets made of real runs of one H200, with noise as measured.

    python -m benchmarks.fleet_outliers --out results/fleet-outliers.json

A run of a GPU is the document results/bench-h200-standard.json with passes of results/bench-aa-h200.json in it: five
quick runs of the same code, of which every figure is drawn anew (a run at random, then its passes with replacement). It
is then read as `fleet bench` reads what a host sent. In A/A fleets nothing is slow, and whatever is named is false. In
the others one GPU takes longer in every figure. What is not in it is the spread between chips, because all runs are of
one H200; `supposed_spreads` says what some spread would do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from firstlight.bench.equal_gpus import GpuRun, MeasuredGpu, gpu_runs, measured_gpus
from firstlight.bench.results import RunResult, read_run
from firstlight.bench.slow_gpus import LEAST_EQUAL, LEAST_RUNS, MADS, SLOWER_BY, judged_gpus
from firstlight.report.html.bench_page import without_samples
from firstlight.tables import load

ROOT = Path(__file__).parents[1]
DOCUMENT, SAME_CODE = ROOT / "results/bench-h200-standard.json", ROOT / "results/bench-aa-h200.json"
FLEETS, SMALLEST, LARGEST, GPUS_OF_A_HOST = 200, 8, 64, 8
TABLES = load()
SLOWED_BY = (1.03, 1.05, 1.06, 1.07, 1.10)
CHIP_SPREADS = (0.005, 0.01, 0.02, 0.03)
Passes = Mapping[str, Sequence[Sequence[float]]]  # figure -> for each of the real runs the seconds of its passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fleets", type=int, default=FLEETS)
    parser.add_argument("--seed", type=int, default=29)
    options = parser.parse_args()
    began = time.perf_counter()
    document = simulated(options.fleets, options.seed)
    document["seconds"] = round(time.perf_counter() - began, 1)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({name: document[name] for name in ("same_code", "slowed", "supposed_spreads")}, indent=1))


def simulated(fleets: int, seed: int) -> dict[str, Any]:
    passes = real_passes()
    real = with_figures(read_run(str(DOCUMENT)), passes)
    [taken] = gpu_runs(real, TABLES, host="", device="gpu-0", number=1)
    return {
        "schema": "firstlight.fleet-outliers/1",
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}; the runs are of one NVIDIA H200",
        "made_of": [str(path.relative_to(ROOT)) for path in (DOCUMENT, SAME_CODE)],
        "rule": {"slower_by": SLOWER_BY, "mads": MADS, "least_equal": LEAST_EQUAL, "runs": LEAST_RUNS},
        "seed": seed,
        "fleets": fleets,
        "gpus": [SMALLEST, LARGEST],
        "figures": len(taken.taken),
        "noise": noise({name: passes[name] for name in taken.taken}),
        "same_code": one_row(fleets, random.Random(f"{seed} same"), real, passes),
        "slowed": [
            {"by": by, **one_row(fleets, random.Random(f"{seed} {by}"), real, passes, slowed=by)} for by in SLOWED_BY
        ],
        "supposed_spreads": [
            {"spread": spread, "note": "supposed, not measured", **one_row(
                fleets, random.Random(f"{seed} {spread}"), real, passes, chips=spread)}
            for spread in CHIP_SPREADS
        ],
    }  # fmt: skip


def real_passes() -> Passes:
    """The pass medians of the quick runs of the same code, in seconds."""
    [quick] = [each for each in json.loads(SAME_CODE.read_text())["sets"] if each["effort"] == "quick"]
    return {name: [[us * 1e-6 for us in run] for run in runs] for name, runs in quick["pass_medians_us"].items()}


def with_figures(run: RunResult, passes: Passes) -> RunResult:
    """The document with those cases alone that the quick runs have, without single samples."""
    cases = []
    for case in without_samples(run).cases:
        figures = tuple(each for each in case.figures if f"{case.id} [{each.regime.value}]" in passes)
        if figures:
            headline = case.headline if any(each.regime is case.headline for each in figures) else figures[0].regime
            cases.append(replace(case, figures=figures, headline=headline))
    return replace(run, cases=tuple(cases))


def noise(passes: Passes) -> dict[str, float]:
    """How far apart the real runs lie: of each figure the widest distance from its median, as a share."""
    apart = [max(abs(median(run) / median(map(median, runs)) - 1) for run in runs) for runs in passes.values()]
    return {"median_of_figures": round(median(apart), 5), "widest": round(max(apart), 5)}


def one_row(
    fleets: int, dice: random.Random, real: RunResult, passes: Passes, *, slowed: float = 1.0, chips: float = 0.0
) -> dict[str, Any]:
    """Some fleets: how many had a GPU named that is not slow, and how many had the slow one found."""
    false, found, sizes, low = 0, 0, [], []
    for _ in range(fleets):
        gpus, slow = fleet(dice, real, passes, slowed=slowed, chips=chips)
        named = judged_gpus(gpus).slow
        sizes.append(len(gpus))
        found += any((gpu.host, gpu.device) == slow for gpu in named)
        false += sum((gpu.host, gpu.device) != slow or slowed == 1.0 for gpu in named)
        low += [len(gpu.low) / gpu.figures for gpu in named if (gpu.host, gpu.device) == slow]
    row: dict[str, Any] = {"fleets": fleets, "gpus": sum(sizes), "falsely_named": false}
    if slowed != 1.0:
        row |= {"found": found, "found_share": found / fleets, "share_of_figures": round(fmean(low), 3) if low else 0}
    return row


def fleet(
    dice: random.Random, real: RunResult, passes: Passes, *, slowed: float, chips: float
) -> tuple[tuple[MeasuredGpu, ...], tuple[str, str]]:
    """GPUs of 8 a host, two runs each; and which of them is the slow one."""
    places = [
        (f"node{number // GPUS_OF_A_HOST + 1:02}", f"gpu-{number % GPUS_OF_A_HOST}")
        for number in range(dice.randint(SMALLEST, LARGEST))
    ]
    slow = dice.choice(places)
    runs: list[GpuRun] = []
    for host, device in places:
        factor = (slowed if (host, device) == slow else 1.0) * max(0.5, dice.gauss(1.0, chips))
        for number in (1, 2):
            document = drawn(dice, real, passes, factor)
            runs += gpu_runs(document, TABLES, host=host, device=device, number=number)
    return measured_gpus(runs), slow


def drawn(dice: random.Random, real: RunResult, passes: Passes, factor: float) -> RunResult:
    """Every figure anew: one of the real runs, and as many of its passes as it had, drawn with replacement."""
    cases = []
    for case in real.cases:
        figures = []
        for figure in case.figures:
            run = dice.choice(passes[f"{case.id} [{figure.regime.value}]"])
            medians = [factor * each for each in dice.choices(run, k=len(run))]
            again = [
                replace(figure.passes[place % len(figure.passes)], median=each) for place, each in enumerate(medians)
            ]
            time_s = replace(figure.time_s, median=median(medians))
            tflops = figure.rate.tflops and figure.rate.tflops * figure.time_s.median / time_s.median
            figures.append(
                replace(figure, time_s=time_s, passes=tuple(again), rate=replace(figure.rate, tflops=tflops))
            )
        cases.append(replace(case, figures=tuple(figures)))
    return replace(real, cases=tuple(cases))


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()

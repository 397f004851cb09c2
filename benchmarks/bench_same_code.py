"""The same code in several processes: every pair compared, and how much processes differ, by kind of case.

    python benchmarks/bench_same_code.py --out results/bench-aa-<machine>.json --runs quick:5,standard:2 --keep DIR
    python benchmarks/bench_same_code.py --out results/bench-aa-<machine>.json --read DIR     # runs made before, no GPU

A pair that comes out slower or faster is a false alarm. The spread of one process is what the means of its passes vary
by beyond what the passes themselves explain, on a log scale, pooled over the figures of a kind; it is the source of
`src/firstlight/bench/between_processes.py`. The pass medians are kept, so that both can be worked out again.
Slowed: every pair both ways, with all times of the second run multiplied, tells how often such a change is called.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from firstlight.bench.between_processes import SpreadKind, kind_of, row_of
from firstlight.bench.compare import compare_runs
from firstlight.bench.results import Figure, RunResult, Verdict, read_run
from firstlight.bench.statistics import LEAST_PASSES, Change

PROCESS_S = "process-seconds.json"  # beside the runs: wall seconds of each process, by the name of its file
WORST = 5
SLOWED_BY = (1.05, 1.10, 1.50)
Passes = dict[tuple[str, str], list[list[float]]]  # (id, regime) -> for each run the seconds of its passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", default="quick:5,standard:2", help="effort:count,..")
    parser.add_argument("--keep", type=Path, help="folder for the result files of the runs")
    parser.add_argument("--read", type=Path, help="folder with such files; nothing is measured")
    parser.add_argument("--commit", default="", help="of the code that ran, where the runs cannot know it")
    parser.add_argument("--note", default="", help="what a reader has to know of that commit")
    options = parser.parse_args()
    if options.read is None:
        if options.keep is None:
            parser.error("--keep FOLDER is needed, or --read FOLDER")
        measure(options.keep, options.runs)
    document = summary(options.read or options.keep)
    if options.commit:
        document |= {"commit": options.commit, "commit_note": options.note}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(told(document))


def measure(folder: Path, runs: str) -> None:
    """One process for each run, compiled rows left out."""
    seconds: dict[str, float] = {}
    for effort, _, count in (each.partition(":") for each in runs.split(",")):
        for number in range(1, int(count) + 1):
            name = f"{effort}-{number}.json"
            command = ["-m", "firstlight", "bench", "--effort", effort, "--no-compile", "--out", str(folder / name)]
            began = time.perf_counter()
            subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
            seconds[name] = round(time.perf_counter() - began, 1)
            (folder / PROCESS_S).write_text(json.dumps(seconds) + "\n")


def summary(folder: Path) -> dict[str, Any]:
    """The document of all runs in a folder, those of one effort together."""
    seconds = json.loads((folder / PROCESS_S).read_text())
    runs = {name: read_run(str(folder / name)) for name in sorted(seconds)}
    first = next(iter(runs.values()))
    efforts = list(dict.fromkeys(run.run.profile for run in runs.values()))
    sets = [
        one_set({name: run for name, run in runs.items() if run.run.profile == effort}, seconds) for effort in efforts
    ]
    return {
        "schema": "firstlight.bench-same-code/1",
        "date": first.run.started[:10],
        "commit": first.run.commit,
        "commit_note": "as the runs say" + (", with uncommitted changes" if first.run.dirty else ""),
        "machine": f"{first.gpus[0].name}, {first.host.os}, {first.host.container}, Python {first.host.python}",
        "software": {
            name: getattr(first.software, name) for name in ("driver", "cuda", "torch", "cudnn", "nccl", "triton")
        },
        "false_alarms": sum(pair["slower"] + pair["faster"] for each in sets for pair in each["pairs"]),
        "sets": sets,
    }


def one_set(runs: dict[str, RunResult], seconds: dict[str, float]) -> dict[str, Any]:
    """Runs of one effort: their times, the verdicts of every pair, the spreads, the medians of the passes."""
    several = list(runs.values())
    passes = pass_medians(several)
    return {
        "effort": several[0].run.profile,
        "argv": several[0].run.argv,
        "runs": [
            {
                "id": run.run.id,
                "timing_and_warm_up_s": run.run.gpu_seconds,
                "bench_s": run.run.wall_seconds,
                "process_s": seconds[name],
            }
            for name, run in runs.items()
        ],
        "pairs": [
            pair(first, second, one, other)
            for (first, one), (second, other) in itertools.combinations(enumerate(several, 1), 2)
        ],
        "slowed": [row for factor in SLOWED_BY for row in slowed(several, factor)],
        "spreads": spreads(several, passes),
        "pass_medians_us": {
            f"{case_id} [{regime}]": [[round(each * 1e6, 3) for each in run] for run in sides]
            for (case_id, regime), sides in passes.items()
        },
    }


def pair(first: int, second: int, one: RunResult, other: RunResult) -> dict[str, Any]:
    """How many figures of two runs have which verdict; what was called changed, by name."""
    found = compare_runs(one, other)
    return {
        "runs": [first, second],
        **{change.value: found.count(change) for change in Change},
        "unclear_but_more_passes_could_tell": len(found.unsettled),
        "changed": [
            {"case": case.id, "regime": case.regime.value, "ratio": round(case.ratio, 4), "kind": case.kind.value}
            for case in found.cases
            if case.change in (Change.SLOWER, Change.FASTER)
        ],
        "refused": found.refused,
    }


def slowed(runs: Sequence[RunResult], factor: float) -> list[dict[str, Any]]:
    """By kind: how many figures with passes enough for a verdict are called slower when times are multiplied."""
    called: Counter[SpreadKind] = Counter()
    of: Counter[SpreadKind] = Counter()
    for one, other in itertools.permutations(runs, 2):
        for case in compare_runs(one, multiplied(other, factor)).cases:
            if min(case.passes) >= LEAST_PASSES:
                of[case.kind] += 1
                called[case.kind] += case.change is Change.SLOWER
    return [
        {"by": factor, "kind": kind.value, "slower": called[kind], "of": of[kind]} for kind in SpreadKind if of[kind]
    ]


def multiplied(run: RunResult, factor: float) -> RunResult:
    """The run with every time multiplied."""

    def longer(figure: Figure) -> Figure:
        passes = tuple(replace(each, median=factor * each.median) for each in figure.passes)
        return replace(figure, passes=passes, time_s=replace(figure.time_s, median=factor * figure.time_s.median))

    cases = (replace(case, figures=tuple(longer(figure) for figure in case.figures)) for case in run.cases)
    return replace(run, cases=tuple(cases))


def pass_medians(runs: Sequence[RunResult]) -> Passes:
    """The medians of the passes of every figure that all runs have."""
    found: Passes = {}
    for run in runs:
        for case in run.cases:
            for figure in case.figures if case.verdict is Verdict.OK else ():
                found.setdefault((case.id, figure.regime.value), []).append([each.median for each in figure.passes])
    return {key: sides for key, sides in found.items() if len(sides) == len(runs)}


def spreads(runs: Sequence[RunResult], passes: Passes) -> dict[str, Any]:
    """By kind of case: how much processes differ beyond their passes, and the figures that differ most."""
    kinds: dict[str, set[SpreadKind]] = {}
    for run in runs:
        for case in run.cases:
            if case.verdict is Verdict.OK:
                kinds.setdefault(case.id, set()).add(kind_of(case))
    by_kind: dict[SpreadKind, list[dict[str, Any]]] = {kind: [] for kind in SpreadKind}
    for (case_id, regime), sides in passes.items():
        if min(len(side) for side in sides) >= 2:  # one pass does not tell its own spread
            widest = max(kinds[case_id], key=lambda kind: row_of(kind).spread)
            by_kind[widest].append({"case": case_id, "regime": regime, **variances(sides)})
    return {kind.value: _pooled(kind, figures) for kind, figures in by_kind.items() if figures}


def variances(sides: Sequence[Sequence[float]]) -> dict[str, float]:
    """Of one figure, on a log scale: of passes within a process, of the means of processes, and the means' range."""
    logs = [[math.log(each) for each in side] for side in sides]
    means = [fmean(side) for side in logs]
    within = fmean(variance(side) for side in logs)
    return {
        "within": within,
        "of_means": variance(means),
        "between": variance(means) - within / fmean(len(side) for side in logs),
        "range": max(means) - min(means),
    }


def _pooled(kind: SpreadKind, figures: list[dict[str, Any]]) -> dict[str, Any]:
    def spread(name: str) -> float:
        return round(math.sqrt(max(0.0, fmean(each[name] for each in figures))), 4)

    worst = sorted(figures, key=lambda each: -float(each["range"]))[:WORST]
    return {
        "figures": len(figures),
        "between_processes": spread("between"),
        "of_means": spread("of_means"),
        "within": spread("within"),
        "told_to_compare": row_of(kind).spread,
        "widest": [
            {
                "case": each["case"],
                "regime": each["regime"],
                "range": round(each["range"], 4),
                "between_processes": round(math.sqrt(max(0.0, each["between"])), 4),
            }
            for each in worst
        ],
    }


def told(document: dict[str, Any]) -> str:
    """What there is to see, in a few lines."""
    lines = []
    for each in document["sets"]:
        lines.append(f"{each['effort']}: {len(each['runs'])} runs, {len(each['pairs'])} pairs")
        lines += [
            f"  {kind}: {row['figures']} figures, between processes {row['between_processes']:.4f}, "
            f"of means {row['of_means']:.4f}, told to compare {row['told_to_compare']}"
            for kind, row in each["spreads"].items()
        ]
        lines += [f"  slowed by {row['by']}: {row['kind']} {row['slower']} of {row['of']}" for row in each["slowed"]]
        lines += [f"  {one['runs']}: {one['same']} same, {one['unclear']} unclear" for one in each["pairs"]]
    return "\n".join([*lines, f"false alarms: {document['false_alarms']}"])


if __name__ == "__main__":
    main()

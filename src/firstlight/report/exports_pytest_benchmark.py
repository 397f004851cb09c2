"""A run as the JSON that pytest-benchmark saves, for `pytest-benchmark compare` and everything that reads its files.

A round of theirs is a sample of ours, their iterations are the calls in one captured graph, and their statistics are
computed from the samples as they define them. Ours (the interval, the limit) stand in `extra_info`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from firstlight.bench.results import RunResult
from firstlight.frozen import dataclass
from firstlight.report.exports_rows import Row, rows

# The version of pytest-benchmark whose file this is: read back with it in the tests.
FILE_VERSION = "5.3.1"


@dataclass(frozen=True, slots=True)
class Rounds:
    """The times that the statistics are computed from, in seconds, sorted; of='samples' or 'pass medians'."""

    seconds: tuple[float, ...]
    of: str


def pytest_benchmark(run: RunResult) -> str:
    """The document with a final newline."""
    document = {
        "machine_info": _machine(run),
        "commit_info": _commit(run),
        "benchmarks": [_benchmark(row) for row in rows(run)],
        "datetime": run.run.started,
        "version": FILE_VERSION,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _machine(run: RunResult) -> dict[str, Any]:
    """Their keys first, then what decides the speed here: another GPU or driver makes them warn."""
    return {
        "node": run.host.name,
        "processor": run.host.machine,
        "machine": run.host.machine,
        "system": "Linux",
        "python_version": run.host.python,
        "cpu": {"brand_raw": run.host.cpu},
        "os": run.host.os,
        "gpus": [gpu.name for gpu in run.gpus],
        "driver": run.software.driver,
        "cuda": run.software.cuda,
        "torch": run.software.torch,
        "cudnn": run.software.cudnn,
        "effort": run.run.profile,
        "tool": run.tool,
    }


def _commit(run: RunResult) -> dict[str, Any]:
    """'unversioned' is what pytest-benchmark itself writes outside of a repository."""
    return {
        "id": run.run.commit or "unversioned",
        "time": None,
        "dirty": run.run.dirty,
        "project": "firstlight bench",
        "branch": "(unknown)",
    }


def _benchmark(row: Row) -> dict[str, Any]:
    case, figure = row.case, row.figure
    found = _rounds(row)
    return {
        "group": case.family,
        "name": row.name,
        "fullname": row.name,
        "params": {
            **dict(case.params),
            "dtype": case.dtype,
            "mode": case.mode,
            "regime": figure.regime.value,
            "gpu": row.gpu,
        },
        "param": row.param,
        "extra_info": _extra(row, found),
        "options": {},
        "stats": {**_stats(found.seconds), "data": list(found.seconds), "iterations": case.graph_calls},
    }


def _extra(row: Row, found: Rounds) -> dict[str, Any]:
    case, figure = row.case, row.figure
    limit = figure.limit
    return {
        "stats_of": found.of,
        "headline": figure.regime is case.headline,
        "median_s": figure.time_s.median,
        "ci95_s": list(figure.time_s.ci95),
        "tflops": figure.rate.tflops,
        "gbps": figure.rate.gbps,
        "items_per_s": figure.rate.items_per_s,
        "bound": None if limit is None else limit.bound.value,
        "pct_of_limit_at_clock": None if limit is None else limit.pct_clock,
        "tier": figure.tier,
        "flags": [*case.flags, *figure.flags],
    }


def _rounds(row: Row) -> Rounds:
    """Every sample; where a file kept none of a pass, the medians of the passes, and it is said."""
    passes = row.figure.passes
    if all(each.samples for each in passes):
        return Rounds(tuple(sorted(sample for each in passes for sample in each.samples)), "samples")
    return Rounds(tuple(sorted(each.median for each in passes)), "pass medians, because the file holds no samples")


def _stats(seconds: Sequence[float]) -> dict[str, Any]:
    """The statistics of sorted times under their names."""
    mean = statistics.fmean(seconds)
    stddev = statistics.stdev(seconds) if len(seconds) > 1 else 0.0
    q1, q3 = _quartiles(seconds)
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    far = sum(not mean - stddev <= each <= mean + stddev for each in seconds)
    outside = sum(not low <= each <= high for each in seconds)
    return {
        "min": seconds[0],
        "max": seconds[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(seconds),
        "median": statistics.median(seconds),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": next(each for each in seconds if each >= low),
        "hd15iqr": next(each for each in reversed(seconds) if each <= high),
        "ops": 1 / mean,
        "total": sum(seconds),
    }


def _quartiles(seconds: Sequence[float]) -> tuple[float, float]:
    """As pytest-benchmark takes them: medians of the halves of an even number, weighted neighbours of an odd one."""
    count = len(seconds)
    if count == 1:
        return seconds[0], seconds[0]
    if count % 2 == 0:
        return statistics.median(seconds[: count // 2]), statistics.median(seconds[count // 2 :])
    return _weighted(seconds), _weighted(seconds[::-1])


def _weighted(seconds: Sequence[float]) -> float:
    """The first quartile of 4n + 1 or 4n + 3 times, counted from the front."""
    n, rest = divmod(len(seconds), 4)
    if rest == 1:
        return 0.25 * seconds[n - 1] + 0.75 * seconds[n]
    return 0.75 * seconds[n] + 0.25 * seconds[n + 1]

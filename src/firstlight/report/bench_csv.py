"""A run as CSV: one line per figure, and one for each case without a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from firstlight.bench.results import CaseResult, Figure, RunResult

COLUMNS = (
    "id", "family", "gpu", "dtype", "mode", "cache", "params", "verdict", "reason", "regime", "headline", "median_s",
    "ci95_low_s", "ci95_high_s", "min_s", "q1_s", "q3_s", "n", "n_eff", "passes", "tflops", "gbps", "items_per_s",
    "flops", "dense_flops", "bytes", "bound", "limit_clock_s", "pct_spec", "pct_clock", "pct_achieved", "tier",
    "sm_mhz", "power_w", "host_median_s", "launch_bound", "graph_calls", "peak_alloc_bytes", "peak_reserved_bytes",
    "setup_s", "error_rel", "flags",
)  # fmt: skip


def bench_csv(run: RunResult) -> str:
    """The table with a header line; what is not known is an empty cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for case in run.cases:
        writer.writerows(_lines(case))
    return out.getvalue()


def _lines(case: CaseResult) -> Iterator[dict[str, object]]:
    common = _common(case)
    if not case.figures:
        yield common
    for figure in case.figures:
        yield {**common, **_of_figure(figure), "headline": figure.regime is case.headline}


def _common(case: CaseResult) -> dict[str, object]:
    named = ("id", "family", "gpu", "dtype", "mode", "cache", "reason", "flops", "dense_flops", "bytes")
    counted = ("launch_bound", "graph_calls", "peak_alloc_bytes", "peak_reserved_bytes", "setup_s", "error_rel")
    return {
        **{name: getattr(case, name) for name in (*named, *counted)},
        "params": " ".join(f"{name}={value}" for name, value in case.params),
        "verdict": case.verdict.value,
        "host_median_s": None if case.host_time_s is None else case.host_time_s.median,
        "flags": " ".join(case.flags),
    }


def _of_figure(figure: Figure) -> dict[str, object]:
    time, rate, limit, seen = figure.time_s, figure.rate, figure.limit, figure.telemetry
    cells: dict[str, object] = {
        "regime": figure.regime.value, "median_s": time.median, "ci95_low_s": time.ci95[0],
        "ci95_high_s": time.ci95[1], "min_s": time.min, "q1_s": time.q1, "q3_s": time.q3, "n": time.n,
        "n_eff": time.n_eff, "passes": len(figure.passes), "tflops": rate.tflops, "gbps": rate.gbps,
        "items_per_s": rate.items_per_s, "tier": figure.tier,
    }  # fmt: skip
    if limit is not None:
        cells |= {
            "bound": limit.bound.value, "limit_clock_s": limit.t_clock_s, "pct_spec": limit.pct_spec,
            "pct_clock": limit.pct_clock, "pct_achieved": limit.pct_achieved,
        }  # fmt: skip
    if seen is not None:
        cells |= {"sm_mhz": None if seen.sm_mhz is None else seen.sm_mhz[1], "power_w": seen.power_w}
    return cells

"""A run for github-action-benchmark (tool: customSmallerIsBetter): one entry per figure, its median time.

The unit is always us: the action draws one line per name, and a unit that changes between runs breaks it.
"""

from __future__ import annotations

import json

from firstlight.bench.limits import limit_of_interest
from firstlight.bench.results import RunResult
from firstlight.numerals import DASH, percent_text
from firstlight.report.bench_cells import rate_text
from firstlight.report.exports_rows import Row, place_text, rows

UNIT = "us"


def github_action_benchmark(run: RunResult) -> str:
    """The array of entries with a final newline."""
    return json.dumps([_entry(run, row) for row in rows(run)], indent=1, allow_nan=False) + "\n"


def _entry(run: RunResult, row: Row) -> dict[str, str | float]:
    low, high = row.figure.time_s.ci95
    return {
        "name": row.name,
        "unit": UNIT,
        "value": _rounded(row.figure.time_s.median * 1e6),
        # The action reads a number after the sign; half the interval, which need not be symmetric.
        "range": f"± {_rounded((high - low) / 2 * 1e6)}",
        "extra": "\n".join(_extra(run, row)),
    }


def _extra(run: RunResult, row: Row) -> list[str]:
    time = row.figure.time_s
    rate, share = rate_text(row.case, row.figure), percent_text(limit_of_interest(row.figure.limit)[1])
    lines = [f"median of {time.n} samples in {len(row.figure.passes)} passes; range: 95 % interval of the median"]
    if rate != DASH:
        lines.append(rate if share == DASH else f"{rate}, {share} of the limit")
    return [*lines, place_text(run, row.case), f"effort {run.run.profile}, {run.tool}"]


def _rounded(microseconds: float) -> float:
    """Seven significant digits: picoseconds of a short call, without the noise of the conversion."""
    return float(f"{microseconds:.7g}")

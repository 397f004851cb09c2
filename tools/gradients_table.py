"""The table of gradients of attention in one pass beside two, from results/attention-gradients-h200.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "attention-gradients-h200.json"
Row = dict[str, Any]


def gradients_part(path: Path = RESULTS) -> str:
    """What docs/kernels/attention.md says of them."""
    found: dict[str, Any] = json.loads(path.read_text())
    lines = [
        "| mask | shape, D128 bf16 | share of blocks | two passes, ms | one pass, ms | two / one | one pass, TFLOP/s | "
        "taken |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    lines += [_line(row) for row in found["times"]]
    return (
        f"On one {found['gpu']} (torch {found['torch']}, commit {found['commit']}, {found['date']}), random data, "
        "both ways in turns in one process. Burst / sustained: medians of 10 calls after a pause with L2 flushed; "
        "0.6 s back to back. "
        "Whole backward passes, with the sums of rows and, in one pass, the kernel that makes dq. TFLOP/s count five "
        "products of the listed blocks.\n\n" + "\n".join(lines) + "\n"
    )


def _line(row: Row) -> str:
    one, two = row["one"], row["two"]
    kinds = ("burst_ms", "sustained_ms")

    def pair(values: list[float], digits: int) -> str:
        return " / ".join(f"{value:.{digits}f}" for value in values)

    batch, heads, length = row["shape"]
    taken = row["taken"]
    cells = [
        row["case"], f"B{batch} H{heads} S{length}", f"{row['density']:.3f}", pair([two[kind] for kind in kinds], 2),
        pair([one[kind] for kind in kinds], 2), pair([two[kind] / one[kind] for kind in kinds], 2),
        pair([row["tflop"] / one[kind] * 1000 for kind in kinds], 0),
        f"{taken} pass{'es' if taken == 'two' else ''}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"

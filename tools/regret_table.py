"""The table of what `auto` costs on held-out questions, from results/kernels-regret-h200.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "kernels-regret-h200.json"
LONG_US, CLOSE, FAR = 50.0, 1.05, 1.15
SETS = {"open": "open half", "closed": "closed half, first run", "drawn": "drawn later, first run"}
GRADIENTS = ("backward", "dx", "dw", "training")


def regret_part() -> str:
    """What docs/kernels/library.md says of it."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    lines = [
        "| questions | commit | calls | within 5 % of the best | within 15 % | worst |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, words in SETS.items():
        for kind in ("products", "attention"):
            for gradients in (False, True):
                regrets = regrets_of(found[name]["rows"], kind, gradients=gradients)
                what = f"{kind}, {'gradients' if gradients else 'forward'}, {words}"
                lines.append(f"| {what} | {found[name]['commit']} | {_shown(regrets)} |")
    gpu, torch = found["open"]["gpu"], found["open"]["torch"]
    return (
        "\n".join(lines)
        + f"\n\nMeasured on {gpu}, torch {torch}: `benchmarks/regret.py`, times of every backend in "
        + "`results/kernels-regret-h200.json`. Calls whose best takes less than 50 us are not counted.\n"
    )


def regrets_of(rows: list[dict[str, Any]], kind: str, *, gradients: bool) -> list[float]:
    """Time of what auto took over the best, of the calls that count."""
    return [
        row["regret"] or row["regret_timed"]
        for row in rows
        if row["kind"] == kind
        and "us" in row
        and (row["direction"] in GRADIENTS) == gradients
        and min(row["us"].values()) >= LONG_US
    ]


def _shown(regrets: list[float]) -> str:
    shares = [sum(one <= bound for one in regrets) / max(1, len(regrets)) for bound in (CLOSE, FAR)]
    worst = max(regrets, default=0.0)
    return f"{len(regrets)} | {shares[0]:.1%} | {shares[1]:.1%} | {worst:.2f}x"

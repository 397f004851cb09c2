"""The table of what `auto` costs on held-out questions, from results/kernels-regret-h200.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "kernels-regret-h200.json"
LONG_US, CLOSE, FAR = 50.0, 1.05, 1.15
SETS = (  # part of the results, how its questions' ids begin, words
    ("open", "", "open half"),
    ("closed", "", "closed half, first run"),
    ("drawn", "2211 ", "drawn later, seed 2211, first run"),
    ("drawn", "2212 ", "drawn after those, seed 2212, first run"),
)
BEFORE_MODELS = ("4b92733", "c24c708", "f9ca377", "12982f2")  # of results whose auto went by the nearest rows
GRADIENTS = ("backward", "dx", "dw", "training")
Row = dict[str, Any]


def regret_part() -> str:
    """What docs/kernels/library.md says of it."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    lines = [
        "| questions | commit | calls | within 5 % of the best | within 15 % | worst | auto's own time: within 5 % "
        "| within 15 % | worst |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, begin, words in SETS:
        rows = [row for row in found[name]["rows"] if row["id"].startswith(begin)]
        for kind in ("products", "attention"):
            for gradients in (False, True):
                counted = counted_of(rows, kind, gradients=gradients)
                if counted:
                    what = f"{kind}, {'gradients' if gradients else 'forward'}, {words}"
                    shown = f"{len(counted)} | {_shown(named_regrets(counted))} | {_shown(timed_regrets(counted))}"
                    lines.append(f"| {what} | {found[name]['commit']} | {shown} |")
    gpu, torch = found["open"]["gpu"], found["open"]["torch"]
    return (
        "\n".join(lines)
        + f"\n\nMeasured on {gpu}, torch {torch}: `benchmarks/regret.py`, times of every backend and of `auto` in "
        + "`results/kernels-regret-h200.json`. Calls whose best takes less than 50 us are not counted. A training step "
        + "of several backends has no time of one backend: its own counts in both.\n"
    )


def older_choice(*commits: str) -> str:
    """What has to be said beside figures of `auto` that were measured before it went by models of time; else empty."""
    old = [commit for commit in commits if commit in BEFORE_MODELS]
    if not old:
        return ""
    named = f"commit {old[0]}" if len(old) == 1 else f"commits {', '.join(old)}"
    return (
        f"What `auto` took in these is by the rule of {named}, which looked up the nearest measured rows. It goes by "
        "models of time since; what that costs is in [the table of regrets](library.md#backends-and-auto)."
    )


def counted_of(rows: list[Row], kind: str, *, gradients: bool) -> list[Row]:
    """The rows that count: timed, and long enough."""
    return [
        row
        for row in rows
        if row["kind"] == kind
        and "us" in row
        and (row["direction"] in GRADIENTS) == gradients
        and min(row["us"].values()) >= LONG_US
    ]


def named_regrets(rows: list[Row]) -> list[float]:
    """Time of the backend that auto took over the best."""
    return [row["regret"] or row["regret_timed"] for row in rows]


def timed_regrets(rows: list[Row]) -> list[float]:
    """Time of the call by auto itself over the best."""
    return [row["regret_timed"] for row in rows]


def _shown(regrets: list[float]) -> str:
    within = [sum(one <= bound for one in regrets) / max(1, len(regrets)) for bound in (CLOSE, FAR)]
    return f"{within[0]:.1%} | {within[1]:.1%} | {max(regrets, default=0.0):.2f}x"

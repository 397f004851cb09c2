"""Fill docs/explain.md: what explain costs, what it says of logs without GPU errors (results/explain/speed.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.generate import with_part

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explain.md"
RESULT = ROOT / "results" / "explain" / "speed.json"


def made() -> dict[Path, str]:
    """The page as it should be."""
    return {PAGE: filled(PAGE.read_text())}


def filled(page: str) -> str:
    """The page with its generated part written anew."""
    return with_part(page, "explain-speed", lambda: _speed(json.loads(RESULT.read_text())))


def _speed(found: dict[str, Any]) -> str:
    quiet, long_log, help_ = found["quiet"], found["long_log"], found["one_line_over_help"]
    rows = [f"| read: {name} | {speed:g} MB/s |" for name, speed in found["mb_per_s"].items()]
    rows += [
        f"| {quiet['mb']:g} MB of logs without GPU errors ({quiet['lines']:,} lines) "
        f"| {len(quiet['answers'])} answers |",
        f"| a log of {long_log['mb']} MB | {long_log['seconds']:g} s, {long_log['peak_mb']:g} MB of memory at most "
        f"(of 1 MB: {long_log['peak_mb_of_1_mb']:g}) |",
        f"| one line, over `firstlight --help` | {help_['wall_ms_more']:g} ms ({help_['wall_ms']:g} in all) |",
    ]
    for name, cost in found["run_explain"].items():
        rows.append(
            f"| `run --explain` over `run`: {name} "
            f"| {cost['wall_ms_more']:+g} ms ({cost['wall_ms_without']:g} before), "
            f"processor {cost['cpu_ms_more']:+g} ms |"
        )
    return (
        "| what | measured |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\nPython {found['python']}, one core of a shared cloud machine (load {found['load_average']:g}); medians "
        f"of {help_['turns']} in turns; `python -m benchmarks.explain_speed`.\n"
    )

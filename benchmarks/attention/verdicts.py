"""What was promised of block-sparse attention on an H200, and whether it was met. Bars are of bursts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firstlight.frozen import dataclass

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: a row's field against a least (or, for times, most) value, and what was aimed at."""

    row: str
    field: str
    least: float
    aim: float


BARS = (
    Bar("dense causal", "ms", 12.3, 11.0),
    Bar("dense causal", "times_cudnn", 1.0, 1.0),
    Bar("full lists, density 1.0", "tflops", 575, 640),
    Bar("density 0.5", "tflops", 560, 620),
    Bar("density 0.25", "tflops", 585, 650),
    Bar("density 0.09", "tflops", 510, 580),
    Bar("density 0.09", "times_flex", 1.8, 1.8),
    Bar("3.3 of 32 blocks a row", "times_cudnn_causal", 5.0, 5.0),
    Bar("3.3 of 32 blocks a row", "ms", 2.9, 2.3),
    Bar("64x64 top-64", "tflops", 350, 450),
    Bar("bf16", "of_fp16_d128", 0.9, 0.97),
    Bar("head dim 64", "of_fp16_d128", 0.75, 0.97),
    Bar("GQA 8:1", "of_fp16_d128", 0.9, 0.97),
    Bar("ragged S=4001", "of_fp16_d128", 0.9, 0.97),
    Bar("backward, density 0.5", "times_flex", 1.15, 1.15),
    Bar("backward, density 0.5", "tflops", 300, 420),
)
LISTS_SHARE = 0.05
AUTO_SLOWER = 1.03


def judged(bar: Bar, rows: Sequence[Row]) -> str:
    """One line: what was found, what was wanted, met or not."""
    value = next((row.get(bar.field) for row in rows if row["name"] == bar.row), None)
    if value is None:
        return f"{bar.row}, {bar.field}: not measured; {bar.least:g} wanted"
    is_time = bar.field == "ms"
    met = value <= bar.least if is_time else value >= bar.least
    aimed = value <= bar.aim if is_time else value >= bar.aim
    said = "met" + (", aim met" if aimed else "") if met else "NOT met"
    return f"{bar.row}, {bar.field}: {value:g}; {bar.least:g} wanted, {bar.aim:g} aimed at: {said}"


def verdicts(parts: dict[str, Any]) -> list[str]:
    """Every promise on a line, then what went wrong."""
    rows = [*parts.get("table", ()), *parts.get("backward", ())]
    lines = [judged(bar, rows) for bar in BARS]
    for row in parts.get("lists", ()):
        share = row["of_the_run"]
        said = "not measured" if share is None else "met" if share < LISTS_SHARE else "NOT met"
        lines.append(f"{row['what']}, {row['name']}: {share} of the run, below {LISTS_SHARE:g} wanted: {said}")
    if "auto" in parts:
        found = parts["auto"]["summary"]
        said = "met" if found["worst"] is not None and found["worst"] <= AUTO_SLOWER else "NOT met or not measured"
        lines.append(f"auto over the best of torch's kernels: worst {found['worst']}, {AUTO_SLOWER:g} wanted: {said}")
    for name, call in parts.get("overheads", {}).get("calls", {}).items():
        lines.append(f"processor time, {name}: {call.get('median_us', call.get('error'))} us")
    held = [*rows, *parts.get("sweep", ()), *parts.get("held_out", ())]
    wrong = [(row["id"], row["reason"]) for row in held if row["verdict"] != "ok"]
    others = [(row["id"], key, row[key]) for row in held for key in row if key.endswith("_reason") and row[key]]
    return [*lines, f"rows that are not ok: {wrong or 'none'}", f"others that could not be timed: {others or 'none'}"]

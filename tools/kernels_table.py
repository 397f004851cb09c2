"""The tables of block-sparse products from results/kernels-matmul-h200.json, for README.md and docs/kernels/library.md.

There is nothing to show before that file exists: the part between the marks is then empty.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.regret_table import older_choice

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "results" / "kernels-matmul-h200.json"
Row = dict[str, Any]
CALLS = {"columns": "matmul", "tokens": "linear"}


def library_part(path: Path = KERNELS) -> str:
    """Every row, what `auto` took on shapes it was not tuned for, and what a call costs the processor."""
    if not path.exists():
        return ""
    found = _read(path)
    parts = ["## Measured", _head(found), _table(found, lambda row: True)]
    if "c" in found["parts"]:
        parts.append(_crossovers(found["parts"]["c"]))
    if "b" in found["parts"]:
        parts.append(_held_out(found["parts"]["b"]["rows"]))
        parts.append(_auto(found["parts"]["b"]["summary"], found["parts"]["b"]["rows"]))
        parts += [said] if (said := older_choice(found["commit"])) else []
    if "d" in found["parts"]:
        parts.append(_overheads(found["parts"]["d"]))
    if "e" in found["parts"]:
        parts.append(_scheduling(found["parts"]["e"]))
    return "\n\n".join([*parts, _foot(path)]) + "\n"


def _read(path: Path) -> dict[str, Any]:
    """The file, refused where a figure lacks its code, its samples or what NVML read meanwhile."""
    found: dict[str, Any] = json.loads(path.read_text())
    name = f"results/{path.name}"
    if not found["commit"]:
        sys.exit(f"{name} names no commit")
    # Later parts measure some of the same products more briefly, without samples; the table shows the first part's.
    records = {record["id"]: record for record in found["records"] if "figures" in record}
    rows = found["parts"].get("a", [])
    if not rows:
        sys.exit(f"{name} holds no rows")
    for row in rows:
        if row["verdict"] != "ok":
            sys.exit(f"{name}: {row['id']} is {row['verdict']}")
        shown = [f"{row['id']}/sparse", f"{row['id']}/same", f"{row['id'].rpartition('/')[0]}/1/random"]
        if row["torch_ms"] is not None:
            shown.append(f"{row['id']}/torch")
        for each in shown:
            backed(records.get(each), f"{name}: {each}")
    return found


def backed(record: dict[str, Any] | None, where: str) -> None:
    """Stops where a figure has no samples or no clocks behind it."""
    if record is None or not record["figures"]:
        sys.exit(f"{where} holds no figures")
    for figure in record["figures"]:
        if not all(each["samples_s"] for each in figure["passes"]):
            sys.exit(f"{where} holds no samples")
        if not (figure["telemetry"] or {}).get("sm_mhz"):
            sys.exit(f"{where} holds no clocks")


def _head(found: dict[str, Any]) -> str:
    software = found["software"]
    where = (
        f"{found['gpu']['name']}, driver {software['driver']}, torch {software['torch']}, triton {software['triton']}"
    )
    return (
        f"**Measured on H200 only** ({where}, {found['date']}): [8192, 8192] times 8192 tokens, random data and "
        "patterns. TFLOP/s count stored blocks; the share is of cuBLAS on dense random data."
    )


def _table(found: dict[str, Any], wanted: Callable[[Row], bool]) -> str:
    lines = [
        f"| block | density | call | `{found['backend']}` | on stored blocks | of cuBLAS | cuBLAS, random data | "
        "cuBLAS, same matrix stored dense | torch BSR, untuned |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [row for row in found["parts"]["a"] if wanted(row)]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(row: Row) -> str:
    theirs = "-" if row["torch_ms"] is None else f"{row['torch_ms']:.2f} ms ({row['times_torch']:.1f}x ours)"
    call = f"{CALLS[row['layout']]} {row['dtype']}"
    return (
        f"| {row['block']} | {row['density']:g} | {call} | {row['ms']:.3f} ms | {row['tflops']:.0f} TFLOP/s | "
        f"{row['of_cublas']:.2f} | {row['dense_random_ms']:.3f} ms | "
        f"{row['dense_same_ms']:.3f} ms ({row['times_dense_same']:.1f}x ours) | {theirs} |"
    )


def _crossovers(rows: list[Row]) -> str:
    """Up to which density the sparse kernel beats the same matrix stored dense, at 8192 x 8192."""
    from benchmarks.crossover import Row as Measured
    from benchmarks.crossover import crossover

    tokens = sorted({row["tokens"] for row in rows})
    lines = [
        "Density at which the same matrix stored dense is as fast (8192 x 8192, fp16), by tokens; 0.80 is the densest "
        "that was measured:",
        "",
        f"| block | call | {' | '.join(map(str, tokens))} |",
        f"|---|---|{'---|' * len(tokens)}",
    ]
    large = [row for row in rows if row["rows"] == 8192 and row["cols"] == 8192]
    for block, layout in dict.fromkeys((row["block"], row["layout"]) for row in large):
        cells = {}
        for row in large:
            if (row["block"], row["layout"]) == (block, layout):
                pairs = tuple((density, time) for density, time in row["sparse_us"])
                measured = Measured(**{**row, "sparse_us": pairs})
                cells[row["tokens"]] = f"{crossover(measured, training=False):.2f}"
        shown = " | ".join(cells.get(each, "-") for each in tokens)
        lines.append(f"| {block} | {CALLS[layout]} | {shown} |")
    return "\n".join(lines)


def _held_out(rows: list[Row]) -> str:
    """Shapes that no tile was chosen on: sparse, dense, and what auto took."""
    lines = [
        "Shapes that were never used in tuning (fp16); `auto` is what a call without a backend took:",
        "",
        "| W | tokens | call | block | density | `triton` | same matrix stored dense | `auto` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        block, layout, _, shape, density = row["id"].split("/")
        height, width, tokens = shape.split("x")
        times = [f"{1000 * row[each]:.1f} us" for each in ("sparse_ms", "dense_same_ms", "auto_ms")]
        lines.append(
            f"| {height} x {width} | {tokens} | {CALLS[layout]} | {block} | {density} | {times[0]} | {times[1]} | "
            f"{row['auto_took']}, {times[2]} |"
        )
    return "\n".join(lines)


def _auto(summary: dict[str, Any], rows: list[Row]) -> str:
    if not summary["long_calls"]:
        return "No call of 100 us or more was measured on shapes that were not tuned for."
    within, dense = summary["long_within_3_percent"] or 0.0, summary["sent_to_dense"] or 0.0
    worst = max(rows, key=lambda row: row["auto_over_better"])
    return (
        f"`auto` on shapes that were not tuned for: of {summary['long_calls']} calls of 100 us and more "
        f"{100 * within:.0f} % took at most 3 % longer than the better of sparse and dense; of all {summary['calls']} "
        f"calls {100 * dense:.0f} % went to dense. The worst of all, shorter ones included, took "
        f"{100 * worst['auto_over_better'] - 100:.0f} % longer than the better one ({worst['id']})."
    )


def _overheads(part: dict[str, Any]) -> str:
    lines = [f"Processor time of one call ({part['shape']}):", "", "| call | median |", "|---|---|"]
    for name, call in part["calls"].items():
        if "error" in call or not call["samples_us"]:
            sys.exit(f"processor time of {name}: {call.get('error', 'no samples')}")
        lines.append(f"| {name} | {call['median_us']:.1f} us |")
    return "\n".join(lines)


def _scheduling(part: dict[str, Any]) -> str:
    first, other = part["order and segments"], part["transposed index"]
    return (
        f"A new pattern ({part['pattern']}) is scheduled in {first['device_ms']:.3f} ms of the GPU and "
        f"{first['launched_ms']:.3f} ms of the processor; its transposed index, for gradients, takes "
        f"{other['device_ms']:.3f} ms and {other['launched_ms']:.3f} ms."
    )


def _foot(path: Path) -> str:
    return (
        "Products of 0.5 ms and more are burst figures, shorter ones have one figure. "
        f"`benchmarks/matmul/run.py`; every sample and clock in `results/{path.name}`."
    )

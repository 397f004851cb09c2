"""The tables of the Hopper kernels for README.md and docs/kernels/matmul.md.

From results/kernels-sm90-h200.json, and -auto-, -without-, -new-, -epilogues- and kernels-nsight-h200.json beside it.
Nothing is shown before they exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.matmul.sm90.work import BARS

from tools.kernels_table import backed
from tools.regret_table import older_choice

ROOT = Path(__file__).parents[1]
SM90 = ROOT / "results" / "kernels-sm90-h200.json"
CHOICES = ROOT / "results" / "kernels-sm90-auto-h200.json"
NSIGHT = ROOT / "results" / "kernels-nsight-h200.json"
WITHOUT = ROOT / "results" / "kernels-sm90-without-h200.json"
NEW = ROOT / "results" / "kernels-sm90-new-h200.json"
EPILOGUES = ROOT / "results" / "kernels-sm90-epilogues-h200.json"
FRONT = (128, 0.3)  # block and density
CALLS = {"columns": "matmul", "tokens": "linear"}
Row = dict[str, Any]


def front_rows(path: Path = SM90) -> str:
    """One product for the first page, beside the same matrix dense; nothing before it was measured."""
    if not path.exists():
        return ""
    found = _read(path)
    asked = ("fp16", "tokens", *FRONT)
    return "".join(
        f"| `linear`, [8192, 8192] times 8192 tokens, fp16, block {row['block']}, density {row['density']:g} "
        f"| {row['ms']:.2f} ms | "
        f"cuBLAS, dense: {row['dense_same_ms']:.2f} ms ({row['times_dense_same']:.1f}x ours) |\n"
        for row in found["parts"]["table"]
        if (row["dtype"], row["layout"], row["block"], row["density"]) == asked
    )


def table_part(path: Path = SM90) -> str:
    """Every row of the table, burst and sustained side by side, gradients and low densities."""
    if not path.exists():
        return ""
    found = _read(path)
    parts = [_head(found), _table(found, found["parts"]["table"]), _missed(found["parts"]["table"])]
    for name, make in (("gradients", _gradients), ("low", _low)):
        if found["parts"].get(name):
            parts.append(make(found["parts"][name]))
    return "\n\n".join([*parts, _foot(path)]) + "\n"


def held_out_part(path: Path = SM90, choices: Path = CHOICES) -> str:
    """Shapes and patterns that nothing was tuned on, each with its limit; crossovers, and what `auto` made of them."""
    if not path.exists():
        return ""
    whole = _read(path)
    found = whole["parts"]
    chosen = json.loads(choices.read_text()) if choices.exists() else None  # a run of its own, which is the later one
    makers: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("held_out", _held_out), ("patterns", _patterns), ("crossings", _crossovers), ("auto", _auto),
        ("overheads", _overheads),
    )  # fmt: skip
    shown = makers if chosen is None else makers[:2]
    parts = [make(found[name]) for name, make in shown if found.get(name)]
    parts.append(_foot(path))
    if chosen is not None:
        parts += [make(chosen["parts"][name]) for name, make in makers[2:]]
        parts.append(f"The last three are of commit {chosen['commit']}: every time in `results/{choices.name}`.")
    if said := older_choice(whole["commit"], "" if chosen is None else chosen["commit"]):
        parts.append(said)
    return "\n\n".join(parts) + "\n"


def nsight_part(path: Path = NSIGHT) -> str:
    """What the profiler counted, beside what the schedule predicts."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    if not found["commit"] or not found["cases"]:
        sys.exit(f"results/{path.name} names no commit or holds no cases")
    lines = _heads(
        "block", "density", "call", "tensor pipe active", "bytes into shared memory over prediction",
        "bytes read of L2 over prediction", "bank conflicts: shared loads", "of cycles", "stores",
    )  # fmt: skip
    for case in found["cases"]:
        block, layout, _, _, density = case["id"].split("/")
        share = case["l2_to_sm_over_predicted"]
        lines.append(
            _line(
                block,
                density,
                CALLS[layout],
                _or_dash(case["tensor_active_pct"], "{:.1f} %"),
                _or_dash(share.get("xbar2l1tex"), "{:.3f}"),
                _or_dash(share.get("srcunit_tex_op_read"), "{:.3f}"),
                _or_dash(case["shared_load_conflicts"], "{:,.0f}"),
                _or_dash(case.get("load_conflict_cycles_pct"), "{:.3f} %"),
                _or_dash(case["shared_store_conflicts"], "{:,.0f}"),
            )
        )
    about = f"Nsight Compute {found['ncu']}, commit {found['commit']}; every metric in `results/{path.name}`."
    return "\n".join(lines) + f"\n\n{about}\n"


def without_part(path: Path = WITHOUT) -> str:
    """What is left of the time when products, stores or loads are left out."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    if not found["commit"] or not found["rows"]:
        sys.exit(f"results/{path.name} names no commit or holds no rows")
    names = ("whole", "loads and stores", "loads and products", "loads", "products and stores")
    products: dict[tuple[int, float, str], dict[str, Row]] = {}
    for row in found["rows"]:
        if not row["samples_ms"]:
            sys.exit(f"results/{path.name}: {row} has no samples")
        products.setdefault((row["block"], row["density"], row["layout"]), {})[row["part"]] = row
    lines = _heads("block", "density", "call", *names, "of a copy's rate", "without products")
    for (block, density, layout), parts in products.items():
        times = [f"{parts[name]['ms']:.3f} ms" for name in names]
        shares = [
            f"{parts[name]['least_bytes'] / parts[name]['ms'] * 1e3 / found['copy_bytes_per_s']:.0%}"
            for name in names[:2]
        ]
        lines.append(_line(block, f"{density:g}", CALLS[layout], *times, *shares))
    about = f"{found['gpu']}, commit {found['commit']}; a copy moves {found['copy_bytes_per_s'] / 1e9:,.0f} GB/s there"
    return "\n".join(lines) + f"\n\n{about}; every sample in `results/{path.name}`.\n"


def new_part(path: Path = NEW) -> str:
    """The first product with a new pattern beside the second."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    rows = found["parts"].get("new", [])
    if not found["commit"] or not rows:
        sys.exit(f"results/{path.name} names no commit or holds no rows")
    lines = _heads("block", "backend", "the first call returns after", "its result is there after", "the second call")
    for row in rows:
        if not row["first_samples_ms"]:
            sys.exit(f"results/{path.name}: block {row['block']} by {row['backend']} has no samples")
        times = [f"{row[name]:.2f} ms" for name in ("returned_ms", "first_ms", "second_ms")]
        lines.append(_line(row["block"], f"`{row['backend']}`", *times))
    (height, width, tokens), count = rows[0]["shape"], len(rows[0]["first_samples_ms"])
    about = f"{height} x {width}, {tokens} tokens, density {rows[0]['density']:g}, medians of {count} new patterns"
    return "\n".join(lines) + f"\n\n{about}; commit {found['commit']}, every time in `results/{path.name}`.\n"


def epilogues_part(path: Path = EPILOGUES) -> str:
    """What follows a product beside the product alone, and ragged numbers of tokens and columns."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    if (
        not found["commit"]
        or not found["rows"]
        or not all(row["samples_ms"] for row in found["rows"] + found["ragged"])
    ):
        sys.exit(f"results/{path.name} names no commit, or holds rows without samples")
    names = ("none", "bias", "relu", "silu", "gelu", "gelu_tanh", "gate")
    shapes: dict[tuple[float, ...], dict[str, Row]] = {}
    for row in found["rows"]:
        shapes.setdefault(tuple(row["shape"]), {})[row["name"]] = row
    lines = _heads("W", "tokens", "block", "density", "none", *names[1:-1], "gated, beside two products")
    for (rows, cols, tokens, block, density), by in shapes.items():
        over = [f"{by[name]['over'] - 1:+.1%}" for name in names[1:]]
        lines.append(_line(f"{rows} x {cols}", tokens, block, f"{density:g}", f"{by['none']['ms']:.3f} ms", *over))
    lines += ["", *_heads("block", "density", "call", *(f"{n}" for n in sorted({row["n"] for row in found["ragged"]})))]
    calls: dict[tuple[Any, ...], list[Row]] = {}
    for row in found["ragged"]:
        calls.setdefault((row["block"], row["density"], row["call"]), []).append(row)
    for (block, density, call), each in calls.items():
        times = [f"{row['ms']:.3f} ms" for row in sorted(each, key=lambda row: int(row["n"]))]
        lines.append(_line(block, f"{density:g}", call, *times))
    about = f"{found['gpu']}, bfloat16, commit {found['commit']}; the second table is 8192 x 8192"
    return "\n".join(lines) + f"\n\n{about}; every sample in `results/{path.name}`.\n"


PARTS: dict[str, Callable[[], str]] = {
    "sm90-table": table_part,
    "sm90-held-out": held_out_part,
    "sm90-nsight": nsight_part,
    "sm90-without": without_part,
    "sm90-new": new_part,
    "sm90-epilogues": epilogues_part,
}


def _read(path: Path) -> dict[str, Any]:
    """The file, refused where a figure lacks its code, its samples or what NVML read meanwhile."""
    found: dict[str, Any] = json.loads(path.read_text())
    name = f"results/{path.name}"
    if not found["commit"]:
        sys.exit(f"{name} names no commit")
    rows = found["parts"].get("table", [])
    if not rows:
        sys.exit(f"{name} holds no rows")
    records = {record["id"]: record for record in found["records"] if "figures" in record}
    for row in rows:
        if row["verdict"] != "ok":
            sys.exit(f"{name}: {row['id']} is {row['verdict']}")
        random = "/".join(["128", *row["id"].split("/")[1:-1], "1", "random"])
        for each in (f"{row['id']}/sparse", f"{row['id']}/same", random):
            backed(records.get(each), f"{name}: {each}")
    return found


def _head(found: dict[str, Any]) -> str:
    software = found["software"]
    where = f"{found['gpu']['name']}, driver {software['driver']}, torch {software['torch']}"
    return (
        f'**Measured on H200 only** ({where}, {found["date"]}), `backend="sm90"`: [8192, 8192] times 8192 tokens, '
        "random data and patterns. TFLOP/s count stored blocks; the share is of cuBLAS on dense random data in the "
        "same process. Burst: a few calls after a pause. Sustained: back to back for half a second, cuBLAS too."
    )


def _table(found: dict[str, Any], rows: Sequence[Row]) -> str:
    later = {row["id"]: row for row in found["parts"].get("sustained", ())}
    lines = _heads(
        "block", "density", "call", "burst", "TFLOP/s", "of cuBLAS", "sustained", "of cuBLAS, sustained",
        "cuBLAS, same matrix stored dense", "limit", "of the limit",
    )  # fmt: skip
    for row in rows:
        after = later.get(row["id"], {})
        lines.append(
            _line(
                row["block"],
                f"{row['density']:g}",
                f"{CALLS[row['layout']]} {row['dtype']}",
                f"{row['ms']:.3f} ms",
                f"{row['tflops']:.0f}",
                f"{row['of_cublas']:.2f}",
                _or_dash(after.get("ms"), "{:.3f} ms"),
                _or_dash(after.get("of_cublas"), "{:.2f}"),
                f"{row['dense_same_ms']:.3f} ms ({row['times_dense_same']:.1f}x ours)",
                row.get("limit", "-"),
                _or_dash(row.get("of_limit"), "{:.0%}"),
            )
        )
    return "\n".join(lines)


def _missed(rows: Sequence[Row]) -> str:
    """The rows below what was wanted, each with its limit."""
    lines = [
        f"{row['block']} at {row['density']:g} {CALLS[row['layout']]} {row['dtype']} {row['of_cublas']:.3f} of "
        f"{BARS[row['block'], row['density']][0]:g} ({row['of_limit']:.0%} of the {row['limit']} limit)"
        for row in rows
        if (row["block"], row["density"]) in BARS and row["of_cublas"] < BARS[row["block"], row["density"]][0]
    ]
    if not lines:
        return "Every row reaches the share of cuBLAS that was wanted of it."
    return f"Below the share of cuBLAS that was wanted are {len(lines)} of {len(rows)} rows: {'; '.join(lines)}."


def _gradients(rows: Sequence[Row]) -> str:
    lines = ["Gradients, beside the dense product of the same kind:", ""]
    lines += _heads("gradient", "block", "density", "call", "burst", "TFLOP/s", "of cuBLAS")
    for row in rows:
        lines.append(
            _line(
                row["gradient"],
                row["block"],
                f"{row['density']:g}",
                CALLS[row["layout"]],
                _or_dash(row["ms"], "{:.3f} ms"),
                _or_dash(row.get("tflops"), "{:.0f}"),
                _or_dash(row.get("of_cublas"), "{:.2f}"),
            )
        )
    return "\n".join(lines)


def _low(rows: Sequence[Row]) -> str:
    lines = ["Few stored blocks, where memory is the limit: bytes that have to move, over the time, beside a copy:", ""]
    lines += _heads("block", "density", "call", "burst", "GB/s", "of a copy's rate", "limit", "of the limit")
    for row in rows:
        lines.append(
            _line(
                row["block"],
                f"{row['density']:g}",
                CALLS[row["layout"]],
                _or_dash(row["ms"], "{:.3f} ms"),
                _or_dash(row.get("gbps"), "{:,.0f}"),
                _or_dash(row.get("of_copy"), "{:.0%}"),
                row.get("limit", "-"),
                _or_dash(row.get("of_limit"), "{:.0%}"),
            )
        )
    return "\n".join(lines)


def _overheads(part: dict[str, Any]) -> str:
    lines = [f"Processor time of one call ({part['shape']}):", "", *_heads("call", "median", "least")]
    for name, call in part["calls"].items():
        if "error" in call or not call["samples_us"]:
            sys.exit(f"processor time of {name}: {call.get('error', 'no samples')}")
        lines.append(_line(name, f"{call['median_us']:.1f} us", f"{min(call['samples_us']):.1f} us"))
    return "\n".join(lines)


def _held_out(rows: Sequence[Row]) -> str:
    lines = ["Shapes that were never used in tuning (fp16):", ""]
    lines += _heads(
        "W", "tokens", "call", "block", "density", "`sm90`", "same matrix stored dense", "limit", "of the limit",
        "`auto`",
    )  # fmt: skip
    for row in rows:
        block, layout, _, shape, density = row["id"].split("/")
        height, width, tokens = shape.split("x")
        lines.append(
            _line(
                f"{height} x {width}",
                tokens,
                CALLS[layout],
                block,
                density,
                _us(row["ms"]),
                _us(row["dense_same_ms"]),
                row.get("limit", "-"),
                _or_dash(row.get("of_limit"), "{:.0%}"),
                f"{row['auto_took']}, {_us(row['auto_ms'])}",
            )
        )
    return "\n".join(lines)


def _patterns(rows: Sequence[Row]) -> str:
    lines = ["Patterns that are not uniformly random (8192 cubed, fp16):", ""]
    lines += _heads("pattern", "block", "density", "call", "burst", "TFLOP/s", "of cuBLAS", "limit", "of the limit")
    for row in rows:
        lines.append(
            _line(
                row["pattern"],
                row["block"],
                f"{row['density']:.3f}",
                CALLS[row["layout"]],
                _or_dash(row["ms"], "{:.3f} ms"),
                _or_dash(row.get("tflops"), "{:.0f}"),
                _or_dash(row.get("of_cublas"), "{:.2f}"),
                row.get("limit", "-"),
                _or_dash(row.get("of_limit"), "{:.0%}"),
            )
        )
    return "\n".join(lines)


def _crossovers(part: dict[str, Any]) -> str:
    """Up to which density the Hopper kernel beats the same matrix stored dense, at 8192 x 8192."""
    rows = [row for row in part["crossovers"] if row["rows"] == 8192 and row["operation"] == "multiply"]
    tokens = sorted({row["tokens"] for row in rows})
    lines = ["Density at which the same matrix stored dense is as fast (8192 x 8192, fp16), by tokens:", ""]
    lines += _heads("block", "call", *map(str, tokens))
    for block, layout in dict.fromkeys((row["block"], row["layout"]) for row in rows):
        cells = {
            row["tokens"]: f"{row['crossover']:.2f}" for row in rows if (row["block"], row["layout"]) == (block, layout)
        }
        lines.append(_line(block, CALLS[layout], *(cells.get(each, "-") for each in tokens)))
    return "\n".join(lines)


def _auto(part: dict[str, Any]) -> str:
    found = part["summary"]
    if not found["long_calls"]:
        return "`auto` was measured on no call of 100 us or more."
    height, width, tokens = part["rows"][0]["id"].split("/")[3].split("x")
    return (
        f"`auto` on {height} x {width} with {tokens} tokens, a shape that is not among the measured ones, densities "
        f"0.01 to 1: of {found['long_calls']} calls of 100 us and more {100 * found['long_within_3_percent']:.0f} % "
        f"took at most 3 % longer than the better of sparse and dense, the worst {100 * found['worst'] - 100:.1f} % "
        f"longer. {100 * found['sent_to_dense']:.0f} % of the calls went to dense, {100 * found['sent_to_sm90']:.0f} % "
        f"to the Hopper kernels, {100 * found['sent_to_triton']:.0f} % to the portable ones."
    )


def _heads(*names: str) -> list[str]:
    return [_line(*names), "|" + "---|" * len(names)]


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _us(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{1000 * time_ms:.1f} us"


def _or_dash(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)


def _foot(path: Path) -> str:
    return (
        "The limit is the largest of three times: bytes of HBM at the rate of a copy, bytes through L2 at 10.6 TB/s, a "
        "little over the most that any row moved, issued products at the rate of cuBLAS. "
        f"`benchmarks/matmul/sm90/run.py`; every sample and clock in `results/{path.name}`."
    )

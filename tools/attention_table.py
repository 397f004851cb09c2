"""The tables and the picture of block-sparse attention for docs/kernels/attention.md, and two rows for README.md.

From results/attention-h200.json. Before that file exists README shows nothing, and the page says that nothing was
measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.attention_picture import picture
from tools.kernels_table import backed
from tools.regret_table import older_choice

ROOT = Path(__file__).parents[1]
ATTENTION = ROOT / "results" / "attention-h200.json"
LISTS = ROOT / "results" / "attention-lists-h200.json"  # a run of its own, where lists changed after the others
PICTURE = ROOT / "docs" / "images" / "attention-density.svg"
NOT_YET = (
    "**Not measured yet.** The kernels were compiled, their machine code read and their arithmetic held against "
    "float64 without a GPU; no time of theirs was taken. `benchmarks/attention` measures them on an H200, beside "
    "cuDNN and FlexAttention in the same process; this part is then written from `results/attention-h200.json`.\n"
)
FRONT = (("dense causal", "causal"), ("density 0.09", "9 % of the blocks"))
LEAST_SAMPLES = 15
Row = dict[str, Any]


def front_rows(path: Path = ATTENTION) -> str:
    """Two masks for the first page, beside others in the same process; nothing before they were measured."""
    if not path.exists():
        return ""
    return "".join(
        f"| `attention`, B16 H96 S4096 D128, fp16, forward, {words} | {row['ms']:.2f} ms | "
        + ", ".join(
            f"{called}: {row[f'{rival}_ms']:.2f} ms ({row[f'times_{rival}']:.2f}x ours)"
            for rival, called in (("cudnn", "cuDNN"), ("flex", "FlexAttention"))
            if row.get(f"{rival}_ms") is not None
        )
        + " |\n"
        for name, words in FRONT
        for row in _read(path)["parts"]["table"]
        if row["name"] == name
    )


def table_part(path: Path = ATTENTION) -> str:
    """Every row, burst and sustained beside each other, the backward pass, the picture."""
    if not path.exists():
        return NOT_YET
    found = _read(path)
    backward = [each for row in found["parts"].get("backward", ()) for each in (row, *_by_triton(row))]
    parts = [_head(found), _table([*found["parts"]["table"], *backward])]
    if _sweep(found):
        parts.append("![Time of attention against density](../images/attention-density.svg)")
    return "\n\n".join([*parts, _foot(path)]) + "\n"


def _by_triton(row: Row) -> tuple[Row, ...]:
    """The same backward pass by Triton's kernels, as a row of its own; none where they were not timed beside ours."""
    if not row.get("triton_ms"):
        return ()
    own = {key.removeprefix("triton_"): value for key, value in row.items() if key.startswith("triton_")}
    cool = {"cool_ms": row["cool_triton_ms"], "cool_tflops": row["cool_triton_tflops"]}
    others = {f"times_{name}": row[f"{name}_ms"] / own["ms"] for name in ("flex", "cudnn") if row.get(f"{name}_ms")}
    return ({**row, "sustained": None, **own, **cool, **others, "computed_by": "triton"},)


def more_part(path: Path = ATTENTION, lists: Path = LISTS) -> str:
    """Held-out masks and shapes, building of lists, `auto`, processor time of a call."""
    if not path.exists():
        return "Not measured yet.\n"
    found = _read(path)
    if lists.exists():
        later = json.loads(lists.read_text())
        found["parts"]["lists"] = [{**row, "from": (later["commit"], lists.name)} for row in later["parts"]["lists"]]
    makers: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("held_out", _held_out), ("lists", _lists), ("auto", _auto), ("overheads", _overheads),
    )  # fmt: skip
    parts = [make(found["parts"][name]) for name, make in makers if found["parts"].get(name)]
    if found["parts"].get("auto") and (said := older_choice(found["commit"])):
        parts.append(said)
    return "\n\n".join([*parts, _foot(path)]) + "\n"


def picture_part(path: Path = ATTENTION) -> str:
    """The SVG; empty before there is a sweep to draw."""
    if not path.exists():
        return ""
    found = _read(path)
    return picture(found) if _sweep(found) else ""


PARTS: dict[str, Callable[[], str]] = {"attention-table": table_part, "attention-more": more_part}


def _read(path: Path) -> dict[str, Any]:
    """The file, refused where a figure lacks its code, its samples or what NVML read meanwhile."""
    found: dict[str, Any] = json.loads(path.read_text())
    name = f"results/{path.name}"
    if found.get("dry"):
        sys.exit(f"{name} is of a dry run: tiny sizes on a processor, which say nothing of a GPU")
    if not found["commit"]:
        sys.exit(f"{name} names no commit")
    rows = [*found["parts"].get("table", ()), *found["parts"].get("backward", ())]
    if not rows:
        sys.exit(f"{name} holds no rows")
    records: dict[str, Any] = {}
    for record in found["records"]:
        if "figures" in record:
            records.setdefault(record["id"], record)  # a later part may measure the same again, more briefly
    for row in rows:
        if row["verdict"] != "ok":
            sys.exit(f"{name}: {row['name']} is {row['verdict']}: {row['reason']}")
        backward = "backward " if row["name"].startswith("backward") else ""
        for role in ("ours", *(("triton",) if row.get("triton_ms") else ())):
            backed(records.get(f"{row['id']}/{backward}{role}"), f"{name}: {row['name']}")
            count = len(row["burst" if role == "ours" else f"{role}_burst"]["samples_ms"])
            if count < LEAST_SAMPLES:
                sys.exit(f"{name}: {row['name']} is the median of {count} samples; {LEAST_SAMPLES} are wanted")
    return found


def _sweep(found: dict[str, Any]) -> bool:
    return len([row for row in found["parts"].get("sweep", ()) if row["ms"]]) >= 2


def _head(found: dict[str, Any]) -> str:
    software, rates = found["software"], found["parts"].get("rates", {})
    where = f"{found['gpu']['name']}, driver {software['driver']}, torch {software['torch']}"
    peak = (
        f" cuBLAS reached {rates['cublas_fp16_tflops']:.0f} TFLOP/s (fp16) and a copy {rates['copy_gbps']:,.0f} GB/s "
        "in the same run: the limit is computed from them."
        if "cublas_fp16_tflops" in rates and "copy_gbps" in rates
        else ""
    )
    return (
        f'**Measured on H200 only** ({where}, {found["date"]}), `backend="{found["backend"]}"`: B16 H96 S4096 D128, '
        "fp16, forward, random data, unless a row says otherwise; another random list for every head. TFLOP/s count "
        "what the mask leaves. Burst: 15 calls in a row after a pause, L2 flushed before each, twice. Cool: a few "
        "calls after each of some pauses, before the power limit takes hold. Sustained: a second back to back, with "
        "the clock and power of that second. cuDNN and FlexAttention (compiled) took turns with ours in the same "
        f"process; their times are of bursts.{peak}"
    )


def _table(rows: Sequence[Row]) -> str:
    lines = _heads(
        "case", "burst", "TFLOP/s", "cool", "sustained", "cuDNN, dense", "FlexAttention", "times cuDNN causal",
        "limit", "of the limit",
    )  # fmt: skip
    for row in rows:
        share = f" ({row['of_fp16_d128']:.2f} of fp16 D128)" if row.get("of_fp16_d128") else ""
        lines.append(
            _line(
                row["name"] + (f" (by `{row['computed_by']}`)" if "computed_by" in row else ""),
                f"{row['ms']:.2f} ms",
                f"{row['tflops']:.0f}{share}",
                f"{row['cool_ms']:.2f} ms, {row['cool_tflops']:.0f}",
                _sustained(row.get("sustained")),
                _rival(row, "cudnn"),
                _rival(row, "flex"),
                _or_dash(row.get("times_cudnn_causal"), "{:.2f}x"),
                f"{row['limit']}, {row['limit_ms']:.2f} ms" if row.get("limit") else "-",
                _or_dash(row.get("of_limit"), "{:.0%}"),
            )
        )
    return "\n".join(lines)


def _sustained(found: dict[str, Any] | None) -> str:
    if not found or "ms" not in found:
        return "-"
    read = ", ".join(f"{found[name]:.0f} {unit}" for name, unit in (("sm_mhz", "MHz"), ("power_w", "W")) if found[name])
    return f"{found['ms']:.2f} ms, {found['tflops']:.0f}" + (f" ({read})" if read else "")


def _rival(row: Row, name: str) -> str:
    time = row.get(f"{name}_ms")
    if time is None:
        return "-"
    after = row.get(f"{name}_sustained") or {}
    later = f", sustained {after['ms']:.2f}" if "ms" in after else ""
    return f"{time:.2f} ms{later} ({row[f'times_{name}']:.2f}x ours)"


def _held_out(rows: Sequence[Row]) -> str:
    lines = ["Masks and shapes that nothing was tuned on; heads share keys in all of them:", ""]
    lines += _heads("mask", "shape", "density", "ours", "TFLOP/s", "torch, dense", "limit", "of the limit")
    for row in rows:
        lines.append(
            _line(
                row["mask"],
                row["sizes"],
                f"{row['density']:.3f}",
                _or_dash(row["ms"], "{:.3f} ms"),
                _or_dash(row["tflops"], "{:.0f}"),
                f"{row['dense_by']}, {row['dense_ms']:.3f} ms" if row.get("dense_by") else "-",
                row.get("limit", "-"),
                _or_dash(row.get("of_limit"), "{:.0%}"),
            )
        )
    return "\n".join(lines)


def _lists(rows: Sequence[Row]) -> str:
    lines = ["Building lists on the GPU for a mask that is new with every call:", ""]
    lines += _heads("for", "what", "time", "of the attention", "makes the host wait")
    for row in rows:
        share, waits = _or_dash(row["of_the_run"], "{:.1%}"), row["waits_for_the_device"]
        lines.append(_line(row["name"], row["what"], f"{row['device_ms']:.3f} ms", share, waits))
    if rows and (own := rows[0].get("from")):
        lines += ["", f"These of commit {own[0]}: every time in `results/{own[1]}`."]
    return "\n".join(lines)


def _auto(part: dict[str, Any]) -> str:
    found = part["summary"]
    if not found["long_calls"]:
        return "`auto` was measured on no call of 100 us or more."
    took = ", ".join(f"{count} to `{name}`" for name, count in found["took"].items() if count)
    return (
        f"`auto` beside torch's attention by its fastest kernel for the same mask, on lengths and densities that are "
        f"not among the measured rows: of {found['long_calls']} calls of 100 us and more "
        f"{100 * found['within_3_percent']:.0f} % took at most 3 % longer, the worst {found['worst']:.3f} times as "
        f"long. Of {found['calls']} calls {took}."
    )


def _overheads(part: dict[str, Any]) -> str:
    lines = [f"Processor time of one call ({part['shape']}):", "", *_heads("call", "median")]
    for name, call in part["calls"].items():
        lines.append(
            _line(name, f"{call['median_us']:.1f} us" if "median_us" in call else f"could not run: {call['error']}")
        )
    return "\n".join(lines)


def _heads(*names: str) -> list[str]:
    return [_line(*names), "|" + "---|" * len(names)]


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _or_dash(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)


def _foot(path: Path) -> str:
    return (
        "The limit is the larger of two times: every byte that has to come from or go to HBM at the rate of a copy, "
        "and the products of the listed blocks at the rate of cuBLAS. "
        f"`benchmarks/attention`; every sample and clock in `results/{path.name}`."
    )

"""How fast the Hopper kernels are, by the bench's own stopwatch: results/kernels-sm90-<machine>.json.

    python -m benchmarks.matmul.sm90 --out results/kernels-sm90-h200.json --commit HASH [--only table,low] [--dry]

table      8192 cubed, every block and density with a bar, both types and layouts, beside cuBLAS on dense random data
           and on the same matrix stored dense; every element is checked before anything is timed; bursts
gradients  dX through the transposed index and dW at the stored blocks
low        densities of 0.04 and less: share of a copy's bandwidth
sustained  the table's rows back to back
crossings  the densities at which the same matrix stored dense is as fast
auto       every density from 0.01 to 1 on a shape that was not measured: `auto` beside the better of both
overheads  processor time of one call
new        the first product with a new pattern beside the second
held_out   shapes that were never tuned for, with their limit
patterns   banded, power-law and block-diagonal, with their limit

The file is written after every part. Times are medians. Kernels are compiled first, in a pool of processes.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from benchmarks.matmul.overheads import overheads
from benchmarks.matmul.products import PATIENCE, Budget, Kit
from benchmarks.matmul.sm90.crossing import auto, crossings
from benchmarks.matmul.sm90.new_patterns import new_patterns
from benchmarks.matmul.sm90.parts import gradients, held_out, low, patterns, sustained, table
from benchmarks.matmul.sm90.work import (
    BARS,
    GRADIENT_BARS,
    LEAST_OF_COPY,
    REHEARSAL,
    Sizes,
    State,
    auto_products,
    held_out_products,
    table_groups,
    table_products,
)

from firstlight.bench import gate
from firstlight.bench.about import gpu_of, host_of, software_of
from firstlight.bench.clocks import NvmlCard, NvmlGauge
from firstlight.bench.figures import Setting
from firstlight.bench.peaks import NO_PEAKS, peaks_of
from firstlight.bench.place import describe, device_names, place_of
from firstlight.bench.soak import product_load, soak
from firstlight.bench.timers import CpuTimer, CudaTimer
from firstlight.errors import FirstlightError
from firstlight.facts.look import Look, look_at
from firstlight.kernels.choice.rows import cache_file
from firstlight.kernels.sm90.compile import Variant
from firstlight.records import encode
from firstlight.report.summary import machine_summary
from firstlight.tables import load

SCHEMA = "firstlight.kernels-sm90/1"
PARTS: dict[str, Callable[[State], Any]] = {  # by importance
    "table": table,
    "gradients": gradients,
    "low": low,
    "sustained": sustained,
    "crossings": crossings,
    "auto": auto,
    "overheads": lambda state: overheads(state.kit),
    "new": new_patterns,
    "held_out": held_out,
    "patterns": patterns,
}
SECONDS = {
    "start": 12, "compile": 18, "table": 62, "gradients": 10, "low": 9, "sustained": 32, "crossings": 28, "auto": 26,
    "overheads": 2, "new": 5, "held_out": 25, "patterns": 7,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--budget-s", type=float, default=235.0, help="for everything; what does not fit is listed")
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 2), help="processes that compile")
    parser.add_argument("--dry", action="store_true", help="say what would be measured, with seconds; no GPU needed")
    parser.add_argument("--rehearse", action="store_true", help="small sizes on the processor, to try this script")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not a part; accepted: {','.join(PARTS)}")
    parts = [part for part in PARTS if part in options.only.split(",")]
    if options.dry:
        print(told(parts, Sizes()))
        return
    if options.out is None:
        parser.error("--out FILE is needed")
    if not options.rehearse and not options.commit:
        parser.error("--commit HASH is needed: figures without the code that gave them prove nothing")
    try:
        run(parts, REHEARSAL if options.rehearse else Sizes(), options)
    except FirstlightError as error:
        sys.exit(str(error))


def told(parts: Sequence[str], sizes: Sizes) -> str:
    """What would be measured, and for how long."""
    ids = {
        "table": [each.id for group in table_groups(sizes) for each in table_products(group)],
        "auto": [each.id for each in auto_products(sizes)],
        "held_out": [each.id for each in held_out_products(sizes)],
    }
    lines = [line for part in parts for line in (f"{part}: about {SECONDS[part]} s", *ids.get(part, ()))]
    total = SECONDS["start"] + SECONDS["compile"] + sum(SECONDS[part] for part in parts)
    return "\n".join([*lines, f"{len(needed())} kernels are compiled first; about {total} s in all"])


def run(parts: Sequence[str], sizes: Sizes, options: argparse.Namespace) -> None:
    """Compiles, then measures part by part; the file is written after each."""
    budget = Budget(options.budget_s)
    compiled = [] if options.rehearse else compile_first(options.jobs)
    print(f"{len(compiled)} kernels compiled after {budget.spent_s:.1f} s", flush=True)
    kit, about = prepared("cpu" if options.rehearse else device_names("cuda:0")[0])
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit or None,
        "argv": sys.argv[1:],
        **about,
        "backend": kit.backend,
        "compiled": {
            "kernels": len(compiled),
            "seconds": round(sum(each[1] for each in compiled), 1),
            "failed": [each for each in compiled if each[2]],
        },
        "seconds": {"before": round(budget.spent_s, 1)},
        "parts": {},
        "records": [],
    }
    print(f"ready after {budget.spent_s:.1f} s; failed: {found['compiled']['failed']}", flush=True)
    state = State(kit, sizes, budget, found)
    # `auto` goes by the shipped rows, and by nobody's own
    cache_file("a processor" if kit.setting.gpu is None else kit.setting.gpu.name).unlink(missing_ok=True)
    torch.set_grad_enabled(False)
    gc.collect()
    gc.freeze()
    gc.disable()
    for part in parts:
        began = budget.spent_s
        if not budget.allows(f"part {part}"):
            continue
        try:
            found["parts"][part] = PARTS[part](state)
        except Exception as error:  # noqa: BLE001 the parts that were measured are kept
            traceback.print_exc()
            budget.not_reached.append(f"part {part}: {type(error).__name__}: {error}"[:300])
        found["seconds"][part] = round(budget.spent_s - began, 1)
        found["not_reached"] = budget.not_reached
        gc.collect()
        write(options.out, found)
        print(f"part {part}: {found['seconds'][part]} s, {budget.spent_s:.0f} s in all", flush=True)
    kit.gauge.close()
    print("\n".join(verdicts(found["parts"])))
    print("not reached:", budget.not_reached or "nothing", flush=True)


def prepared(name: str) -> tuple[Kit, dict[str, Any]]:
    """What is timed with on a device, warmed up, and what the result says of the machine."""
    facts = look_at(Look())
    device = describe(name)
    contention = gate.contention(gate.look(device.card, mps=facts.gpus.mps_control)) if device.gpu else ()
    gauge = NvmlGauge(device.card) if isinstance(device.card, NvmlCard) else device.card
    place = place_of(device)
    timer = CpuTimer() if name == "cpu" else CudaTimer(name, l2_bytes=place.l2_bytes)
    gpu = gpu_of(device, facts)
    if gpu is not None:
        soak(product_load(place, timer), timer, gauge, most_s=PATIENCE.soak_s)
    peaks = NO_PEAKS if gpu is None else peaks_of(gpu, load())
    setting = Setting(gpu, -1 if gpu is None else 0, peaks, PATIENCE, gauge.missing)
    about = {
        "machine": ", ".join(machine_summary(facts)),
        "host": encode(host_of(facts)),
        "gpu": encode(gpu) if gpu is not None else None,
        "software": encode(software_of(facts, torch)),
        "contention": list(contention),
    }
    return Kit(place, timer, gauge, setting, "reference" if gpu is None else "sm90"), about


def needed() -> tuple[Variant, ...]:
    """The kernels that the parts launch; a few more are compiled when their turn comes."""
    from firstlight.kernels.sm90.variants import all_variants

    def is_needed(variant: Variant) -> bool:
        defines = dict(variant.defines)
        if int(defines.get("TURNED", 0)):
            return not int(defines["BF16"]) and int(defines["BLOCK"]) >= 64
        return not int(defines.get("BF16", 0)) or (variant.source == "multiply" and defines["TOKENS"] == 256)

    return tuple(variant for variant in all_variants() if is_needed(variant))


def compile_one(variant: Variant) -> tuple[str, float, str]:
    """One kernel into the cache: (what, seconds, error). For a pool's child; needs no GPU."""
    from firstlight.kernels.sm90.cache import built

    began = time.perf_counter()
    try:
        built(variant)
        said = ""
    except Exception as error:  # noqa: BLE001 what cannot be compiled says so again when it is measured
        said = f"{type(error).__name__}: {error}"[:300]
    return f"{variant.source} {variant.defines}", time.perf_counter() - began, said


def compile_first(jobs: int) -> list[tuple[str, float, str]]:
    """Fills the kernels' cache on disk with all that will be launched."""
    variants = needed()
    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(compile_one, variants))
    except Exception as error:  # noqa: BLE001 then they are compiled when their turn comes
        return [("a child", 0.0, f"{type(error).__name__}: {error}"[:200])]


# ------------------------------------------------------------------------------------------------------------ results


def verdicts(parts: dict[str, Any]) -> list[str]:
    """What was promised, and whether it was met; nothing of parts that were not measured."""
    lines = []
    for (block, density), (least, aim) in BARS.items() if "table" in parts else ():
        held = [row for row in parts["table"] if (row["block"], row["density"]) == (block, density)]
        shares = {f"{row['dtype']} {row['layout']}": row.get("of_cublas", 0.0) for row in held}
        worst = min(shares.values(), default=0.0)
        said = "met" if worst >= least else "NOT met"
        said += ", aim met" if worst >= aim else ""
        lines.append(f"block {block} density {density}: {shares} of cuBLAS, {least} wanted, {aim} aimed at: {said}")
    for name, least in GRADIENT_BARS.items() if "gradients" in parts else ():
        held = [row for row in parts["gradients"] if row["gradient"] == name and row["block"] == 128]
        worst = min((row.get("of_cublas", 0.0) for row in held), default=0.0)
        lines.append(f"{name} block 128: {worst} of cuBLAS at worst, {least} wanted")
    if "low" in parts:
        shares = {row["id"]: row.get("of_copy", 0.0) for row in parts["low"]}
        lines.append(f"low densities, share of a copy's bandwidth, {LEAST_OF_COPY} wanted: {shares}")
    if "auto" in parts:
        lines.append(f"auto: {parts['auto']['summary']}")
    for name, call in parts.get("overheads", {}).get("calls", {}).items():
        lines.append(f"processor time, {name}: {call.get('median_us', call.get('error'))} us")
    rows = [row for part in ("table", "gradients", "low", "held_out", "patterns") for row in parts.get(part, ())]
    wrong = [(row["id"], row["reason"]) for row in rows if row["verdict"] != "ok"]
    return [*lines, f"rows that are not ok: {wrong or 'none'}"]


def write(path: Path, found: dict[str, Any]) -> None:
    """The document, one record a line."""
    kept = {key: value for key, value in found.items() if key != "records"}
    lines = [json.dumps(record, allow_nan=False) for record in found["records"]]
    text = json.dumps(kept, indent=1, allow_nan=False)[:-2]
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(text + ',\n "records": [\n' + ",\n".join(f"  {line}" for line in lines) + "\n ]\n}\n")
    scratch.replace(path)

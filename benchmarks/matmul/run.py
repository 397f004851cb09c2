"""How fast block-sparse products are, by the bench's own stopwatch: results/kernels-matmul-<machine>.json.

    python -m benchmarks.matmul --out results/kernels-matmul-h200.json --commit HASH [--only a,d] [--dry]

a  8192 cubed, every block and five densities, both layouts, beside cuBLAS on dense random data, on the same matrix
   stored dense and torch's own untuned BSR; every element is checked before anything is timed
d  processor time of one call, without and with gradients, beside torch's linear
e  scheduling a new 8192 x 8192 pattern of blocks of 64: device and processor
c  densities at which the same matrix stored dense is as fast
b  shapes that were never tuned for, and what `auto` takes there (with the rows of c, if c ran)

Times are medians of three passes (b: two, c: one) in which everything of one group takes turns. Calls of 0.5 ms and
more are taken in bursts after a pause, shorter ones back to back after a pause; cold L2 by size or by rotated buffers.
Kernels are compiled first, in a pool of processes that call the same products.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.crossover import Row
from benchmarks.matmul.overheads import compile_overheads, overheads, schedule_times
from benchmarks.matmul.products import (
    PATIENCE,
    Budget,
    Entry,
    Kit,
    Product,
    brief_of,
    case_of,
    compile_all,
    compile_torch_bsr,
    dense_entry,
    matrix_of,
    operand_of,
    random_weight,
    record_of,
    round_robin,
    seconds_of,
    sparse_entry,
    torch_entry,
)

from firstlight.bench import gate
from firstlight.bench.about import gpu_of, host_of, software_of
from firstlight.bench.clocks import NvmlCard, NvmlGauge
from firstlight.bench.figures import Setting
from firstlight.bench.peaks import NO_PEAKS, peaks_of
from firstlight.bench.place import describe, device_names, place_of
from firstlight.bench.results import CaseResult
from firstlight.bench.soak import product_load, soak
from firstlight.bench.tape import Launching
from firstlight.bench.timers import CpuTimer, CudaTimer
from firstlight.errors import FirstlightError
from firstlight.facts.look import Look, look_at
from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix, explain_choice
from firstlight.kernels.product import Layout
from firstlight.records import encode
from firstlight.report.summary import machine_summary
from firstlight.tables import load

SCHEMA = "firstlight.kernels-matmul/1"
PARTS = ("a", "d", "e", "c", "b")  # by importance
SECONDS = {"start": 12, "compile": 25, "a": 80, "d": 6, "e": 3, "c": 55, "b": 60}
BLOCKS = (128, 64, 32, 16)
DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.5)
BF16 = ((128, (0.1, 0.5)), (64, (0.1, 0.5)))
HELD_OUT = ((128, (0.1, 0.3)), (64, (0.1, 0.3)), (32, (0.1,)), (16, (0.1,)))
CROSSING = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
STORED_DENSE_AT = 0.5  # density of the matrix whose dense copy stands for dense in the crossover rows
CLEARLY_SLOWER = 1.3
LONG_S = 100e-6
CLOSE = 1.03
BARS = (
    ((128,), (0.1,), 0.62), ((128,), (0.5,), 0.72), ((64,), (0.1,), 0.45), ((64,), (0.5,), 0.52),
    ((32,), (0.1, 0.2, 0.3), 0.20), ((16,), (0.1, 0.2, 0.3), 0.10),
)  # fmt: skip
TORCH_BAR = 1.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured: on a GPU, or a small rehearsal on the processor."""

    square: int = 8192
    crossings: tuple[int, ...] = (8192, 4096)
    crossing_tokens: tuple[int, ...] = (4096, 256, 16, 1024, 64, 8192)
    held_out: tuple[tuple[int, int], ...] = ((5120, 13824), (4096, 4096), (12288, 3072))
    held_out_tokens: tuple[int, ...] = (4096, 256, 64, 16)


REHEARSAL = Sizes(128, (128,), (16, 32), ((256, 128),), (32, 16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--budget-s", type=float, default=300.0, help="for everything; what does not fit is listed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes that compile")
    parser.add_argument("--dry", action="store_true", help="list what would be measured, with seconds; no GPU needed")
    parser.add_argument("--rehearse", action="store_true", help="small sizes on the processor, to try this script")
    options = parser.parse_args()
    parts = [part for part in PARTS if part in options.only.split(",")]
    if unknown := set(options.only.split(",")) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not a part; accepted: {','.join(PARTS)}")
    sizes = REHEARSAL if options.rehearse else Sizes()
    if options.dry:
        print(told(parts, sizes))
        return
    if options.out is None:
        parser.error("--out FILE is needed")
    if not options.rehearse and not options.commit:
        parser.error("--commit HASH is needed: figures without the code that gave them prove nothing")
    try:
        run(parts, sizes, options)
    except FirstlightError as error:
        sys.exit(str(error))


def run(parts: Sequence[str], sizes: Sizes, options: argparse.Namespace) -> None:
    """Compiles, then measures part by part; the file is written after each."""
    budget = Budget(options.budget_s)
    os.environ["FIRSTLIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # `auto` goes by the rows of part c, or the shipped ones
    name = "cpu" if options.rehearse else device_names("cuda:0")[0]
    facts = look_at(Look())
    compiled = [] if options.rehearse else compile_first(parts, sizes, options.jobs)
    device = describe(name)
    contention = gate.contention(gate.look(device.card, mps=facts.gpus.mps_control)) if device.gpu else ()
    gauge = NvmlGauge(device.card) if isinstance(device.card, NvmlCard) else device.card
    place = place_of(device)
    timer = CpuTimer() if options.rehearse else CudaTimer(name, l2_bytes=place.l2_bytes)
    gpu = gpu_of(device, facts)
    peaks = NO_PEAKS if gpu is None else peaks_of(gpu, load())
    if gpu is not None:
        soak(product_load(place, timer), timer, gauge, most_s=PATIENCE.soak_s)
    setting = Setting(gpu, -1 if gpu is None else 0, peaks, PATIENCE, gauge.missing)
    kit = Kit(place, timer, gauge, setting, "reference" if options.rehearse else "triton")
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit or None,
        "argv": sys.argv[1:],
        "machine": ", ".join(machine_summary(facts)),
        "host": encode(host_of(facts)),
        "gpu": encode(gpu) if gpu is not None else None,
        "software": encode(software_of(facts, torch)),
        "backend": kit.backend,
        "contention": list(contention),
        "compiled": {"kernels": len(compiled), "failed": [each for each in compiled if each[2]]},
        "seconds": {"before": round(budget.spent_s, 1)},
        "parts": {},
        "records": [],
    }
    failed = found["compiled"]["failed"]
    print(f"ready after {budget.spent_s:.1f} s; {len(compiled)} products compiled, failed: {failed}", flush=True)
    torch.set_grad_enabled(False)
    gc.collect()
    gc.freeze()
    gc.disable()
    for part in parts:
        began = budget.spent_s
        try:
            found["parts"][part] = MAKERS[part](kit, sizes, budget, found)
        except Exception as error:  # noqa: BLE001 the parts that were measured are kept
            traceback.print_exc()
            budget.not_reached.append(f"part {part}: {type(error).__name__}: {error}"[:300])
        found["seconds"][part] = round(budget.spent_s - began, 1)
        found["not_reached"] = budget.not_reached
        gc.collect()
        write(options.out, found)
        print(f"part {part}: {found['seconds'][part]} s, {budget.spent_s:.0f} s in all", flush=True)
    gauge.close()
    if "a" in found["parts"]:
        print("\n".join(bars(found["parts"]["a"])))
    print("not reached:", budget.not_reached or "nothing")


# ---------------------------------------------------------------------------------------------------------- the plan


def groups_of_a(sizes: Sizes) -> Iterator[tuple[Product, tuple[float, ...]]]:
    """What takes turns: one block, layout and type, with its densities."""
    side = sizes.square
    for layout in (Layout.COLUMNS, Layout.TOKENS):
        for block in BLOCKS:
            yield Product(block, layout, "fp16", side, side, side, 1.0), DENSITIES
    for layout in (Layout.COLUMNS, Layout.TOKENS):
        for block, densities in BF16:
            yield Product(block, layout, "bf16", side, side, side, 1.0), densities


def products_of_b(sizes: Sizes) -> Iterator[Product]:
    """Linear with every number of tokens; with the most tokens, where calls are long, matmul too."""
    for tokens in sizes.held_out_tokens:
        for layout in (Layout.TOKENS, Layout.COLUMNS) if tokens == sizes.held_out_tokens[0] else (Layout.TOKENS,):
            for rows, cols in sizes.held_out:
                for block, densities in HELD_OUT:
                    for density in densities:
                        yield Product(block, layout, "fp16", rows, cols, tokens, density)


def products_of_c(sizes: Sizes) -> Iterator[Product]:
    for side in sizes.crossings:
        for block in BLOCKS:
            for density in CROSSING:
                for layout in (Layout.TOKENS, Layout.COLUMNS):
                    for tokens in sizes.crossing_tokens:
                        yield Product(block, layout, "fp16", side, side, tokens, density)


def products_of(parts: Sequence[str], sizes: Sizes) -> Iterator[Product]:
    if "a" in parts:
        for group, densities in groups_of_a(sizes):
            yield from (replace(group, density=density) for density in densities)
    if "c" in parts:
        yield from products_of_c(sizes)
    if "b" in parts:
        yield from products_of_b(sizes)


def told(parts: Sequence[str], sizes: Sizes) -> str:
    """Everything that would be measured."""
    lines = []
    for part in parts:
        ids = [product.id for product in products_of([part], sizes)]
        lines += [f"part {part}: {len(ids) or 'host and device times,'} products, about {SECONDS[part]} s", *ids]
    total = SECONDS["start"] + SECONDS["compile"] + sum(SECONDS[part] for part in parts)
    lines.append(f"{len(batches(list(products_of(parts, sizes)), 1 << 30))} sets of kernels are compiled first")
    return "\n".join([*lines, f"about {total} s in all, {SECONDS['compile']} of them compiling on 16 cores"])


# --------------------------------------------------------------------------------------------------------- compiling


def batches(products: Sequence[Product], most: int) -> list[list[Product]]:
    """Products that need different kernels, in at most `most` lists; a tile's stay together: none is compiled twice."""
    from firstlight.kernels.triton_backend.tiles import Family, choose_tile

    by_tile: dict[Any, dict[Any, Product]] = {}
    for each in products:
        tile = choose_tile(
            Family.SM90, each.block, element_bytes=2, tokens=each.tokens, layout=each.layout, density=each.density
        )
        splits = each.density < 1 / 12  # from there on long rows are split, see UNEVEN in rows_plan.py
        # how rows are split for few tokens depends on the shape
        detail = (each.rows, each.cols, each.tokens, splits) if each.tokens <= 1024 else splits
        by_tile.setdefault((each.block, each.layout, each.dtype, tile), {}).setdefault(detail, each)
    ordered = sorted((list(each.values()) for each in by_tile.values()), key=len, reverse=True)
    made: list[list[Product]] = [[] for _ in range(min(most, len(ordered)))]
    for number, group in enumerate(ordered):
        made[number % len(made)] += group
    return made


def compile_first(parts: Sequence[str], sizes: Sizes, jobs: int) -> list[tuple[str, float, str]]:
    """Fills Triton's cache on disk with all that will be launched."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = []
        if "d" in parts:
            futures.append(pool.submit(compile_overheads))
        if "a" in parts:
            theirs = [replace(group, density=0.05) for group, _ in groups_of_a(sizes) if not group.is_linear]
            half = len(theirs) // 2
            futures += [pool.submit(compile_torch_bsr, some) for some in (theirs[:half], theirs[half:])]
        todo = batches(list(products_of(parts, sizes)), max(1, jobs - len(futures))) if parts else []
        futures += [pool.submit(compile_all, some) for some in todo]
        return [each for future in futures for each in _outcome(future)]


def _outcome(future: Future[list[tuple[str, float, str]]]) -> list[tuple[str, float, str]]:
    """What a child gave; one that died is noted, and its kernels are compiled when their turn comes."""
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001
        return [("a child", 0.0, f"{type(error).__name__}: {error}"[:200])]


# ------------------------------------------------------------------------------------------------------------- parts


def part_a(kit: Kit, sizes: Sizes, budget: Budget, found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for group, densities in groups_of_a(sizes):
        if budget.allows(f"a {group.id}"):
            rows += rows_of_a(kit, group, densities, found["records"])
            gc.collect()
    return rows


def rows_of_a(
    kit: Kit, group: Product, densities: Sequence[float], records: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One group: cuBLAS on random data, then each density with ours, the same stored dense, and torch's BSR."""
    device = kit.place.device
    x = operand_of(group, device)
    entries: list[Entry] = [dense_entry(kit, group, random_weight(group, device), x, role="random")]
    matrices: dict[float, BlockSparseMatrix] = {}
    for density in densities:
        product = replace(group, density=density)
        matrix = matrices[density] = matrix_of(product, device)
        entries.append(sparse_entry(kit, product, matrix, x, backend=kit.backend))
        entries.append(dense_entry(kit, product, matrix.to_dense(), x, role="same"))
        if not group.is_linear:
            entries.append(torch_entry(kit, product, matrix, x))
    results = round_robin(kit, entries)
    records += [record_of(result) for result in results.values()]
    rows = [row_of_a(replace(group, density=density), matrices[density], results) for density in densities]
    for row in rows:
        print(json.dumps({key: value for key, value in row.items() if key != "id"}), flush=True)
    return rows


def row_of_a(product: Product, matrix: BlockSparseMatrix, results: dict[str, CaseResult]) -> dict[str, Any]:
    ours, same, theirs = (results.get(f"{product.id}/{role}") for role in ("sparse", "same", "torch"))
    random = results[f"{replace(product, density=1.0).id}/random"]
    assert ours is not None
    time_s, random_s = seconds_of(ours), seconds_of(random)
    same_s = None if same is None else seconds_of(same)
    theirs_s = None if theirs is None else seconds_of(theirs)
    row: dict[str, Any] = {
        "id": product.id, "block": product.block, "layout": product.layout.value, "dtype": product.dtype,
        "density": product.density, "stored": round(matrix.density, 5), "verdict": ours.verdict.value,
        "error_over_bound": ours.error_rel, "ms": _ms(time_s), "dense_random_ms": _ms(random_s),
        "dense_same_ms": _ms(same_s), "torch_ms": _ms(theirs_s),
    }  # fmt: skip
    if time_s is not None and random_s is not None:
        tflops = ours.flops / time_s / 1e12
        row |= {"tflops": round(tflops, 1), "of_cublas": round(tflops / (random.flops / random_s / 1e12), 4)}
        row |= {"times_dense_same": _ratio(same_s, time_s), "times_torch": _ratio(theirs_s, time_s)}
    return row


def part_b(kit: Kit, sizes: Sizes, budget: Budget, found: dict[str, Any]) -> dict[str, Any]:
    """Held-out shapes: everything launched one by one, since `dense` would rebuild its copy inside a graph."""
    rows = []
    for product in products_of_b(sizes):
        if not budget.allows(f"b {product.id}"):
            continue
        device = kit.place.device
        matrix, x = matrix_of(product, device), operand_of(product, device)
        choice = explain_choice(matrix.keep_dense(), product.tokens, layout=product.layout)
        entries = [
            sparse_entry(kit, product, matrix, x, backend=kit.backend),
            dense_entry(kit, product, matrix.to_dense(), x, role="same"),
            sparse_entry(kit, product, matrix, x, backend="auto"),
        ]
        results = round_robin(kit, [replace(each, launching=Launching.PLAIN) for each in entries], passes=2)
        found["records"] += [record_of(result) for result in results.values()]
        sparse_s, dense_s, auto_s = (seconds_of(results[each.case.id]) for each in entries)
        row: dict[str, Any] = {"id": product.id, "auto_took": choice.backend, "why": choice.why}
        row |= {"sparse_ms": _ms(sparse_s), "dense_same_ms": _ms(dense_s), "auto_ms": _ms(auto_s)}
        if sparse_s and dense_s and auto_s:
            row["auto_over_better"] = round(auto_s / min(sparse_s, dense_s), 4)
        rows.append(row)
        print(json.dumps(row), flush=True)
    whole = [row for row in rows if "auto_over_better" in row]
    long = [row for row in whole if row["auto_ms"] * 1e-3 >= LONG_S]
    close = [row for row in long if row["auto_over_better"] <= CLOSE]
    dense = [row for row in whole if row["auto_took"] == "dense"]
    summary = {
        "calls": len(whole), "long_calls": len(long), "long_within_3_percent": _ratio(len(close), len(long)),
        "sent_to_dense": _ratio(len(dense), len(whole)),
    }  # fmt: skip
    print(json.dumps(summary), flush=True)
    return {"summary": summary, "rows": rows}


def part_c(kit: Kit, sizes: Sizes, budget: Budget, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Crossover rows: sparse at rising densities until it is clearly slower than the same shape stored dense."""
    rows: list[Row] = []
    dense_us: dict[tuple[int, Layout, int], float] = {}
    for side in sizes.crossings:
        for block in BLOCKS:
            if budget.allows(f"c {side} {block}"):
                rows += crossings(kit, sizes, (side, block), dense_us, found["records"])
                gc.collect()
    return [encode(row) for row in rows]


def crossings(
    kit: Kit, sizes: Sizes, place: tuple[int, int], dense_us: dict[tuple[int, Layout, int], float],
    records: list[dict[str, Any]],
) -> list[Row]:  # fmt: skip
    """The rows of one matrix shape and block; dense times are measured once for a shape."""
    side, block = place
    device = kit.place.device
    base = Product(block, Layout.TOKENS, "fp16", side, side, 1, STORED_DENSE_AT)
    asked = [replace(base, layout=layout, tokens=n) for layout in Layout for n in sizes.crossing_tokens]
    operands = {(each.layout, each.tokens): operand_of(each, device) for each in asked}
    stored = matrix_of(base, device).to_dense()
    for each in asked:
        if (side, each.layout, each.tokens) not in dense_us:
            entry = dense_entry(kit, each, stored, operands[each.layout, each.tokens], role="same")
            dense_us[side, each.layout, each.tokens] = _timed_us(kit, entry, records)
    times: dict[tuple[Layout, int], list[tuple[float, float]]] = {(each.layout, each.tokens): [] for each in asked}
    going = set(times)
    copy_us = 0.0
    for density in CROSSING:
        matrix = matrix_of(replace(base, density=density), device)
        if density == STORED_DENSE_AT or not copy_us:
            case = case_of(replace(base, density=density), "copy", kit.place, weights=side * side)
            entry = Entry(case, (matrix.to_dense,), lambda: 0.0, Launching.PLAIN)
            copy_us = _timed_us(kit, entry, records)
        for each in asked:
            key = (each.layout, each.tokens)
            if key not in going:
                continue
            product = replace(each, density=density)
            entry = sparse_entry(kit, product, matrix, operands[key], backend=kit.backend)
            spent = _timed_us(kit, replace(entry, check=lambda: 0.0), records)
            if spent < math.inf:
                times[key].append((round(matrix.density, 4), round(spent, 2)))
            if spent > CLEARLY_SLOWER * (dense_us[side, each.layout, each.tokens] + copy_us):
                going.discard(key)
    return [
        Row(
            operation="multiply", block=block, dtype="float16", layout=layout.value, rows=side, cols=side,
            tokens=tokens, dense_us=round(dense_us[side, layout, tokens], 2), copy_us=round(copy_us, 2),
            sparse_us=tuple(found),
        )
        for (layout, tokens), found in times.items()
    ]  # fmt: skip


def _timed_us(kit: Kit, entry: Entry, records: list[dict[str, Any]]) -> float:
    """One pass, no pause: the GPU is idle most of the time while short calls are set up. Infinite for what failed."""
    [result] = round_robin(kit, [entry], passes=1, pause_s=0.0).values()
    records.append(brief_of(result))
    seconds = seconds_of(result)
    if seconds is None:
        print(f"{result.id}: {result.reason}", flush=True)
        return math.inf
    return 1e6 * seconds


MAKERS: dict[str, Any] = {
    "a": part_a,
    "b": part_b,
    "c": part_c,
    "d": lambda kit, sizes, budget, found: overheads(kit),
    "e": lambda kit, sizes, budget, found: schedule_times(kit, sizes.square),
}


# ------------------------------------------------------------------------------------------------------------ results


def bars(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What was promised, and whether it was met."""
    lines = []
    for blocks, densities, least in BARS:
        held = [
            row for row in rows
            if row["dtype"] == "fp16" and row["block"] in blocks and row["density"] in densities
        ]  # fmt: skip
        worst = min((row.get("of_cublas", 0.0) for row in held), default=0.0)
        said = "met" if held and worst >= least else "NOT met"
        lines.append(f"block {blocks[0]} density {densities}: {worst:.3f} of cuBLAS, {least} wanted: {said}")
    ratios = [row["times_torch"] for row in rows if row.get("times_torch")]
    worst = min(ratios, default=0.0)
    lines.append(
        f"over torch's BSR: at least {worst:.2f}, {TORCH_BAR} wanted: {'met' if worst >= TORCH_BAR else 'NOT met'}"
    )
    wrong = [row["id"] for row in rows if row["verdict"] != "ok"]
    return [*lines, f"rows that are not ok: {wrong or 'none'}"]


def write(path: Path, found: dict[str, Any]) -> None:
    """The document, one record a line."""
    kept = {key: value for key, value in found.items() if key != "records"}
    lines = [json.dumps(record, allow_nan=False) for record in found["records"]]
    text = json.dumps(kept, indent=1, allow_nan=False)[:-2]
    path.write_text(text + ',\n "records": [\n' + ",\n".join(f"  {line}" for line in lines) + "\n ]\n}\n")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 5)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if not one or not other else round(one / other, 3)

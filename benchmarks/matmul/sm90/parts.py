"""The parts of sm90/run.py that compare with cuBLAS: the table, gradients, low densities, shapes and patterns."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

import torch
from benchmarks.matmul.products import (
    Entry,
    Product,
    brief_of,
    case_of,
    dense_entry,
    matrix_of,
    operand_of,
    random_weight,
    record_of,
    seconds_of,
    sparse_entry,
)
from benchmarks.matmul.sm90.limits import limited
from benchmarks.matmul.sm90.watch import Manner, take_turns
from benchmarks.matmul.sm90.work import (
    BLOCKS,
    GRADIENTS,
    LAYOUTS,
    LOW,
    PATTERNS,
    State,
    dense_gradient_entry,
    gradients_of,
    held_out_products,
    patterned,
    sampled_entry,
    table_groups,
    table_products,
)

from firstlight.bench.results import CaseResult
from firstlight.kernels import explain_choice

PASSES = {"fp16": 3, "bf16": 2}
Row = dict[str, Any]


def copy_rate(state: State) -> Row:
    """Bytes per second of one large copy, read and written ones together."""
    kit = state.kit
    source = torch.randn(state.sizes.copied, device=kit.place.device).to(torch.float16)
    target = torch.empty_like(source)
    product = Product(16, LAYOUTS[0], "fp16", state.sizes.copied, 1, 1, 1.0)
    case = replace(case_of(product, "copy", kit.place, weights=0), id=f"copy/fp16/{state.sizes.copied}")
    moved = 4 * state.sizes.copied
    case = replace(case, work=replace(case.work, flops=0, dense_flops=0, bytes=moved), set_bytes=moved)
    entry = Entry(case, (lambda: target.copy_(source),), lambda: 0.0)
    [result] = take_turns(kit, [entry], passes=3, manner=Manner.BURST).values()
    state.found["records"].append(record_of(result))
    seconds = seconds_of(result)
    state.copy = None if not seconds else moved / seconds
    return {"bytes": moved, "ms": ms(seconds), "gbps": None if state.copy is None else round(state.copy / 1e9, 1)}


def table(state: State) -> list[Row]:
    """8192 cubed: ours and the same matrix stored dense, beside cuBLAS on dense random data, in turns; bursts."""
    rows: list[Row] = []
    state.found["copy"] = copy_rate(state)
    for group in table_groups(state.sizes):
        if state.budget.allows(f"table {group.dtype} {group.layout.value}"):
            rows += _table_rows(state, group)
            gc.collect()
    return rows


def _table_rows(state: State, group: Product) -> list[Row]:
    kit, device = state.kit, state.kit.place.device
    x = operand_of(group, device)
    random = dense_entry(kit, group, random_weight(group, device), x, role="random")
    products = list(table_products(group))
    matrices = [matrix_of(product, device) for product in products]
    entries = [random]
    for product, matrix in zip(products, matrices, strict=True):
        entries.append(sparse_entry(kit, product, matrix, x, backend=kit.backend))
        entries.append(replace(dense_entry(kit, product, matrix.to_dense(), x, role="same"), passes=1))
    results = take_turns(kit, entries, passes=PASSES[group.dtype], manner=Manner.BURST)
    state.found["records"] += [record_of(result) for result in results.values()]
    dense = results[random.case.id]
    dense_s = seconds_of(dense)
    if dense_s:
        state.cublas[group.dtype] = max(state.cublas.get(group.dtype, 0.0), dense.flops / dense_s)
    rows = []
    for product, matrix in zip(products, matrices, strict=True):
        ours, same = (results[f"{product.id}/{role}"] for role in ("sparse", "same"))
        row = _row(product, ours, dense_s, dense.flops)
        row |= {"dense_random_ms": ms(dense_s), "dense_same_ms": ms(seconds_of(same))}
        row["times_dense_same"] = ratio(seconds_of(same), seconds_of(ours))
        limited(row, product, matrix, seconds_of(ours), state.rates)
        rows.append(row)
        say(row)
    return rows


def _row(product: Product, ours: CaseResult, dense_s: float | None, dense_flops: int) -> Row:
    """One row with the rate on stored blocks and its share of cuBLAS; without them where it could not be timed."""
    time_s = seconds_of(ours)
    row: Row = {
        "id": product.id, "block": product.block, "layout": product.layout.value, "dtype": product.dtype,
        "density": product.density, "verdict": ours.verdict.value, "reason": ours.reason,
        "error_over_bound": ours.error_rel, "ms": ms(time_s),
    }  # fmt: skip
    if time_s and dense_s:
        row["tflops"] = round(ours.flops / time_s / 1e12, 1)
        row["of_cublas"] = round(ours.flops / time_s / (dense_flops / dense_s), 4)
    return row


def sustained(state: State) -> list[Row]:
    """The rows of the table back to back; cuBLAS on random data in the same manner first in each group."""
    rows: list[Row] = []
    kit, device = state.kit, state.kit.place.device
    for group in table_groups(state.sizes):
        if not state.budget.allows(f"sustained {group.dtype} {group.layout.value}"):
            continue
        x = operand_of(group, device)
        random = dense_entry(kit, group, random_weight(group, device), x, role="random")
        found: dict[str, CaseResult] = take_turns(kit, [random], passes=1, manner=Manner.SUSTAINED)
        dense = found[random.case.id]
        state.found["records"].append(record_of(dense))
        for product in table_products(group):
            if not state.budget.allows(f"sustained {product.id}"):
                continue
            entry = sparse_entry(kit, product, matrix_of(product, device), x, backend=kit.backend)
            entry = replace(entry, check=lambda: 0.0)  # the table checked it
            [ours] = take_turns(kit, [entry], passes=1, manner=Manner.SUSTAINED).values()
            state.found["records"].append(record_of(ours))
            row = _row(product, ours, seconds_of(dense), dense.flops)
            row["dense_random_ms"] = ms(seconds_of(dense))
            row.pop("error_over_bound")
            rows.append(row)
            say(row)
        gc.collect()
    return rows


def gradients(state: State) -> list[Row]:
    """dX through the transposed index, dW at the stored blocks; each beside the dense product of the same kind."""
    rows: list[Row] = []
    kit, device, side = state.kit, state.kit.place.device, state.sizes.square
    for layout in LAYOUTS:
        group = Product(128, layout, "fp16", side, side, side, 1.0)
        x, operands = operand_of(group, device), gradients_of(group, device)
        random = dense_entry(kit, group, random_weight(group, device), x, role="random")
        whole = dense_gradient_entry(kit, group, operands)
        entries, wanted = [random, whole], []
        for block, densities in GRADIENTS:
            for density in densities:
                product = replace(group, block=block, density=density)
                matrix = matrix_of(product, device)
                turned = sparse_entry(kit, product, matrix.T, x, backend=kit.backend)
                turned = replace(turned, case=replace(turned.case, id=f"{product.id}/dX"))
                sampled = sampled_entry(kit, product, matrix, operands)
                entries += [turned, sampled]
                wanted += [("dX", product, turned, random), ("dW", product, sampled, whole)]
        if not state.budget.allows(f"gradients {layout.value}"):
            continue
        results = take_turns(kit, entries, passes=2, manner=Manner.BURST)
        state.found["records"] += [record_of(result) for result in results.values()]
        for name, product, entry, beside in wanted:
            dense = results[beside.case.id]
            row = _row(product, results[entry.case.id], seconds_of(dense), dense.flops)
            rows.append({"gradient": name} | row | {"dense_random_ms": ms(seconds_of(dense))})
            say(rows[-1])
        gc.collect()
    return rows


def low(state: State) -> list[Row]:
    """Few stored blocks: bytes that have to move over the time, as a share of a copy's rate."""
    rows: list[Row] = []
    kit, device, side = state.kit, state.kit.place.device, state.sizes.square
    for layout in LAYOUTS:
        x = operand_of(Product(128, layout, "fp16", side, side, side, 1.0), device)
        for block in BLOCKS:
            products = [Product(block, layout, "fp16", side, side, side, density) for density in LOW]
            if not state.budget.allows(f"low {layout.value} {block}"):
                continue
            matrices = [matrix_of(product, device) for product in products]
            entries = [
                sparse_entry(kit, product, matrix, x, backend=kit.backend)
                for product, matrix in zip(products, matrices, strict=True)
            ]
            results = take_turns(kit, entries, passes=2, manner=Manner.BURST)
            state.found["records"] += [record_of(result) for result in results.values()]
            for product, matrix, entry in zip(products, matrices, entries, strict=True):
                result = results[entry.case.id]
                seconds = seconds_of(result)
                row: Row = {
                    "id": product.id, "block": block, "layout": layout.value, "density": product.density,
                    "verdict": result.verdict.value, "reason": result.reason, "ms": ms(seconds),
                }  # fmt: skip
                if seconds and state.copy:
                    row["gbps"] = round(result.bytes / seconds / 1e9, 1)
                    row["of_copy"] = round(result.bytes / seconds / state.copy, 4)
                limited(row, product, matrix, seconds, state.rates)
                rows.append(row)
                say(row)
    return rows


def held_out(state: State) -> list[Row]:
    """Shapes that nothing was tuned on: ours, the same matrix stored dense, and what `auto` took."""
    rows: list[Row] = []
    kit, device = state.kit, state.kit.place.device
    for product in held_out_products(state.sizes):
        if not state.budget.allows(f"held out {product.id}"):
            continue
        matrix, x = matrix_of(product, device), operand_of(product, device)
        entries = [
            sparse_entry(kit, product, matrix, x, backend=kit.backend),
            dense_entry(kit, product, matrix.to_dense(), x, role="same"),
            replace(sparse_entry(kit, product, matrix, x, backend="auto"), check=lambda: 0.0),
        ]
        results = take_turns(kit, entries, passes=2, manner=Manner.BRIEF, pause_s=0.005)
        state.found["records"] += [brief_of(result) for result in results.values()]
        ours, same, auto = (results[entry.case.id] for entry in entries)
        row: Row = {
            "id": product.id, "verdict": ours.verdict.value, "reason": ours.reason, "ms": ms(seconds_of(ours)),
            "dense_same_ms": ms(seconds_of(same)), "auto_ms": ms(seconds_of(auto)),
            "auto_took": explain_choice(matrix.keep_dense(), product.tokens, layout=product.layout).backend,
        }  # fmt: skip
        limited(row, product, matrix, seconds_of(ours), state.rates)
        rows.append(row)
        say(row)
    return rows


def patterns(state: State) -> list[Row]:
    """Banded, power-law and block-diagonal matrices at the table's size."""
    rows: list[Row] = []
    kit, device, side = state.kit, state.kit.place.device, state.sizes.square
    for layout in LAYOUTS:
        x = operand_of(Product(128, layout, "fp16", side, side, side, 1.0), device)
        for kind in PATTERNS:
            for block in BLOCKS:
                product = Product(block, layout, "fp16", side, side, side, 0.1)
                if not state.budget.allows(f"pattern {kind} {product.id}"):
                    continue
                matrix = patterned(kind, product, device)
                product = replace(product, density=round(matrix.density, 4))
                entry = sparse_entry(kit, product, matrix, x, backend=kit.backend)
                entry = replace(entry, case=replace(entry.case, id=f"{kind}/{product.id}"))
                [result] = take_turns(kit, [entry], passes=1, manner=Manner.BURST).values()
                state.found["records"].append(brief_of(result))
                seconds = seconds_of(result)
                row: Row = {
                    "id": entry.case.id, "pattern": kind, "block": block, "layout": layout.value,
                    "density": product.density, "verdict": result.verdict.value, "reason": result.reason,
                    "ms": ms(seconds),
                }  # fmt: skip
                if seconds and (rate := state.cublas.get("fp16")):
                    row["tflops"] = round(result.flops / seconds / 1e12, 1)
                    row["of_cublas"] = round(result.flops / seconds / rate, 4)
                limited(row, product, matrix, seconds, state.rates)
                rows.append(row)
                say(row)
    return rows


def say(row: Row) -> None:
    """One row as it is found, on one line."""
    print(json.dumps(row), flush=True)


def ms(seconds: float | None) -> float | None:
    """Milliseconds to a hundredth of a microsecond."""
    return None if seconds is None else round(1e3 * seconds, 5)


def ratio(one: float | None, other: float | None) -> float | None:
    """one / other, None where either is missing."""
    return None if not one or not other else round(one / other, 3)

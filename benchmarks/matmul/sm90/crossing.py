"""Two parts of sm90/run.py: the densities at which dense is as fast, and `auto` beside both."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from benchmarks.crossover import DENSE_AT, Row, crossover
from benchmarks.matmul.products import (
    Entry,
    Product,
    brief_of,
    case_of,
    dense_entry,
    matrix_of,
    operand_of,
    seconds_of,
    sparse_entry,
)
from benchmarks.matmul.sm90.parts import Row as Found
from benchmarks.matmul.sm90.parts import ms, ratio, say
from benchmarks.matmul.sm90.watch import Manner, take_turns
from benchmarks.matmul.sm90.work import (
    BLOCKS,
    CROSSING,
    LAYOUTS,
    Gradients,
    State,
    auto_products,
    dense_gradient_entry,
    gradients_of,
    sampled_entry,
)

from firstlight.kernels import BlockSparseMatrix, explain_choice
from firstlight.kernels.product import Layout
from firstlight.records import encode

CLEARLY_SLOWER = 1.3
LONG_S = 100e-6
CLOSE = 1.03
Key = tuple[str, Layout, int]  # operation, layout, tokens


class Crossing:
    """The rows of one matrix shape and block: everything with one dense time, at rising densities."""

    def __init__(self, state: State, side: int, block: int, dense: dict[tuple[int, Key], tuple[float, float]]) -> None:
        self.state, self.side, self.block, self.dense = state, side, block, dense
        self.base = Product(block, Layout.TOKENS, "fp16", side, side, 1, DENSE_AT)
        device = state.kit.place.device
        self.operands: dict[Key, Any] = {}
        for layout in LAYOUTS:
            for tokens in state.sizes.crossing_tokens:
                product = replace(self.base, layout=layout, tokens=tokens)
                self.operands["multiply", layout, tokens] = operand_of(product, device)
            for tokens in state.sizes.sampled_tokens:
                product = replace(self.base, layout=layout, tokens=tokens)
                self.operands["sample", layout, tokens] = gradients_of(product, device)

    def rows(self) -> list[Row]:
        """Measures until everything is clearly slower than dense."""
        self._dense()
        times: dict[Key, list[tuple[float, float]]] = {key: [] for key in self.operands}
        going = set(times)
        copy_us = 0.0
        for density in CROSSING:
            matrix = matrix_of(replace(self.base, density=density), self.state.kit.place.device)
            if density == DENSE_AT or not copy_us:
                copy_us = self._copy_us(density, matrix)
            for key in [each for each in times if each in going]:
                spent = self._time_us(self._entry(key, density, matrix))
                if spent < math.inf:
                    times[key].append((round(matrix.density, 4), round(spent, 2)))
                if spent > CLEARLY_SLOWER * (self.dense[self.side, key][0] + copy_us):
                    going.discard(key)
        return [
            Row(
                operation=key[0], block=self.block, dtype="float16", layout=key[1].value, rows=self.side,
                cols=self.side, tokens=key[2], dense_us=round(self.dense[self.side, key][0], 2),
                copy_us=round(copy_us, 2), sparse_us=tuple(found), backend=self.state.kit.backend,
                dense_full_us=round(self.dense[self.side, key][1], 2),
            )
            for key, found in times.items()
            if found and max(self.dense[self.side, key]) < math.inf
        ]  # fmt: skip

    def _dense(self) -> None:
        device = self.state.kit.place.device
        stored = [matrix_of(replace(self.base, density=density), device).to_dense() for density in (DENSE_AT, 1.0)]
        for key, operand in self.operands.items():
            if (self.side, key) in self.dense:
                continue
            product = replace(self.base, layout=key[1], tokens=key[2])
            if isinstance(operand, Gradients):  # of two dense operands, whatever the density
                spent = self._time_us(dense_gradient_entry(self.state.kit, product, operand))
                self.dense[self.side, key] = (spent, spent)
                continue
            entries = [dense_entry(self.state.kit, product, each, operand, role="same") for each in stored]
            half, full = (self._time_us(entry) for entry in entries)
            self.dense[self.side, key] = (half, full)

    def _entry(self, key: Key, density: float, matrix: BlockSparseMatrix) -> Entry:
        kit, operand = self.state.kit, self.operands[key]
        product = replace(self.base, layout=key[1], tokens=key[2], density=density)
        if isinstance(operand, Gradients):
            return sampled_entry(kit, product, matrix, operand)
        return sparse_entry(kit, product, matrix, operand, backend=kit.backend)

    def _copy_us(self, density: float, matrix: BlockSparseMatrix) -> float:
        product = replace(self.base, density=density)
        case = case_of(product, "copy", self.state.kit.place, weights=self.side**2)
        return self._time_us(Entry(case, (matrix.to_dense,), lambda: 0.0))

    def _time_us(self, entry: Entry) -> float:
        """One brief pass; the table and the tests check results. Infinite for what failed."""
        entry = replace(entry, check=lambda: 0.0)
        [result] = take_turns(self.state.kit, [entry], passes=1, manner=Manner.BRIEF).values()
        self.state.found["records"].append(brief_of(result))
        seconds = seconds_of(result)
        if seconds is None:
            print(f"{result.id}: {result.reason}", flush=True)
            return math.inf
        return 1e6 * seconds


def crossings(state: State) -> dict[str, Any]:
    """The rows, and the densities at which dense is as fast."""
    rows: list[Row] = []
    dense: dict[tuple[int, Key], tuple[float, float]] = {}
    for side in state.sizes.crossings:
        for block in BLOCKS:
            if state.budget.allows(f"crossings {side} {block}"):
                rows += Crossing(state, side, block, dense).rows()
                gc.collect()
    shown = [
        {
            "operation": row.operation, "block": row.block, "layout": row.layout, "rows": row.rows,
            "tokens": row.tokens, "crossover": round(crossover(row, training=False), 3),
            "when_training": round(crossover(row, training=True), 3),
        }
        for row in rows
    ]  # fmt: skip
    for each in shown:
        if each["rows"] == state.sizes.square and each["tokens"] == max(state.sizes.crossing_tokens):
            say(each)
    return {"rows": [encode(row) for row in rows], "crossovers": shown}


def auto(state: State) -> dict[str, Any]:
    """A shape that no row was drawn on, every density from 0.01 to 1: `auto` beside both others."""
    rows: list[Found] = []
    kit, device = state.kit, state.kit.place.device
    operands: dict[Layout, torch.Tensor] = {}
    for product in auto_products(state.sizes):
        if not state.budget.allows(f"auto {product.id}"):
            continue
        if product.layout not in operands:
            operands = {product.layout: operand_of(product, device)}
        x = operands[product.layout]
        matrix = matrix_of(product, device)
        entries = [
            sparse_entry(kit, product, matrix, x, backend=kit.backend),
            dense_entry(kit, product, matrix.to_dense(), x, role="same"),
            sparse_entry(kit, product, matrix, x, backend="auto"),
        ]
        entries = [replace(entry, check=lambda: 0.0) for entry in entries]
        results = take_turns(kit, entries, passes=3, manner=Manner.BRIEF, pause_s=0.01)
        state.found["records"] += [brief_of(result) for result in results.values()]
        sparse_s, dense_s, auto_s = (seconds_of(results[entry.case.id]) for entry in entries)
        row: Found = {
            "id": product.id, "block": product.block, "layout": product.layout.value, "density": product.density,
            "ms": ms(sparse_s), "dense_same_ms": ms(dense_s), "auto_ms": ms(auto_s),
            "auto_took": explain_choice(matrix.keep_dense(), product.tokens, layout=product.layout).backend,
        }  # fmt: skip
        if sparse_s and dense_s and auto_s:
            row["auto_over_better"] = round(auto_s / min(sparse_s, dense_s), 4)
        rows.append(row)
        say(row)
    summary = auto_summary(rows)
    say(summary)
    return {"summary": summary, "rows": rows}


def auto_summary(rows: list[Found]) -> dict[str, Any]:
    """How often `auto` was as good as the better one, and what share of the calls it sent to dense."""
    whole = [row for row in rows if "auto_over_better" in row]
    long = [row for row in whole if row["auto_ms"] * 1e-3 >= LONG_S]
    close = [row for row in long if row["auto_over_better"] <= CLOSE]
    took = partial(_share, whole)
    return {
        "calls": len(whole), "long_calls": len(long), "long_within_3_percent": ratio(len(close), len(long)) or 0.0,
        "worst": max((row["auto_over_better"] for row in long), default=None),
        "sent_to_dense": took("dense"), "sent_to_sm90": took("sm90"), "sent_to_triton": took("triton"),
        "worst_rows": [row["id"] for row in long if row["auto_over_better"] > CLOSE],
    }  # fmt: skip


def _share(rows: list[Found], backend: str) -> float:
    taken = [row for row in rows if row["auto_took"] == backend]
    return round(len(taken) / max(1, len(rows)), 3)

"""What a new pattern costs: the first product with it beside the second, as a part of sm90/run.py.

Lists, groups of rows, portions and tensor maps are made at the first product. Kernels are compiled and loaded before.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from benchmarks.matmul.products import DTYPES, Product, operand_of
from benchmarks.matmul.sm90.parts import say
from benchmarks.matmul.sm90.work import BLOCKS, State
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, linear
from firstlight.kernels.product import Layout

PATTERNS, DENSITY = 9, 0.1
Row = dict[str, Any]


def new_patterns(state: State) -> list[Row]:
    """For each block and sparse backend: until the first call returned, until its result was there, and the second."""
    rows: list[Row] = []
    side, tokens, device = state.sizes.square, state.sizes.crossing_tokens[0], state.kit.place.device
    x = operand_of(Product(128, Layout.TOKENS, "fp16", side, side, tokens, 1.0), device)
    for block in BLOCKS:
        for backend in dict.fromkeys((state.kit.backend, "triton" if state.kit.timer.has_launches else "dense")):
            if not state.budget.allows(f"new patterns {block} {backend}"):
                continue
            _times(state, x, block, backend)  # kernels and plans come with the first one
            taken = [_times(state, x, block, backend) for _ in range(PATTERNS)]
            row: Row = {"block": block, "density": DENSITY, "shape": [side, side, tokens], "backend": backend}
            for name in ("returned_ms", "first_ms", "second_ms"):
                samples = [each[name] for each in taken]
                row |= {name: median(samples), f"{name.removesuffix('_ms')}_samples_ms": samples}
            rows.append(row)
            say(row)
    return rows


def _times(state: State, x: Tensor, block: int, backend: str) -> dict[str, float]:
    side = state.sizes.square
    w = BlockSparseMatrix.random(side, side, block=block, density=DENSITY, dtype=DTYPES["fp16"], device=x.device)
    _finish(state)
    began = time.perf_counter()
    linear(x, w, backend=backend)
    returned = time.perf_counter()
    _finish(state)
    there = time.perf_counter()
    linear(x, w, backend=backend)
    _finish(state)
    again = time.perf_counter()
    spans = {"returned_ms": returned - began, "first_ms": there - began, "second_ms": again - there}
    return {name: round(1e3 * seconds, 4) for name, seconds in spans.items()}


def _finish(state: State) -> None:
    if state.kit.timer.has_launches:
        torch.cuda.synchronize()

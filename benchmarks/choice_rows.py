"""The rows that `auto` goes by, on the GPU at hand: every backend over drawn products and attention calls.

    python -m benchmarks.choice_rows --out results/kernels-choice-h200.json --commit HASH [--budget-s 240]

All kernels are compiled first, in a pool of processes that go through the cases once. Then the cases are timed in a
random order until the budget is spent: an early end leaves fewer rows, spread alike. The document is the one that
kernels/data/choice.json is (schema firstlight.choice/1), so that the file can take its place.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import multiprocessing
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from firstlight.errors import FirstlightError
from firstlight.kernels.autotune import _triton_version
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.drawn import Masked, drawn_attention, drawn_products
from firstlight.kernels.choice.measuring import Stopwatch, attention_times, product_times
from firstlight.kernels.choice.rows import Machine, Row, document

DTYPES = ("float16",) * 6 + ("bfloat16",) * 4 + ("float32",)
BACKENDS = ("triton", "sm90", "dense")
Drawn = ProductCase | Masked


def drawn(options: argparse.Namespace) -> list[Drawn]:
    """The cases in the order in which they are timed."""
    seed, dtypes = options.seed, tuple(options.dtypes.split(","))
    cases: list[Drawn] = [*drawn_products(options.products, seed=seed, dtypes=dtypes)]
    cases += drawn_attention(options.attention, seed=seed + 1, dtypes=dtypes)
    if options.common:
        cases = [case for case in cases if is_common(case)]
    cases += drawn_products(options.tf32, seed=seed + 2, dtypes=("tf32",))
    random.Random(seed).shuffle(cases)
    return cases


def is_common(case: Drawn) -> bool:
    """Whether a case shares its kernels with many others: whole sizes, the usual types of heads."""
    if isinstance(case, ProductCase):
        whole = case.rows % 16 == 0 and case.cols % 16 == 0 and (case.layout == "tokens" or case.tokens % 16 == 0)
        return whole and case.activation in ("none", "silu", "gelu") and not case.extras
    return case.case.head_dim in (64, 128) and case.case.heads // case.case.kv_heads in (1, 4)


def backends_for(case: Drawn) -> tuple[str, ...]:
    dtype = case.dtype if isinstance(case, ProductCase) else case.case.dtype
    return tuple(name for name in BACKENDS if name != "sm90" or dtype not in ("float32", "tf32"))


def timed(case: Drawn, watch: Stopwatch, seed: int) -> Row:
    """One row; what a backend refuses is left out of it."""
    if isinstance(case, ProductCase):
        return Row(case, tuple(product_times(case, watch, backends=backends_for(case), seed=seed).items()))
    told, found = attention_times(case, watch, backends=backends_for(case), seed=seed)
    return Row(told, tuple(found.items()))


class Once(Stopwatch):
    """Calls once and times nothing."""

    def _us(self, call: Any) -> float:
        call()
        return 1.0


def compile_some(cases: list[Drawn], seconds: float) -> tuple[int, float, list[str]]:
    """Goes through some cases so that their kernels are in the caches on disk: (cases, seconds, refusals)."""
    began, done, said = time.perf_counter(), 0, []
    watch = Once()
    for case in cases:
        if time.perf_counter() - began > seconds:
            break
        try:
            timed(case, watch, 0)
        except (FirstlightError, RuntimeError) as error:
            said.append(f"{case}: {type(error).__name__}: {error}"[:300])
        done += 1
        if done % 50 == 0:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    return done, time.perf_counter() - began, said


def compile_first(cases: list[Drawn], jobs: int, seconds: float) -> Any:
    """Every case once, spread over a pool of processes."""
    parts = [cases[number::jobs] for number in range(jobs)]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(compile_some, parts, [seconds] * jobs))
    said = [line for each in found for line in each[2]]
    print(f"compiled: {sum(each[0] for each in found)} cases, refusals {len(said)}", *said[:5], sep="\n", flush=True)
    return {"cases": sum(each[0] for each in found), "seconds": round(max(each[1] for each in found), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True, help="of the code that runs")
    parser.add_argument("--budget-s", type=float, default=240.0, help="for everything")
    parser.add_argument("--compile-s", type=float, default=75.0, help="of that, for compiling at most")
    parser.add_argument("--products", type=int, default=2600)
    parser.add_argument("--attention", type=int, default=2000)
    parser.add_argument("--tf32", type=int, default=40, help="products more, of float32 that is rounded to tf32")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="each as often as it is named")
    parser.add_argument("--common", action="store_true", help="cases with few kernels alone: more rows in a time")
    parser.add_argument("--seed", type=int, default=20261116)
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 2), help="processes that compile")
    options = parser.parse_args()
    began = time.perf_counter()
    cases = drawn(options)
    print(f"{len(cases)} cases", flush=True)
    if options.jobs:
        compile_first(cases, options.jobs, options.compile_s)
        print(f"compiled after {time.perf_counter() - began:.1f} s", flush=True)
    rows, failed = measured(cases, options, began)
    write(options, rows, failed)
    print(f"{len(rows)} rows, {len(failed)} failed, {time.perf_counter() - began:.1f} s", *failed[:8], sep="\n")


def measured(cases: list[Drawn], options: argparse.Namespace, began: float) -> tuple[list[Row], list[str]]:
    """Rows until the budget is spent, and what went wrong."""
    rows: list[Row] = []
    failed: list[str] = []
    watch = Stopwatch()
    gc.disable()
    for number, case in enumerate(cases):
        if time.perf_counter() - began > options.budget_s:
            break
        try:
            rows.append(timed(case, watch, number))
        except (FirstlightError, RuntimeError) as error:
            failed.append(f"{case}: {type(error).__name__}: {error}"[:400])
        if number % 100 == 99:
            gc.collect()
            torch.cuda.empty_cache()
            print(f"{number + 1} cases after {time.perf_counter() - began:.1f} s", flush=True)
        if number % 500 == 499:
            write(options, rows, failed)
    return rows, failed


def write(options: argparse.Namespace, rows: list[Row], failed: list[str]) -> None:
    """The document, and what failed beside it."""
    machine = Machine(
        card_of(0), torch.__version__, _triton_version(), datetime.date.today().isoformat(),
        f"benchmarks/choice_rows.py at {options.commit}", tuple(rows),
    )  # fmt: skip
    options.out.write_text(document((machine,)), encoding="utf-8")
    if failed:
        options.out.with_name(f"{options.out.stem}-failed.json").write_text(json.dumps(failed, indent=1))


if __name__ == "__main__":
    main()

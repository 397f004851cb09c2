"""Measures anew those rows of kernels/data/choice.json that a change of the Hopper kernels touched, and no others.

    python -m benchmarks.choice_again --out FILE --commit HASH [--budget-s 150]

Only `sm90` and "new sm90" of products: columns that are no multiple of 16, and what a new pattern costs. FILE is the
whole document with the new times in it, so that it can take the old one's place; rows that the budget did not reach
keep theirs.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from benchmarks.choice_rows import Once

from firstlight.errors import FirstlightError
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.cases import SAMPLE, ProductCase
from firstlight.kernels.choice.measuring import FIRST, Stopwatch, product_times
from firstlight.kernels.choice.rows import Row, document, shipped

SECTOR = 16


def is_touched(row: Row) -> bool:
    """Whether a row's time by the Hopper kernels may be another one now."""
    case, times = row.case, dict(row.us)
    if not isinstance(case, ProductCase) or "sm90" not in times:
        return False
    if case.operation == SAMPLE:
        return False
    return case.layout != "tokens" and case.tokens % SECTOR != 0


def is_new(row: Row) -> bool:
    """Whether it says what a new pattern costs the Hopper kernels."""
    return isinstance(row.case, ProductCase) and FIRST + "sm90" in dict(row.us)


def timed(row: Row, watch: Stopwatch) -> Row:
    """The row with new times of the Hopper kernels."""
    assert isinstance(row.case, ProductCase)
    found = product_times(row.case, watch, backends=("sm90",), seed=0)
    wanted = {name: us for name, us in found.items() if name in dict(row.us)}
    if not is_touched(row):
        wanted.pop("sm90", None)
    return Row(row.case, tuple((dict(row.us) | wanted).items()))


def compile_some(rows: list[Row], seconds: float) -> int:
    """Each once, so that its kernel is in the cache on disk."""
    began, watch = time.perf_counter(), Once()
    for number, row in enumerate(rows):
        if time.perf_counter() - began > seconds:
            return number
        try:
            timed(row, watch)
        except (FirstlightError, RuntimeError):
            continue  # said when it is timed
        torch.cuda.empty_cache()
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--budget-s", type=float, default=150.0)
    parser.add_argument("--compile-s", type=float, default=40.0)
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 2))
    given = parser.parse_args()
    began = time.perf_counter()
    here = card_of(0).gpu
    machines = list(shipped())
    place = next(number for number, machine in enumerate(machines) if machine.card.gpu == here)
    rows = list(machines[place].rows)
    wanted = [number for number, row in enumerate(rows) if is_touched(row)]
    random.Random(1).shuffle(wanted)
    rest = [number for number, row in enumerate(rows) if is_new(row) and not is_touched(row)]
    random.Random(2).shuffle(rest)
    parts = [[rows[number] for number in wanted[first :: given.jobs]] for first in range(given.jobs)]
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        done = sum(pool.map(compile_some, parts, [given.compile_s] * given.jobs))
    print(f"compiled {done} of {len(wanted)} after {time.perf_counter() - began:.1f} s", flush=True)
    watch, measured = Stopwatch(), 0
    for number in wanted + rest:
        if time.perf_counter() - began > given.budget_s:
            break
        try:
            rows[number] = timed(rows[number], watch)
        except (FirstlightError, RuntimeError) as error:
            print(f"{rows[number].case}: {type(error).__name__}: {error}"[:300], flush=True)
        measured += 1
        if measured % 40 == 0:
            gc.collect()
            torch.cuda.empty_cache()
    told = f"{machines[place].source}; {measured} rows of sm90 anew at {given.commit}"
    machines[place] = replace(machines[place], rows=tuple(rows), source=told)
    given.out.write_text(document(tuple(machines)))
    print(f"{measured} of {len(wanted) + len(rest)} measured, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()

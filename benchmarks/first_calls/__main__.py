"""What the first call with a new pattern or mask takes of Python, where there is no GPU; see idle_gpu.py.

    PYTHONPATH=src python -m benchmarks.first_calls                       # microseconds of the processor
    PYTHONPATH=src python -m benchmarks.first_calls --profile 40 --only "block 128"

Each call has a pattern or mask of its own, with its own number of blocks. Cold: what the processor's caches held is
overwritten before, as it is in a program that does something else between two calls. The time is the thread's own, so
that others on the machine change it less; the lower quarter is told beside the median.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any, NamedTuple

import torch
from benchmarks.first_calls.idle_gpu import pretend

pretend()

from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, linear  # noqa: E402 after pretend()

SAMPLES, WARMING = 120, 10
FLUSHED = torch.zeros(1 << 24)  # 64 MB: what the processor's caches held is gone when it was written


class Case(NamedTuple):
    """One kind of first call: a maker of new patterns or masks, and the call with one."""

    name: str
    fresh: Callable[[int], Any]
    call: Callable[[Any], Any]


def products() -> Iterator[Case]:
    """linear with a matrix that no call has seen, each with its own number of blocks."""
    for rows, cols, block, density in ((4096, 4096, 128, 0.5), (4096, 4096, 64, 0.2), (4096, 4096, 16, 0.02)):
        x = torch.zeros(1024, cols, dtype=torch.bfloat16)

        def fresh(i: int, r: int = rows, c: int = cols, b: int = block, share: float = density) -> Any:
            blocks = (r // b) * (c // b)
            return BlockSparseMatrix.random(r, c, block=b, density=share - i / blocks, dtype=torch.bfloat16)

        yield Case(
            f"linear {rows}x{cols} block {block} density {density:g}",
            fresh,
            lambda w, x=x: linear(x, w, backend="sm90"),  # type: ignore[misc]
        )


def masks() -> Iterator[Case]:
    """attention 1 x 8 x 2048 x 128 with a mask that no call has seen."""
    heads, length = 8, 2048
    q, k, v = (torch.zeros(1, heads, length, 128, dtype=torch.bfloat16) for _ in range(3))
    for kind, block in (("listed", 128), ("per head", 64), ("window", 128)):

        def fresh(i: int, kind: str = kind, block: int = block) -> BlockMask:
            side = length // block
            if kind == "window":
                return BlockMask.window(length, left=500 + i, block=block)
            own = heads if kind == "per head" else 1
            kept = torch.rand(1, own, side, side) < 0.25
            return BlockMask.from_bool(kept, block_level=True, q_len=length, k_len=length, block=block)

        yield Case(f"attention {kind} block {block}", fresh, lambda mask: attention(q, k, v, mask, backend="sm90"))


def timed(cases: list[Case]) -> list[dict[str, Any]]:
    """Microseconds of first calls, warm and with cold caches, and of second ones; the cases in turns."""
    taken: dict[str, dict[str, list[float]]] = {case.name: {"warm": [], "cold": [], "second": []} for case in cases}
    for i in range(2 * (WARMING + SAMPLES)):
        for case in cases:
            made = case.fresh(i)
            name = "cold" if i % 2 else "warm"
            if name == "cold":
                FLUSHED.add_(1)
            began = time.thread_time_ns()
            case.call(made)
            between = time.thread_time_ns()
            case.call(made)
            ended = time.thread_time_ns()
            if i >= 2 * WARMING:
                taken[case.name][name].append((between - began) / 1e3)
                taken[case.name]["second"].append((ended - between) / 1e3)
    return [
        {"case": case, **{f"{name}_us": round(median(us), 1) for name, us in times.items()}, **{
            f"{name}_quarter_us": round(quantiles(us, n=4)[0], 1) for name, us in times.items()}}
        for case, times in taken.items()
    ]  # fmt: skip


def profiled(case: Case, lines: int) -> str:
    """cProfile's table of first calls; its own cost is in it."""
    profile, text = cProfile.Profile(time.thread_time), io.StringIO()
    for i in range(WARMING + SAMPLES):
        made = case.fresh(i)
        if i >= WARMING:
            profile.enable()
        case.call(made)
        profile.disable()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(lines)
    return text.getvalue()


def main() -> None:
    """Prints a line for each case, and keeps all where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a JSON file")
    parser.add_argument("--only", default="", help="a part of the cases' names, e.g. 'block 128'")
    parser.add_argument("--profile", type=int, default=0, help="lines of cProfile's table instead, e.g. 40")
    given = parser.parse_args()
    cases = [case for make in (products, masks) for case in make() if given.only in case.name]
    if given.profile:
        for case in cases:
            print(case.name, profiled(case, given.profile))
        return
    rows = timed(cases)
    for row in rows:
        print(
            f"{row['case']:42} warm {row['warm_us']:6.1f} ({row['warm_quarter_us']:.1f}) "
            f"cold {row['cold_us']:6.1f} ({row['cold_quarter_us']:.1f}) "
            f"second {row['second_us']:5.1f} ({row['second_quarter_us']:.1f})"
        )
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "samples": SAMPLES, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

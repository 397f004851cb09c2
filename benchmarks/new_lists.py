"""What a new pattern or mask costs on the host, stage by stage: its first call on `sm90`, until that returns.

    PYTHONPATH=src python -m benchmarks.new_lists --out new.json           # some 40 seconds on an H200
    PYTHONPATH=src python -m benchmarks.new_lists --stages --calls         # where the time goes, what CUDA is asked
    PYTHONPATH=src python -m benchmarks.new_lists --profile 40 --only "listed block 128"     # by Python function

Kernels are compiled and loaded before. Every pattern and every mask has its own number of blocks, as pruned ones have.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import io
import json
import pstats
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, linear

SAMPLES, WARMING = 25, 4
TOKENS = 4096
PRODUCTS = [
    (rows, cols, block, density)
    for rows, cols in ((4096, 4096), (11008, 4096), (8192, 8192))
    for block in (128, 64, 32, 16)
    for density in (0.1, 0.5)
]
ATTENTION = [(kind, block) for kind in ("listed", "per head", "window", "causal") for block in (128, 64)]
# module, name in it, as it is called in the table; a name that is not there is left out
STAGES = (
    ("firstlight.kernels.functions", "remember", "product: remembered"),
    ("firstlight.kernels.launch", "backend_module", "product: backend chosen"),
    ("firstlight.kernels.launch", "Prepared", "product: prepared call"),
    ("firstlight.kernels.sm90", "multiply", "product: sm90.multiply"),
    ("firstlight.kernels.sm90", "prepare", "product: sm90.prepare"),
    ("firstlight.kernels.sm90.again", "plan_of", "product:   plan"),
    ("firstlight.kernels.sm90.multiply_plan", "loaded", "product:     kernel found"),
    ("firstlight.kernels.sm90.multiply_plan", "portion_limit", "product:     limit"),
    ("firstlight.kernels.sm90.multiply_plan", "lists_of", "product:   lists"),
    ("firstlight.kernels.sm90.lists", "sizes_of", "product:     sizes"),
    ("firstlight.kernels.sm90.lists", "is_listed_on_gpu", "product:     pattern looked for"),
    ("firstlight.kernels.sm90.lists", "listed", "product:     made"),
    ("firstlight.kernels.sm90.listing", "start_once", "product:       launched"),
    ("firstlight.kernels.sm90.listing", "fields_of", "product:       fields"),
    ("firstlight.kernels.sm90.lists", "held_after", "product:     event"),
    ("firstlight.kernels.sm90.again", "control_of", "product:   zeros"),
    ("firstlight.kernels.sm90.boxes", "encode_map", "product:   tensor maps"),
    ("firstlight.kernels.sm90.multiply_plan", "Launch", "product:   launch put together"),
    ("firstlight.kernels.block_attention.functions", "require_mask", "attention: mask checked"),
    ("firstlight.kernels.block_attention.functions", "seen_by", "attention: what is seen"),
    ("firstlight.kernels.block_attention.functions", "call_for", "attention: backend chosen"),
    ("firstlight.kernels.block_attention.functions", "remember", "attention: remembered"),
    ("firstlight.kernels.block_attention.functions", "attend_now", "attention: attend_now"),
    ("firstlight.kernels.sm90.attention", "_made", "attention:   launch put together"),
    ("firstlight.kernels.sm90.attention", "lists_of", "attention:     lists"),
    ("firstlight.kernels.block_attention.lists", "_make", "attention:       made"),
    ("firstlight.kernels.sm90.mask_lists", "fields_of", "attention:         fields"),
    ("firstlight.kernels.sm90.mask_lists", "start_once", "attention:         launched"),
    ("firstlight.kernels.block_attention.lists", "held_after", "attention:       event"),
    ("firstlight.kernels.sm90.attention", "rows_map", "attention:     tensor maps"),
    ("firstlight.kernels.sm90.attention", "control_of", "attention:     zeros"),
)


class Case(NamedTuple):
    """One kind of first call: a maker of new patterns or masks, and the call with one."""

    name: str
    fresh: Callable[[int], Any]
    call: Callable[[Any], Tensor]


def products(device: torch.device) -> Iterator[Case]:
    """linear with a matrix that no call has seen."""
    for rows, cols, block, density in PRODUCTS:
        x = torch.randn(TOKENS, cols, dtype=torch.bfloat16, device=device)
        blocks = (rows // block) * (cols // block)

        def fresh(i: int, r: int = rows, c: int = cols, b: int = block, share: float = density, n: int = blocks) -> Any:
            return BlockSparseMatrix.random(
                r, c, block=b, density=share - 0.001 * i - 1 / n, dtype=torch.bfloat16, device=device
            )

        yield Case(
            f"linear {rows}x{cols} block {block} density {density:g}",
            fresh,
            lambda w, x=x: linear(x, w, backend="sm90"),  # type: ignore[misc]
        )


def masks(device: torch.device) -> Iterator[Case]:
    """attention 8 x 32 x 4096 x 128 with a mask that no call has seen."""
    batch, heads, length = 8, 32, 4096
    q, k, v = (torch.randn(batch, heads, length, 128, dtype=torch.bfloat16, device=device) for _ in range(3))
    for kind, block in ATTENTION:

        def fresh(i: int, kind: str = kind, block: int = block) -> BlockMask:
            side = length // block
            if kind == "window":
                return BlockMask.window(length, left=500 + i, block=block, device=device)
            if kind == "causal":
                return BlockMask.causal(length, block=block, device=device)
            own = heads if kind == "per head" else 1
            kept = torch.rand(1, own, side, side, device=device) < 0.25
            return BlockMask.from_bool(kept, block_level=True, q_len=length, k_len=length, block=block)

        yield Case(
            f"attention {kind} block {block}",
            fresh,
            lambda mask: attention(q, k, v, mask, backend="sm90"),
        )


def timed(case: Case) -> dict[str, Any]:
    """Milliseconds until the first call returned, until its result was there, and until the second returned."""
    taken: dict[str, list[float]] = {"returned": [], "first": [], "second_returned": []}
    for i in range(WARMING + SAMPLES):
        made = case.fresh(i)
        torch.cuda.synchronize()
        began = time.perf_counter()
        case.call(made)
        returned = time.perf_counter()
        torch.cuda.synchronize()
        there = time.perf_counter()
        case.call(made)
        again = time.perf_counter()
        torch.cuda.synchronize()
        if i >= WARMING:
            spans = (returned - began, there - began, again - there)
            for name, span in zip(taken, spans, strict=True):
                taken[name].append(round(1e3 * span, 4))
    row: dict[str, Any] = {"case": case.name}
    for name, samples in taken.items():
        row |= {f"{name}_ms": median(samples), f"{name}_samples_ms": samples}
    return row


class Watch:
    """How long each stage took, what it called included, by its name in the table."""

    def __init__(self) -> None:
        self.spans: dict[str, list[float]] = defaultdict(list)
        self.open: Counter[str] = Counter()

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function with a stopwatch; a stage inside itself is counted once."""

        def watched(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            self.open[name] += 1
            try:
                return function(*args, **named)
            finally:
                self.open[name] -= 1
                if not self.open[name]:
                    self.spans[name].append(time.perf_counter() - began)

        return watched


@contextmanager
def watched() -> Iterator[Watch]:
    """Puts stopwatches around the stages that this release has."""
    watch, before = Watch(), []
    for path, name, told in STAGES:
        module = importlib.import_module(path)
        function = getattr(module, name, None)
        if function is not None:
            before.append((module, name, function))
            setattr(module, name, watch.around(function, told))
    try:
        yield watch
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def stages(case: Case) -> dict[str, Any]:
    """Microseconds of each stage in a first call, and how often it was entered."""
    found: dict[str, list[float]] = defaultdict(list)
    entered: dict[str, int] = {}
    with watched() as watch:
        for i in range(WARMING + SAMPLES):
            made = case.fresh(i)
            torch.cuda.synchronize()
            watch.spans.clear()
            began = time.perf_counter()
            case.call(made)
            whole = time.perf_counter() - began
            torch.cuda.synchronize()
            if i >= WARMING:
                found["the whole call"].append(1e6 * whole)
                for name, spans in watch.spans.items():
                    found[name].append(1e6 * sum(spans))
                    entered[name] = len(spans)
    ordered = ["the whole call", *(told for _, _, told in STAGES if told in found)]
    return {name: {"us": round(median(found[name]), 1), "entered": entered.get(name, 1)} for name in ordered}


def calls(case: Case) -> dict[str, int]:
    """What CUDA is asked in one first call, e.g. {'cuLaunchKernelEx': 3, 'cudaEventRecord': 1}."""
    from torch.profiler import ProfilerActivity, profile

    case.call(case.fresh(0))
    made = case.fresh(1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        case.call(made)
    counts = Counter(event.name for event in seen.events())
    return {name: number for name, number in sorted(counts.items()) if name.startswith(("cu", "aten::"))}


def profiled(case: Case, lines: int) -> str:
    """cProfile's table of first calls, the functions that take longest first; its own cost is in it."""
    profile, text = cProfile.Profile(), io.StringIO()
    for i in range(WARMING + SAMPLES):
        made = case.fresh(i)
        torch.cuda.synchronize()
        if i >= WARMING:
            profile.enable()
        case.call(made)
        profile.disable()
        torch.cuda.synchronize()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(lines)
    return text.getvalue()


def main() -> None:
    """Prints a line for each case, and keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a JSON file")
    parser.add_argument("--commit", default="", help="what is measured, e.g. 8b598d5")
    parser.add_argument("--only", default="", help="a part of the cases' names, e.g. 'block 128'")
    parser.add_argument("--stages", action="store_true", help="time by stage, too")
    parser.add_argument("--calls", action="store_true", help="what CUDA and torch are asked, too")
    parser.add_argument("--profile", type=int, default=0, help="lines of cProfile's table, e.g. 40")
    given = parser.parse_args()
    device = torch.device("cuda", 0)
    rows: list[dict[str, Any]] = []
    for make in (products, masks):
        for case in make(device):
            if given.only not in case.name:
                continue
            row = timed(case)
            rows.append(row)
            print(
                f"{case.name:44} returns after {row['returned_ms']:.3f} ms, there after {row['first_ms']:.3f}, "
                f"the second returns after {row['second_returned_ms']:.3f}",
                flush=True,
            )
            if given.stages:
                row["stages"] = stages(case)
                for name, one in row["stages"].items():
                    print(f"    {one['us']:8.1f} us {one['entered']:3} x  {name}")
            if given.calls:
                row["calls"] = calls(case)
                print("    " + ", ".join(f"{number} {name}" for name, number in row["calls"].items()))
            if given.profile:
                print(profiled(case, given.profile))
    if given.out:
        machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "samples": SAMPLES}
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump({"commit": given.commit, **machine, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

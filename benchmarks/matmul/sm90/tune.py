"""Which settings of multiply.cu are fastest, side by side in one process on one card; for whoever tunes it.

    python -m benchmarks.matmul.sm90.tune --try LEAD=4 --try LOADERS=1,SUPER=2 --out results/tuning.json --commit HASH
    python -m benchmarks.matmul.sm90.tune --block 64 --density 0.3,0.5

A trial is a list of macros (LEAD, LOADERS) and SUPER, the token tiles of a window; without --try a few are taken.
Every trial is checked against torch before it is timed. Trials take turns; a time is the median of 15 calls with L2
flushed, 0.4 s after the last work. Compare inside one run alone: cards differ by 10 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue, Layout
from firstlight.kernels.sm90.again import ProductAgain
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.driver import load
from firstlight.kernels.sm90.multiply_plan import make_plan
from firstlight.kernels.sm90.problem import problem_of
from firstlight.kernels.sm90.variants import Build, multiply_variant

SIDE = 8192
CALLS = 15
PAUSE_S = 0.4
FLUSHED_BYTES = 256 << 20
MACROS = ("LEAD", "LOADERS")
SUPER = "SUPER"
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
COMMON = ("SUPER=2", "SUPER=4", "LEAD=3,SUPER=2", "LEAD=4", "LEAD=8", "LOADERS=1,SUPER=2", "LOADERS=2")
DENSITIES = "0.05,0.1,0.3,0.5"


@dataclass(frozen=True, slots=True)
class Trial:
    """E.g. Trial('LEAD=4,SUPER=2', (('LEAD', 4),), 2); super_tile 0: the rule's."""

    name: str
    macros: tuple[tuple[str, int], ...]
    super_tile: int


def trial(text: str) -> Trial:
    """A trial as given on the command line; empty text: everything by the rule."""
    macros, super_tile = [], 0
    for part in filter(None, text.split(",")):
        name, equals, number = part.partition("=")
        if not equals or not number.isdigit() or name not in (*MACROS, SUPER) or int(number) < 1:
            raise SystemExit(f"--try {text}: {part!r} is not accepted; {', '.join((*MACROS, SUPER))}=NUMBER are.")
        if name == SUPER:
            super_tile = int(number)
        else:
            macros.append((name, int(number)))
    if dict(macros).get("LOADERS", 1) > 3:
        raise SystemExit(f"--try {text}: LOADERS is 1, 2 or 3: one warp of four takes items.")
    return Trial(text or "as it is", tuple(macros), super_tile)


def prepared(given: Trial, index: Index, x: Tensor, layout: Layout) -> ProductAgain:
    """The product by the plan's own rules but for what the trial says."""
    problem = problem_of(index, x, layout)
    plan = make_plan(problem, index)
    if given.macros:
        build = Build(problem.block, problem.bf16, problem.tokens, problem.turned, problem.short_rows)
        base = multiply_variant(build, plan.tile)
        variant = Variant(base.source, (*base.defines, *given.macros), base.hgmma)
        cubin = built(variant).cubin
        kernel = load(cubin, "multiply", device=problem.device, shared_bytes=plan.tile.shared_bytes)
        plan = replace(plan, kernel=kernel)
    if given.super_tile:
        plan = replace(plan, super_tile=max(given.super_tile, plan.tile.cluster))
    return ProductAgain(plan, index, Epilogue())


def measured(call: Callable[[], object], flush: Tensor) -> list[float]:
    """Milliseconds of each call, sorted."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    time.sleep(PAUSE_S)
    times = []
    for _ in range(CALLS):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return sorted(times)


def tuned(args: argparse.Namespace, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """One row for each density, layout and trial, in turns."""
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    dtype, rows = DTYPES[args.dtype], []
    weight, x = (torch.randn(SIDE, SIDE, dtype=dtype, device="cuda") for _ in range(2))
    for density in map(float, args.density.split(",")):
        w = BlockSparseMatrix.random(SIDE, SIDE, block=args.block, density=density, dtype=dtype, device="cuda")
        dense = statistics.median(measured(partial(torch.matmul, x, weight.T), flush))
        work = dense * w.nnz_blocks * args.block**2 / SIDE**2
        for layout in (Layout.TOKENS, Layout.COLUMNS):
            exact = (x @ w.to_dense().T if layout is Layout.TOKENS else w.to_dense() @ x).float()
            for given in trials:
                times = measured(checked(given, w, x, layout, exact), flush)
                row = {"density": density, "layout": layout.value, "trial": given.name, "ms": times[CALLS // 2],
                       "share": work / times[CALLS // 2], "dense_ms": dense, "samples_ms": times}  # fmt: skip
                rows.append(row)
                print(
                    f"{density:<6g} {layout.value:<8} {given.name:<20} {row['ms']:8.4f} ms  {row['share']:.3f} of dense"
                )
    return rows


def checked(given: Trial, w: BlockSparseMatrix, x: Tensor, layout: Layout, exact: Tensor) -> Callable[[], None]:
    """The call of a trial, after its result was held against torch's."""
    again, out = prepared(given, w.pattern.forward, x, layout), torch.full_like(x, torch.nan)
    call = partial(again, w.values, x, out, None, None, (x.data_ptr(), w.values.data_ptr()))
    call()
    error = float((out.float() - exact).norm() / exact.norm())
    if not error <= 2 * TOLERANCE[x.dtype]:
        raise SystemExit(f"{given.name}: relative error {error:.2g} at density {w.density:g}, {layout.value}")
    return call


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matmul.sm90.tune", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--try", dest="trials", action="append", metavar="LEAD=4,SUPER=2", help="a trial; may be repeated"
    )
    parser.add_argument("--block", type=int, choices=(128, 64, 32, 16), default=128)
    parser.add_argument("--density", default=DENSITIES)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="fp16")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: measured; 3: no GPU."""
    args = parsed(arguments)
    trials = [trial(text) for text in ("", *(args.trials or COMMON))]
    if not torch.cuda.is_available():
        print("sm90 tune: torch sees no CUDA device; run it on an H100 or H200.", file=sys.stderr)
        return 3
    rows = tuned(args, trials)
    if args.out:
        document = {
            "schema": "firstlight.kernels-sm90-tuning/2", "commit": args.commit, "gpu": torch.cuda.get_device_name(),
            "block": args.block, "dtype": args.dtype, "rows": rows,
        }  # fmt: skip
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

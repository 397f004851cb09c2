"""What the parts of multiply.cu take by themselves: results/kernels-sm90-without-h200.json.

    python -m benchmarks.matmul.sm90.without --out results/kernels-sm90-without-h200.json --commit HASH

Each product runs whole, and then compiled without its products, without its stores, and without both: what is left is
the time that the memory needs for this kernel's loads and stores, whatever the tensor cores do. And without loads: what
products and stores take. 8192 x 8192 x 8192, random pattern and data, float16; L2 flushed; medians of 15 calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from benchmarks.matmul.sm90.tune import CALLS, FLUSHED_BYTES, SIDE, Trial, checked, measured, prepared
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.product import Layout
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.variants import PAIR, SHORT_ROWS, WIDE, Build, multiply_variant

SCHEMA = "firstlight.kernels-sm90-without/1"
# the bits of multiply.cu
PARTS = {"whole": 0, "loads and stores": 1, "loads and products": 2, "loads": 3, "products and stores": 4}
DENSITIES = {
    128: (0.01, 0.05, 0.1, 0.3),
    64: (0.02, 0.1, 0.3),
    32: (0.01, 0.02, 0.04, 0.1),
    16: (0.01, 0.02, 0.04, 0.1),
}


def trial_of(part: str) -> Trial:
    """The trial that leaves out the rest, e.g. of 'loads'."""
    left_out = PARTS[part]
    return Trial(part, (("WITHOUT", left_out),) if left_out else (), 0)


def variants() -> Iterator[Variant]:
    """Everything the run compiles."""
    for block in DENSITIES:
        for tokens in (True, False):
            for short in (True, False) if block == SHORT_ROWS and tokens else (False,):
                build = Build(block, bf16=False, tokens=tokens, turned=False, short_rows=short)
                for tile in (WIDE, PAIR) if block > SHORT_ROWS else (WIDE,):
                    base = multiply_variant(build, tile)
                    for part in PARTS:
                        yield Variant(base.source, (*base.defines, *trial_of(part).macros), base.hgmma)


def rows(flush: Tensor) -> Iterator[dict[str, Any]]:
    """One for each product and part."""
    for block, densities in DENSITIES.items():
        for density in densities:
            w = BlockSparseMatrix.random(SIDE, SIDE, block=block, density=density, dtype=torch.float16, device="cuda")
            x = torch.randn(SIDE, SIDE, dtype=torch.float16, device="cuda")
            moved = 2 * (w.values.numel() + x.numel() + SIDE * SIDE)
            for layout in (Layout.TOKENS, Layout.COLUMNS):
                exact = (x @ w.to_dense().T if layout is Layout.TOKENS else w.to_dense() @ x).float()
                for part in PARTS:
                    times = measured(call_of(part, w, x, layout, exact), flush)
                    row = {
                        "block": block, "density": density, "layout": layout.value, "part": part,
                        "ms": times[CALLS // 2], "least_bytes": moved, "samples_ms": times,
                    }  # fmt: skip
                    print(f"{block:<4} {density:<5g} {layout.value:<8} {part:<20} {row['ms']:8.4f} ms", flush=True)
                    yield row


def call_of(part: str, w: BlockSparseMatrix, x: Tensor, layout: Layout, exact: Tensor) -> Any:
    """The whole product after its result was held against torch's; a part of it as it is."""
    given = trial_of(part)
    if not given.macros:
        return checked(given, w, x, layout, exact)
    again, out = prepared(given, w.pattern.forward, x, layout), torch.empty_like(x)
    return lambda: again(w.values, x, out, None, None, (x.data_ptr(), w.values.data_ptr()))


def copy_bytes_per_s(flush: Tensor) -> float:
    """Bytes read and written by torch's copy of 1 GiB."""
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    to = torch.empty_like(source)
    return 2 * (1 << 30) / (statistics.median(measured(lambda: to.copy_(source), flush)) / 1e3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: measured; 3: no GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matmul.sm90.without", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="")
    args = parser.parse_args(arguments)
    if args.out and not args.out.parent.is_dir():
        parser.error(
            f"--out {args.out}: there is no folder {args.out.parent}; make it, or name a file in one that is there"
        )
    if not torch.cuda.is_available():
        print("sm90 without: torch sees no CUDA device; run it on an H100 or H200.", file=sys.stderr)
        return 3
    with ProcessPoolExecutor() as pool:
        list(pool.map(built, sorted(set(variants()), key=str)))
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    document = {
        "schema": SCHEMA, "commit": args.commit, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "copy_bytes_per_s": copy_bytes_per_s(flush), "rows": list(rows(flush)),
    }  # fmt: skip
    if args.out:
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What bias, activations and a gate cost on top of a product: results/kernels-sm90-epilogues-h200.json.

    python -m benchmarks.matmul.sm90.epilogues --out results/kernels-sm90-epilogues-h200.json --commit HASH

Each through the public call with backend sm90, beside the same product with nothing after it; the gate beside two of
these, as a gated product is two. And tokens and columns that are no multiple of 16, beside the next multiple. bfloat16,
random patterns and data, L2 flushed, medians of 15 calls; every epilogue is held against float32 first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.matmul.sm90.tune import CALLS, FLUSHED_BYTES, TOLERANCE, measured
from torch import Tensor
from torch.nn import functional

from firstlight.kernels import BlockSparseMatrix, gated_linear, linear, matmul

SCHEMA = "firstlight.kernels-sm90-epilogues/1"
SHAPES = (  # rows, cols, tokens, block, density
    (11008, 4096, 2944, 128, 0.3), (4096, 11008, 2944, 128, 0.3), (8192, 8192, 4096, 128, 0.1),
    (8192, 8192, 4096, 64, 0.3), (8192, 8192, 4096, 32, 0.1),
)  # fmt: skip
RAGGED = ((1001, 1008), (3000, 3008), (4099, 4112))
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu, "silu": functional.silu, "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}  # fmt: skip
Row = dict[str, Any]


def calls(shape: tuple[int, int, int, int, float]) -> Iterator[tuple[str, Callable[[], Tensor], Tensor]]:
    """Name, call and what it has to give."""
    rows, cols, tokens, block, density = shape
    new = partial(BlockSparseMatrix.random, rows, cols, block=block, density=density, device="cuda")
    w, gate = new(dtype=torch.bfloat16), new(dtype=torch.bfloat16)
    x = 0.05 * torch.randn(tokens, cols, dtype=torch.bfloat16, device="cuda")
    bias = torch.randn(rows, dtype=torch.bfloat16, device="cuda")
    product, factor = (x.float() @ each.to_dense().float().T for each in (w, gate))
    yield "none", partial(linear, x, w, backend="sm90"), product
    yield "bias", partial(linear, x, w, bias, backend="sm90"), product + bias.float()
    for name, activate in ACTIVATIONS.items():
        yield name, partial(linear, x, w, activation=name, backend="sm90"), activate(product)
    yield "gate", partial(gated_linear, x, w, gate, backend="sm90"), functional.silu(product) * factor


def epilogues(flush: Tensor) -> Iterator[Row]:
    """One row for each shape and what follows its product."""
    for shape in SHAPES:
        plain = 0.0
        for name, call, wanted in calls(shape):
            error = float((call().float() - wanted).norm() / wanted.norm())
            if not error <= 2 * TOLERANCE[torch.bfloat16]:
                raise SystemExit(f"{shape} {name}: relative error {error:.2g}")
            times = measured(call, flush)
            plain = plain or times[CALLS // 2]
            row = {
                "shape": list(shape), "name": name, "ms": times[CALLS // 2], "error": error, "samples_ms": times,
                "over": times[CALLS // 2] / (plain * (2 if name == "gate" else 1)),
            }  # fmt: skip
            print(f"{shape!s:<36} {name:<10} {row['ms']:8.4f} ms {row['over']:.3f}", flush=True)
            yield row


def ragged(flush: Tensor) -> Iterator[Row]:
    """One row for each number of columns, tokens of linear and n of matmul."""
    for block, density in ((128, 0.3), (128, 0.1), (64, 0.3)):
        w = BlockSparseMatrix.random(8192, 8192, block=block, density=density, dtype=torch.bfloat16, device="cuda")
        for n in (number for pair in RAGGED for number in pair):
            x = torch.randn(8192, n, dtype=torch.bfloat16, device="cuda")
            turned = x.T.contiguous()
            both = {"matmul": partial(matmul, w, x), "linear": partial(linear, turned, w)}
            for name, call in both.items():
                times = measured(partial(call, backend="sm90"), flush)
                row = {
                    "block": block, "density": density, "call": name, "n": n, "ms": times[CALLS // 2],
                    "samples_ms": times,
                }  # fmt: skip
                print(f"{block:<4} {density:<5g} {name:<7} {n:<5} {row['ms']:8.4f} ms", flush=True)
                yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: measured; 3: no GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matmul.sm90.epilogues", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="")
    args = parser.parse_args(arguments)
    if args.out and not args.out.parent.is_dir():
        parser.error(
            f"--out {args.out}: there is no folder {args.out.parent}; make it, or name a file in one that is there"
        )
    if not torch.cuda.is_available():
        print("sm90 epilogues: torch sees no CUDA device; run it on an H100 or H200.", file=sys.stderr)
        return 3
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    with torch.no_grad():
        document = {
            "schema": SCHEMA, "commit": args.commit, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
            "rows": list(epilogues(flush)), "ragged": list(ragged(flush)),
        }  # fmt: skip
    if args.out:
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

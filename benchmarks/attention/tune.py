"""Times tiles of the Triton attention kernels on the GPU at hand, and prints the fastest as rows of their tables.

    python benchmarks/attention/tune.py --head-dim 128 --block 128 --density 0.5 --json attention-tune.json

Every tile that compiles and fits is held against the table's result first. Times are medians of 15 with
L2 flushed; a tile of dq or dkdv is timed in a whole backward pass with the table's tile for the other kernel.
Needs a GPU; without one it says so and ends with 3.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention import triton as backend
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.block_attention.triton.calls import problem_of, ready_for, strides_of, take_tile
from firstlight.kernels.block_attention.triton.plan import Problem, spec_of
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile, candidates
from firstlight.kernels.triton_backend.launch import compiled_for
from firstlight.kernels.triton_backend.tiles import SHARED_BYTES, family_of

FLUSH_BYTES = 256 << 20
REPEATS, WARM = 15, 2
TENSOR_MEMORY = 512  # columns, of a multiprocessor of 10.0
TOLERANCE = 4e-3  # of the largest element: another tile adds in another order
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class Inputs(NamedTuple):
    """What the passes are given."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    out: Tensor
    lse: Tensor
    mask: BlockMask
    scale: float


def main() -> int:
    args = arguments()
    if not torch.cuda.is_available():
        print("attention tune: torch sees no CUDA device; run it on a GPU machine.", file=sys.stderr)
        return 3
    inputs = drawn(args)
    forward(inputs)
    rows = []
    for which in (Pass(name) for name in args.passes):
        problem = problem_for(inputs, which)
        found = tuned(which, problem, inputs, jobs=args.jobs)
        rows += [{"pass": which.value, "tile": tile._asdict(), "median_ms": ms} for ms, tile in found]
        chosen = ready_for(which, problem).tile
        for ms, tile in found[:5]:
            print(f"{which.value} {tuple(tile)}: {ms:.3f} ms{' (the table)' if tile == chosen else ''}", flush=True)
        own = [ms for ms, tile in found if tile == chosen]
        if found and own:
            row = f"Pass.{which.name}: {{{args.block}: {{{args.head_dim}: {found[0][1]}}}}}"
            print(f"    {row}  # {found[0][0]:.3f} ms, the table's {own[0]:.3f}", flush=True)
    if args.json:
        shape = {name: value for name, value in vars(args).items() if name not in ("json", "jobs")}
        document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "shape": shape, "rows": rows}
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=48)
    parser.add_argument("--kv-heads", type=int, default=48)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--block", type=int, choices=(64, 128), default=128)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float16")
    parser.add_argument("--passes", nargs="+", choices=[which.value for which in Pass], default=[p.value for p in Pass])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--json", help="file for every median")
    return parser.parse_args()


def drawn(args: argparse.Namespace) -> Inputs:
    """Random operands and random whole blocks, the diagonal among them."""
    torch.manual_seed(0)
    size = (args.batch, args.heads, args.length, args.head_dim)
    kv_size = (args.batch, args.kv_heads, args.length, args.head_dim)
    options: dict[str, Any] = {"dtype": DTYPES[args.dtype], "device": "cuda"}
    q, grad = torch.randn(size, **options), torch.randn(size, **options)
    k, v = torch.randn(kv_size, **options), torch.randn(kv_size, **options)
    blocks = -(-args.length // args.block)
    used = torch.rand(1, args.heads, blocks, blocks, device="cuda") < args.density
    used |= torch.eye(blocks, dtype=torch.bool, device="cuda")
    mask = BlockMask(used.to(torch.uint8) * 2, q_len=args.length, k_len=args.length, block=args.block)
    out, lse = torch.empty_like(q), torch.empty(size[:3], dtype=torch.float32, device="cuda")
    return Inputs(q, k, v, grad, out, lse, mask, args.head_dim**-0.5)


def forward(given: Inputs) -> tuple[Tensor, ...]:
    backend.forward(given.q, given.k, given.v, given.mask, scale=given.scale, out=given.out, lse=given.lse)
    return (given.out,)


def backward(given: Inputs) -> tuple[Tensor, ...]:
    made = Forward(given.q, given.k, given.v, given.out, given.lse)
    return backend.backward(Upstream(given.grad), made, given.mask, scale=given.scale)


def problem_for(given: Inputs, which: Pass) -> Problem:
    """The problem under which calls look for their kernel."""
    operands = (given.q, given.k, given.v, given.out if which is Pass.FORWARD else given.grad)
    return problem_of(given.mask, operands, strides_of(operands), scale=given.scale)


def tuned(which: Pass, problem: Problem, given: Inputs, *, jobs: int) -> list[tuple[float, Tile]]:
    """(median ms, tile) of every tile that runs and is right, fastest first."""
    call = forward if which is Pass.FORWARD else backward
    right = [tensor.clone() for tensor in call(given)]
    capability = torch.cuda.get_device_capability()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    tiles = list(candidates(which, block=problem.block))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        fits = list(pool.map(compiles, [(which, problem, tile, capability) for tile in tiles]))
    found = []
    for tile, fitting in zip(tiles, fits, strict=True):
        if not fitting:
            continue
        try:
            take_tile(which, problem, tile)
            made = call(given)
            torch.cuda.synchronize()
        except RuntimeError as error:  # out of shared memory, of registers
            print(f"{which.value} {tuple(tile)}: {error}", flush=True)
            continue
        if all(close(one, other) for one, other in zip(made, right, strict=True)):
            found.append((median_ms(lambda: call(given), flush), tile))
        else:
            print(f"{which.value} {tuple(tile)}: WRONG", flush=True)
    take_tile(which, problem, None)
    return sorted(found)


def compiles(job: tuple[Pass, Problem, Tile, tuple[int, int]]) -> bool:
    """Whether a tile compiles and fits; Triton keeps what was compiled on the disk, for the process that runs it."""
    which, problem, tile, capability = job
    try:
        kernel = compiled_for(spec_of(which, problem, tile), capability)
    except Exception as error:  # noqa: BLE001 any failure of a compiler is a tile that is not taken
        print(f"{which.value} {tuple(tile)}: {type(error).__name__}", flush=True)
        return False
    fits = kernel.metadata.shared <= SHARED_BYTES[family_of(capability)]
    return bool(fits and (kernel.metadata.tmem_size or 0) <= TENSOR_MEMORY)


def close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= TOLERANCE * other.abs().max())


def median_ms(call: Callable[[], object], flush: Tensor) -> float:
    """Milliseconds between events around single calls, L2 overwritten before each."""
    samples = []
    for number in range(WARM + REPEATS):
        flush.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        if number >= WARM:
            samples.append(float(start.elapsed_time(stop)))
    return statistics.median(samples)


if __name__ == "__main__":
    sys.exit(main())

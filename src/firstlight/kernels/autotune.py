"""Measures on this GPU where each sparse kernel (triton, and sm90 where it runs) stops beating the same matrix stored
dense.

CUDA events around single calls, an L2-sized buffer overwritten before each, medians; random data. The plan is a list of
products in order of use; measuring stops when the budget is spent, and what was measured until then is written.
"""

from __future__ import annotations

import datetime
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from firstlight.errors import CouldNotLook
from firstlight.frozen import dataclass
from firstlight.kernels.choose import forget_choices, why_not_sm90, why_not_triton
from firstlight.kernels.crossover import DENSE_AT, Machine, Row, cache_file, document
from firstlight.kernels.functions import linear, matmul, sampled_matmul
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import Layout

DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BLOCKS = (128, 64, 32, 16)
TOKENS = (4096, 256, 16, 1024, 64, 16384)
# not the shapes that the results are shown on: a rule is to be judged on shapes it was not fitted to
SHAPES = ((8192, 8192), (2048, 2048), (14336, 4096), (4096, 14336))
SLOWER_IS_ENOUGH = 1.3  # past this multiple of dense, higher densities are not measured
FLUSH_BYTES = 256 << 20
REPEATS = 15


@dataclass(frozen=True, slots=True)
class Product:
    """One product to measure, e.g. block 64, tokens layout, 8192 x 8192 with 4096 tokens."""

    operation: str
    block: int
    layout: Layout
    rows: int
    cols: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured and where it was written, e.g. 96 of 240 measurements in 60.2 s."""

    machine: Machine
    path: str
    planned: int
    seconds: float


def plan() -> tuple[Product, ...]:
    """The products in the order in which they are measured: every block at the commonest size first."""
    kinds = (("multiply", Layout.TOKENS), ("multiply", Layout.COLUMNS), ("sample", Layout.TOKENS))
    return tuple(
        Product(operation, block, layout, rows, cols, tokens)
        for operation, layout in kinds
        for rows, cols in SHAPES
        for tokens in TOKENS
        for block in BLOCKS
    )


def autotune(
    *, budget_s: float, dtype: str = "float16", device: int = 0, path: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:  # fmt: skip
    """Measures until the budget is spent and writes the rows, whole or not at all; later calls use them at once."""
    kind: torch.dtype = getattr(torch, dtype)
    backends = _backends_here(device, kind)
    began = time.monotonic()
    gpu = torch.cuda.get_device_name(device)
    products = plan()
    rows: list[Row] = []
    with torch.cuda.device(device), torch.no_grad():
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        for number, product in enumerate(products, 1):
            if time.monotonic() - began > budget_s:
                break
            for backend in backends:
                row = measured(product, kind, flush, backend=backend)
                rows.append(row)
                say(f"{number}/{len(products)} {_shown(row)}")
    machine = Machine(
        gpu=gpu, torch=torch.__version__, triton=_triton_version(), date=datetime.date.today().isoformat(),
        source="firstlight kernels autotune", rows=tuple(rows),
    )  # fmt: skip
    target = path or cache_file(gpu)
    write_whole(target, document((machine,)))
    forget_choices()
    return Tuned(machine, str(target), len(products) * len(backends), time.monotonic() - began)


def measured(product: Product, dtype: torch.dtype, flush: torch.Tensor, *, backend: str = "triton") -> Row:
    """One product by one sparse kernel at rising densities, until it is clearly slower than dense."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = torch.randn(product.tokens, product.cols, dtype=dtype, device="cuda", generator=generator)
    y = torch.randn(product.tokens, product.rows, dtype=dtype, device="cuda", generator=generator)
    dense_us, dense_full_us = (
        _time_us(_dense_call(product, _random(product, density, dtype, generator).to_dense(), x, y), flush)
        for density in (DENSE_AT, 1.0)
    )
    copy_us = 0.0
    found: list[tuple[float, float]] = []
    for density in DENSITIES:
        matrix = _random(product, density, dtype, generator)
        time_us = _time_us(_sparse_call(product, matrix, (x, y), backend), flush)
        copy_us = _time_us(matrix.to_dense, flush)
        found.append((round(matrix.density, 4), round(time_us, 2)))
        if time_us > SLOWER_IS_ENOUGH * (dense_us + copy_us):
            break
    return Row(
        operation=product.operation, block=product.block, dtype=str(dtype).removeprefix("torch."),
        layout=product.layout.value, rows=product.rows, cols=product.cols, tokens=product.tokens,
        dense_us=round(dense_us, 2), copy_us=round(copy_us, 2), sparse_us=tuple(found),
        backend=backend, dense_full_us=round(dense_full_us, 2),
    )  # fmt: skip


def _random(product: Product, density: float, dtype: torch.dtype, generator: torch.Generator) -> BlockSparseMatrix:
    return BlockSparseMatrix.random(
        product.rows, product.cols, block=product.block, density=density, dtype=dtype, device="cuda",
        generator=generator,
    )  # fmt: skip


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    try:
        with open(scratch, "x", encoding="utf-8") as file:  # never through a link that lies there
            file.write(text)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _dense_call(product: Product, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    if product.operation == "sample":
        return lambda: y.mT @ x
    if product.layout is Layout.TOKENS:
        return lambda: torch.nn.functional.linear(x, weight)
    columns = x.mT.contiguous()
    return lambda: weight @ columns


def _sparse_call(
    product: Product, matrix: BlockSparseMatrix, operands: tuple[torch.Tensor, torch.Tensor], backend: str
) -> Callable[[], object]:
    x, y = operands
    if product.operation == "sample":
        return lambda: sampled_matmul(y.mT, x, matrix, backend=backend)
    if product.layout is Layout.TOKENS:
        return lambda: linear(x, matrix, backend=backend)
    columns = x.mT.contiguous()
    return lambda: matmul(matrix, columns, backend=backend)


def _time_us(call: Callable[[], object], flush: torch.Tensor) -> float:
    for _ in range(2):
        call()
    times = [_once_us(call, flush) for _ in range(REPEATS)]
    return statistics.median(times)


def _once_us(call: Callable[[], object], flush: torch.Tensor) -> float:
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    flush.zero_()  # also keeps the GPU busy while the host gets ahead, so that launch time is not measured
    start.record()
    call()
    end.record()
    end.synchronize()
    return 1e3 * float(start.elapsed_time(end))


def _backends_here(device: int, dtype: torch.dtype) -> tuple[str, ...]:
    """The sparse kernels that run there, e.g. ('triton', 'sm90'); CouldNotLook where none does."""
    if not torch.cuda.is_available() or device >= torch.cuda.device_count():
        raise CouldNotLook(
            f"autotune measures on CUDA device {device}, and torch sees {torch.cuda.device_count()} devices. "
            f"`firstlight doctor` says why."
        )
    hurdles = {"triton": why_not_triton(device, dtype), "sm90": why_not_sm90(device, dtype)}
    found = tuple(name for name, hurdle in hurdles.items() if not hurdle)
    if not found:
        raise CouldNotLook(f"autotune has nothing to measure: {hurdles['triton']}; {hurdles['sm90']}.")
    return found


def _shown(row: Row) -> str:
    last = row.sparse_us[-1]
    return (
        f"{row.operation} block {row.block} {row.layout} {row.rows}x{row.cols} tokens {row.tokens}: dense "
        f"{row.dense_us:.1f} us, {row.backend} {last[1]:.1f} us at density {last[0]:g}"
    )


def _triton_version() -> str:
    return next(_versions_of("triton"), "")


def _versions_of(name: str) -> Iterator[str]:
    from importlib import metadata

    try:
        yield metadata.version(name)
    except metadata.PackageNotFoundError:
        return

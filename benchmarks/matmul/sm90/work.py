"""What sm90/run.py measures: sizes, products, patterns, sampled products, and the state of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from benchmarks.matmul.products import DTYPES, UNIT, Budget, Entry, Kit, Product, case_of
from benchmarks.matmul.sm90.limits import Rates
from torch import Tensor

from firstlight.bench.cases.data import holding
from firstlight.bench.rotation import sets_wanted
from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix, sampled_matmul
from firstlight.kernels.product import Layout

TABLE = ((128, (0.05, 0.1, 0.3, 0.5)), (64, (0.1, 0.3, 0.5)), (32, (0.1, 0.3)), (16, (0.05, 0.1, 0.2)))
# (block, density): least share of cuBLAS, and what was aimed at
BARS = {
    (128, 0.05): (0.65, 0.80), (128, 0.1): (0.82, 0.92), (128, 0.3): (0.92, 0.97), (128, 0.5): (0.95, 0.98),
    (64, 0.1): (0.58, 0.72), (64, 0.3): (0.70, 0.82), (64, 0.5): (0.78, 0.88), (32, 0.1): (0.30, 0.42),
    (32, 0.3): (0.40, 0.52), (16, 0.05): (0.11, 0.20), (16, 0.1): (0.15, 0.26), (16, 0.2): (0.22, 0.32),
}  # fmt: skip
GRADIENT_BARS = {"dX": 0.70, "dW": 0.55}  # at block 128
LEAST_OF_COPY = 0.60
BLOCKS = (128, 64, 32, 16)
LAYOUTS = (Layout.TOKENS, Layout.COLUMNS)
GRADIENTS = ((128, (0.1, 0.3, 0.5)), (64, (0.1,)))
LOW = (0.01, 0.02, 0.04)
HELD_OUT = ((128, (0.1, 0.3)), (64, (0.1, 0.3)), (32, (0.1,)), (16, (0.1,)))
CROSSING = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0)
EVERY_DENSITY = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PATTERNS = ("banded", "power-law", "block-diagonal")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured: on a GPU, or a small rehearsal on the processor."""

    square: int = 8192
    crossings: tuple[int, ...] = (8192, 4096)
    crossing_tokens: tuple[int, ...] = (4096, 256, 16, 1024, 64, 8192)
    sampled_tokens: tuple[int, ...] = (4096, 512)
    held_out: tuple[tuple[int, int], ...] = ((5120, 13824), (4096, 4096), (12288, 3072))
    held_out_tokens: tuple[int, ...] = (4096, 256, 16384, 64, 16)
    auto: tuple[int, int, int] = (5120, 13824, 4096)
    copied: int = 1 << 28  # elements of a copy


REHEARSAL = Sizes(256, (256,), (16, 80), (32,), ((256, 384),), (32, 16), (256, 128, 32), 1 << 16)


class State:
    """One run: what it measures with, what it found, and the rates that limits are computed from."""

    def __init__(self, kit: Kit, sizes: Sizes, budget: Budget, found: dict[str, Any]) -> None:
        self.kit, self.sizes, self.budget, self.found = kit, sizes, budget, found
        self.cublas: dict[str, float] = {}
        self.copy: float | None = None

    @property
    def rates(self) -> Rates | None:
        return None if self.copy is None or not self.cublas else Rates(self.cublas, self.copy)


def table_groups(sizes: Sizes) -> Iterator[Product]:
    """What takes turns: a type and a layout, with all rows of the table."""
    side = sizes.square
    for dtype in ("fp16", "bf16"):
        for layout in LAYOUTS:
            yield Product(128, layout, dtype, side, side, side, 1.0)


def table_products(group: Product) -> Iterator[Product]:
    for block, densities in TABLE:
        for density in densities:
            yield replace(group, block=block, density=density)


def held_out_products(sizes: Sizes) -> Iterator[Product]:
    """Linear with every number of tokens; with the first, where calls are long, matmul too."""
    for tokens in sizes.held_out_tokens:
        for layout in LAYOUTS if tokens == sizes.held_out_tokens[0] else (Layout.TOKENS,):
            for rows, cols in sizes.held_out:
                for block, densities in HELD_OUT:
                    for density in densities:
                        yield Product(block, layout, "fp16", rows, cols, tokens, density)


def auto_products(sizes: Sizes) -> Iterator[Product]:
    rows, cols, tokens = sizes.auto
    for layout in LAYOUTS:
        for block in BLOCKS:
            for density in EVERY_DENSITY:
                yield Product(block, layout, "fp16", rows, cols, tokens, density)


def pattern_mask(kind: str, rows: int, cols: int, generator: torch.Generator) -> Tensor:
    """[rows, cols] of booleans on the processor, a tenth to an eighth of them True.

    banded: twelve blocks in a hundred around the diagonal; power-law: row lengths fall as 1 / rank^0.7, rows and
    columns in random order; block-diagonal: eight squares along the diagonal.
    """
    row, col = torch.arange(rows)[:, None], torch.arange(cols)[None, :]
    if kind == "banded":
        return (col * rows - row * cols).abs() <= 0.06 * rows * cols
    if kind == "block-diagonal":
        return row * 8 // rows == col * 8 // cols
    weight = 1.0 / torch.arange(1, rows + 1) ** 0.7
    chance = (weight * (0.1 * rows / weight.sum())).clamp(max=1.0)[torch.randperm(rows, generator=generator)]
    return torch.rand(rows, cols, generator=generator) < chance[:, None]


def patterned(kind: str, product: Product, device: str) -> BlockSparseMatrix:
    """A matrix with one of these patterns and normal random values."""
    block = product.block
    generator = torch.Generator().manual_seed(len(kind) * 1000 + block)
    mask = pattern_mask(kind, -(-product.rows // block), -(-product.cols // block), generator)
    random = torch.Generator(device=device).manual_seed(block)
    stored = torch.randn(int(mask.sum()), block, block, dtype=DTYPES[product.dtype], device=device, generator=random)
    shape = (product.rows, product.cols)
    return BlockSparseMatrix.from_mask(mask.to(device), block=block, values=stored, shape=shape)


@dataclass(frozen=True, slots=True)
class Gradients:
    """The operands of dW = dY^T X: a and b as sampled_matmul takes them."""

    a: Tensor  # [rows, n]
    b: Tensor  # [n, cols]


def gradients_of(product: Product, device: str) -> Gradients:
    """Random dY and X: contiguous as [n, *] for linear, as [*, n] for matmul."""
    generator = torch.Generator(device=device).manual_seed(product.tokens + 1)
    dtype = DTYPES[product.dtype]
    if product.is_linear:
        dy, x = (
            torch.randn(product.tokens, side, dtype=dtype, device=device, generator=generator)
            for side in (product.rows, product.cols)
        )
        return Gradients(dy.mT, x)
    dy, x = (
        torch.randn(side, product.tokens, dtype=dtype, device=device, generator=generator)
        for side in (product.rows, product.cols)
    )
    return Gradients(dy, x.mT)


def sampled_entry(kit: Kit, product: Product, matrix: BlockSparseMatrix, operands: Gradients) -> Entry:
    """dW at the stored blocks; checked element by element against float64."""
    case = replace(
        case_of(product, "dW", kit.place, weights=matrix.nnz_blocks * product.block**2), id=f"{product.id}/dW"
    )
    box: list[Any] = []
    call = holding(partial(_sampled, matrix, operands, kit.backend), box)
    calls = [call]
    for _ in range(sets_wanted(case, kit.place) - 1):
        other = Gradients(_cloned(operands.a), _cloned(operands.b))
        calls.append(holding(partial(_sampled, matrix, other, kit.backend), []))
    return Entry(case, tuple(calls), partial(_sampling_error, product, matrix, operands, kit.backend))


def dense_gradient_entry(kit: Kit, product: Product, operands: Gradients) -> Entry:
    """The whole of dW by cuBLAS."""
    case = case_of(product, "dense dW", kit.place, weights=product.rows * product.cols)
    call = holding(lambda: operands.a @ operands.b, [])
    calls = [call]
    for _ in range(sets_wanted(case, kit.place) - 1):
        a, b = _cloned(operands.a), _cloned(operands.b)
        calls.append(holding(partial(torch.mm, a, b), []))
    return Entry(case, tuple(calls), lambda: 0.0)


def _cloned(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_contiguous() else tensor.mT.clone().mT


def _sampled(matrix: BlockSparseMatrix, operands: Gradients, backend: str) -> Tensor:
    return sampled_matmul(operands.a, operands.b, matrix, backend=backend).values


def _sampling_error(product: Product, matrix: BlockSparseMatrix, operands: Gradients, backend: str) -> float:
    """The largest error of any element over its bound, as for products: one rounding and 2 n 2^-24 of the sizes."""
    got = _sampled(matrix, operands, backend)
    if not got.numel():
        return 0.0
    pattern = matrix.pattern
    rows, cols = pattern.rows_of_entries.long(), pattern.col.long()
    exact, size = (
        _blocks(whole, product.block)[rows, cols]
        for whole in (
            operands.a.double() @ operands.b.double(),
            (operands.a.abs().float() @ operands.b.abs().float()).double(),
        )
    )
    bound = UNIT[got.dtype] * exact.abs() + 2 * product.tokens * 2.0**-24 * size + 2.0**-24
    worst = float(((got.double() - exact).abs() / bound).max())
    return float("inf") if worst != worst else worst


def _blocks(whole: Tensor, block: int) -> Tensor:
    rows, cols = whole.shape
    return whole.view(rows // block, block, cols // block, block).transpose(1, 2)

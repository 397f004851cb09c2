"""Small products by Triton's interpreter, in a process of its own: kernels look at TRITON_INTERPRET when defined.

    TRITON_INTERPRET=1 python interpreted_cases.py

Prints one JSON object per case: its name and what is wrong with it, empty when nothing is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import triton.runtime.interpreter as interpreter
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels import reference, triton_backend
from firstlight.kernels.index import Index
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout, Second
from firstlight.kernels.triton_backend.problem import problem_of
from firstlight.kernels.triton_backend.rows_plan import Operands
from firstlight.kernels.triton_backend.tiles import Tile, Walk

ROUNDING = {torch.float16: 2**-10, torch.float32: 2**-20}


def let_loop_bounds_be_arrays() -> None:
    """Triton's interpreter takes int() of one-element arrays, which numpy 2.4 refuses."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:  # Triton before 3.6 has no scope and puts nothing back
        patch(tensor, *scope)
        put = scope[0].set_attr if scope else setattr
        put(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


@dataclass(frozen=True, slots=True)
class Product:
    """One product; tile None: the table's."""

    block: int
    layout: Layout
    shape: tuple[int, int]
    n: int
    batch: int = 0
    density: float = 0.4
    dtype: torch.dtype = torch.float16
    index_dtype: torch.dtype = torch.int32
    transposed: bool = False
    tile: Tile | None = None
    epilogue: bool = False
    activation: Activation = Activation.NONE
    infinite: bool = False  # an infinity in one column of the dense operand that some rows use and others do not
    gated: bool = False  # multiplied by the addend


def drawn(product: Product) -> tuple[Index, Tensor]:
    generator = torch.Generator().manual_seed(product.block + product.n)
    rows, cols = product.shape
    shape = (cols, rows) if product.transposed else (rows, cols)
    matrix = BlockSparseMatrix.random(
        *shape, block=product.block, density=product.density, dtype=product.dtype, generator=generator
    )
    crow, col = matrix.pattern.crow.to(product.index_dtype), matrix.pattern.col.to(product.index_dtype)
    matrix = BlockSparseMatrix.from_parts(matrix.values, crow, col, shape)
    return (matrix.index_t if product.transposed else matrix.index), matrix.values


def what_is_wrong(product: Product) -> str:
    index, values = drawn(product)
    batch = (product.batch,) if product.batch else ()
    tokens = product.layout is Layout.TOKENS
    dense_shape = (product.n, product.shape[1]) if tokens else (*batch, product.shape[1], product.n)
    out_shape = (product.n, product.shape[0]) if tokens else (*batch, product.shape[0], product.n)
    dense = torch.randn(dense_shape).to(product.dtype)
    if product.infinite:
        first = int(index.columns[0]) * product.block
        (dense.T if tokens else dense)[first, 0] = math.inf
    epilogue = PLAIN
    if product.epilogue:
        addend, bias = torch.randn(out_shape).to(product.dtype), torch.randn(product.shape[0]).to(product.dtype)
        epilogue = Epilogue(alpha=0.5, beta=-2.0, addend=addend, bias=bias, activation=product.activation)
        if product.gated:
            epilogue = replace(epilogue, beta=1.0, second=Second.MULTIPLIED)
    out = torch.full(out_shape, math.nan, dtype=product.dtype)
    if product.tile is None:
        triton_backend.multiply(index, values, dense, out, layout=product.layout, epilogue=epilogue)
    else:
        plan = triton_backend.plan_for(problem_of(index, dense, product.layout, epilogue), product.tile)
        plan(index, Operands(values, dense, out), epilogue)
    exact = torch.empty(out_shape, dtype=torch.float64)
    reference.multiply_exact(index, values, dense, exact, layout=product.layout, epilogue=epilogue)
    size = torch.empty(out_shape, dtype=torch.float64)
    bounds = Epilogue(
        beta=2.0,
        addend=None if epilogue.addend is None else epilogue.addend.abs(),
        bias=None if epilogue.bias is None else epilogue.bias.abs(),
    )
    reference.multiply_exact(index, values.abs(), dense.abs(), size, layout=product.layout, epilogue=bounds)
    if product.gated and epilogue.addend is not None:
        size = size * (1 + epilogue.addend.double().abs())
    return compared(out, exact, ROUNDING[product.dtype] * (size + 1e-3))


def compared(out: Tensor, exact: Tensor, bound: Tensor) -> str:
    finite = exact.isfinite()
    if not torch.equal(out.isfinite(), finite):
        return f"{int((out.isfinite() != finite).sum())} elements are finite here or in the reference, not in both"
    error = (out.double() - exact)[finite].abs()
    return "" if bool((error <= bound[finite]).all()) else f"error {float(error.max()):.2e}"


def sample_is_wrong(block: int, layout: Layout, n: int, batch: int) -> str:
    matrix = BlockSparseMatrix.random(3 * block - 2, 4 * block - 3, block=block, density=0.5, dtype=torch.float16)
    index = matrix.index
    front = (batch,) if batch else ()
    shapes = [(n, side) if layout is Layout.TOKENS else (*front, side, n) for side in (index.rows, index.cols)]
    a, b = (torch.randn(shape).half() for shape in shapes)
    out = torch.full_like(matrix.values, math.nan)
    triton_backend.sample(index, a, b, out, layout=layout, alpha=-0.5)
    exact, size = (torch.empty(out.shape, dtype=torch.float64) for _ in range(2))
    reference.sample_exact(index, a, b, exact, layout=layout, alpha=-0.5)
    reference.sample_exact(index, a.abs(), b.abs(), size, layout=layout, alpha=0.5)
    return compared(out, exact, ROUNDING[torch.float16] * (size + 1e-3))


def groups(*, turned: bool = False, height: int = 64) -> Tile:
    return Tile(Walk.GROUPS, height, 32, 64, 4, 3, 2, turned=turned)


def products() -> Iterator[tuple[str, Product]]:
    columns, tokens = Layout.COLUMNS, Layout.TOKENS
    for layout in Layout:
        for block in (16, 32, 64, 128):
            odd = (3 * block - 3, 4 * block - 5)
            yield f"{layout.value} {block}", Product(block, layout, n=19, shape=odd)
        odd = (16 * 7 - 3, 16 * 9 - 5)
        yield f"{layout.value} transposed blocks", Product(16, layout, n=19, transposed=True, shape=odd)
        # bfloat16 is not here: the interpreter multiplies its bits as integers (triton 3.6, create_dot)
        yield f"{layout.value} int64 indices", Product(16, layout, n=19, index_dtype=torch.int64, shape=odd)
        yield f"{layout.value} float32", Product(32, layout, n=19, dtype=torch.float32, shape=(93, 70))
        yield (
            f"{layout.value} tokens first",
            Product(32, layout, n=37, shape=(93, 70), tile=Tile(Walk.ROWS, 32, 32, 16, 4, 3, 2, tokens_first=True)),
        )
        yield f"{layout.value} no stored block", Product(16, layout, n=19, density=0.0, epilogue=True, shape=odd)
        for activation in Activation:
            yield (
                f"{layout.value} {activation.value}",
                Product(16, layout, n=19, shape=(45, 70), epilogue=True, activation=activation),
            )
        for block in (16, 32):
            odd = (block * 7 - 3, block * 6 - 5)
            for turned in (False, True):
                yield (
                    f"{layout.value} groups {block} {turned}",
                    Product(block, layout, n=37, tile=groups(turned=turned), epilogue=True, shape=odd),
                )
        yield (
            f"{layout.value} groups, infinity",
            Product(16, layout, n=37, density=0.3, shape=(128, 160), infinite=True, tile=groups()),
        )
        yield (
            f"{layout.value} groups, transposed blocks",
            Product(16, layout, n=37, shape=(109, 91), transposed=True, tile=groups(height=32)),
        )
        yield (
            f"{layout.value} groups, no stored block",
            Product(16, layout, n=37, shape=(109, 91), density=0.0, tile=groups()),
        )
        yield (
            f"{layout.value} split rows",
            Product(16, layout, n=16, shape=(40, 16 * 80), density=0.9, epilogue=True, activation=Activation.SILU),
        )
    yield "batch", Product(16, columns, shape=(45, 70), n=19, batch=3, epilogue=True)
    yield "batch, groups", Product(16, columns, shape=(45, 70), n=37, batch=3, tile=groups())
    yield "batch, split rows", Product(16, columns, shape=(16, 16 * 80), n=16, batch=2, density=0.9)
    yield "one token", Product(16, tokens, shape=(45, 70), n=1)
    gated: dict[str, Any] = {"epilogue": True, "gated": True, "activation": Activation.SILU}
    yield "gate", Product(16, tokens, shape=(45, 70), n=19, **gated)
    yield "gate, groups", Product(16, tokens, shape=(45, 70), n=37, tile=groups(), **gated)
    yield "gate, split rows", Product(16, columns, shape=(16, 16 * 80), n=16, density=0.9, **gated)


def cases() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, product in products():
        yield name, lambda product=product: what_is_wrong(product)  # type: ignore[misc]
    for block in (16, 64):
        for layout in Layout:
            yield f"sample {block} {layout.value}", lambda b=block, y=layout: sample_is_wrong(b, y, 75, 0)  # type: ignore[misc]
    yield "sample batch", lambda: sample_is_wrong(16, Layout.COLUMNS, 19, 3)


def main() -> None:
    let_loop_bounds_be_arrays()
    torch.manual_seed(0)
    for name, look in cases():
        print(json.dumps({"name": name, "wrong": look()}), flush=True)


if __name__ == "__main__":
    main()

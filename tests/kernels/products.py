"""Products written out in float64, and the cases that every backend has to get right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from firstlight.frozen import dataclass
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import Activation, Epilogue, Layout, Second

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: torch.relu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
}
# elementwise: |error| <= this * (|W| @ |X| + |addend| + |bias|); one rounding to the output and the sums in float32
ROUNDING = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-20, torch.float64: 2**-48}


@dataclass(frozen=True, slots=True)
class Case:
    """One product to compute and to compare."""

    matrix: BlockSparseMatrix
    dense: Tensor
    layout: Layout
    epilogue: Epilogue


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small products over blocks, dtypes, layouts, directions and epilogues."""
    block = draw(st.sampled_from([16, 32]))
    rows, cols, n = draw(st.integers(1, 80)), draw(st.integers(1, 80)), draw(st.integers(1, 20))
    dtype = draw(st.sampled_from(list(ROUNDING)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    density = draw(st.floats(0, 1))
    matrix = BlockSparseMatrix.random(rows, cols, block=block, density=density, dtype=dtype, generator=generator)
    matrix = matrix.T if draw(st.booleans()) else matrix
    rows, cols = matrix.shape
    layout = draw(st.sampled_from(list(Layout)))
    batch = draw(st.sampled_from([(), (3,)])) if layout is Layout.COLUMNS else ()
    dense_shape, out_shape = ((cols, n), (rows, n)) if layout is Layout.COLUMNS else ((n, cols), (n, rows))

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    second = draw(st.sampled_from(list(Second)))
    gated = second is Second.MULTIPLIED
    epilogue = Epilogue(
        alpha=draw(st.sampled_from([1.0, -0.5])),
        beta=1.0 if gated else draw(st.sampled_from([0.0, 1.0, 2.0])),
        addend=numbers(*batch, *out_shape) if gated or draw(st.booleans()) else None,
        bias=numbers(rows) if draw(st.booleans()) else None,
        activation=draw(st.sampled_from(list(Activation))),
        second=second,
    )
    return Case(matrix, numbers(*batch, *dense_shape), layout, epilogue)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An output that shows every element that was not written."""
    return torch.full(shape, math.nan, dtype=dtype)


def computed(case: Case, backend: ModuleType, dtype: torch.dtype | None = None) -> Tensor:
    """What a backend writes over a poisoned output."""
    rows = case.matrix.shape[0]
    shape = list(case.dense.shape)
    shape[-2 if case.layout is Layout.COLUMNS else -1] = rows
    out = poisoned(tuple(shape), dtype or case.matrix.dtype)
    index, values = case.matrix.index, case.matrix.values
    backend.multiply(index, values, case.dense, out, layout=case.layout, epilogue=case.epilogue)
    return out


def wanted(case: Case) -> Tensor:
    """The product in float64 through the dense matrix."""
    return _in_float64(case, case.matrix.to_dense().double(), case.dense.double(), case.epilogue.alpha)


def bound(case: Case) -> Tensor:
    """How far an element may be off."""
    plain = Epilogue(
        beta=abs(case.epilogue.beta),
        addend=None if case.epilogue.addend is None else case.epilogue.addend.abs(),
        bias=None if case.epilogue.bias is None else case.epilogue.bias.abs(),
    )
    gated = case.epilogue.second is Second.MULTIPLIED
    sizes = Case(case.matrix, case.dense, case.layout, replace(plain, addend=None) if gated else plain)
    magnitude = _in_float64(sizes, case.matrix.to_dense().double().abs(), case.dense.double().abs(), 1.0)
    if gated and plain.addend is not None:  # the product may be rounded before its activation and before the gate
        magnitude = 2 * magnitude * plain.addend.double()
    return ROUNDING[case.matrix.dtype] * magnitude + torch.finfo(case.matrix.dtype).tiny


def _in_float64(case: Case, dense_matrix: Tensor, operand: Tensor, alpha: float) -> Tensor:
    columns = case.layout is Layout.COLUMNS
    total = alpha * (dense_matrix @ operand if columns else operand @ dense_matrix.T)
    epilogue = case.epilogue
    gated = epilogue.second is Second.MULTIPLIED
    if epilogue.addend is not None and not gated:
        total = total + epilogue.beta * epilogue.addend.double()
    if epilogue.bias is not None:
        total = total + (epilogue.bias.double()[:, None] if columns else epilogue.bias.double())
    total = ACTIVATIONS[epilogue.activation](total)
    return total * epilogue.addend.double() if gated and epilogue.addend is not None else total

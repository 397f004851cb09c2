"""The adversarial cases of a block-sparse product, as functions of where they run.

The same cases run on the processor (reference, dense) and on a GPU (triton). No hypothesis here: GPU machines often
have pytest alone. Numbers are those of the test plan for block-sparse kernels; what is not in CASES:

    8 bad patterns, 10 memory order, 24 CUDA graphs, 25 streams, compile, autocast: test_adversarial*.py, by themselves
    11 more than 2^31 elements: test_adversarial_gpu.py (needs the memory)
    16 to 20 attention; 27 compile cache and 28 pipeline stress of the sm90 kernels: not of this library yet
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix, UnsupportedInput, linear, matmul, sampled_matmul
from firstlight.kernels.launch import NOTHING, Extras, Request, multiply_now
from firstlight.kernels.product import Activation, Layout

GUARD = 64  # elements of NaN before and after an output; a multiple of 16 bytes in every dtype
# |error| <= this * (|W| @ |x| + |c| + |bias|): one rounding to the output, sums in float32
ROUNDING = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-20, torch.float64: 2**-48}
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: torch.relu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
}


@dataclass(frozen=True, slots=True)
class Where:
    """Where a case runs, e.g. Where('cuda', 'triton', torch.float16)."""

    device: str
    backend: str
    dtype: torch.dtype = torch.float16

    def randn(self, *shape: int, seed: int = 0) -> Tensor:
        """Normal numbers, the same on every device."""
        numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        return numbers.to(self.dtype).to(self.device)

    def matrix(self, mask: Tensor, *, block: int = 32, shape: tuple[int, int] | None = None) -> BlockSparseMatrix:
        """Random values where a [block rows, block columns] mask is True."""
        shape = shape or (mask.shape[0] * block, mask.shape[1] * block)
        return BlockSparseMatrix.from_mask(mask.to(self.device), block=block, values=self.randn(*shape, seed=7))


@dataclass(frozen=True, slots=True)
class Finish:
    """What is done to a product before it is written."""

    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: Activation = Activation.NONE


PLAIN = Finish()
EVERYTHING = Finish(alpha=-0.5, beta=2.0, bias=True)


def right(
    where: Where, w: BlockSparseMatrix, n: int, *, layout: Layout = Layout.TOKENS, finish: Finish = PLAIN
) -> Tensor:
    """Computes into a NaN-filled output between NaN guards and compares every element; returns the output."""
    rows, cols = w.shape
    tokens = layout is Layout.TOKENS
    x = where.randn(*((n, cols) if tokens else (cols, n)), seed=1)
    shape = (n, rows) if tokens else (rows, n)
    c = where.randn(*shape, seed=2) if finish.beta else None
    bias = where.randn(rows, seed=3) if finish.bias else None
    out = guarded(where, w, x, layout=layout, finish=finish, extras=Extras(bias, c))
    exact, magnitude = expected(w, x, layout=layout, finish=finish, extras=Extras(bias, c))
    close(out, exact, magnitude)
    return out


def guarded(
    where: Where, w: BlockSparseMatrix, x: Tensor, *, layout: Layout, finish: Finish = PLAIN, extras: Extras = NOTHING
) -> Tensor:
    """The product in an output that was NaN before, with NaN around it that has to stay."""
    rows = w.shape[0]
    shape = (x.shape[0], rows) if layout is Layout.TOKENS else (*x.shape[:-2], rows, x.shape[-1])
    room = torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=where.dtype, device=where.device)
    out = room[GUARD:-GUARD].view(shape)
    request = Request(layout, w.is_transposed, finish.activation, where.backend, finish.alpha, finish.beta)
    multiply_now(w.pattern, w.values, x, request, extras._replace(out=out))
    assert room[:GUARD].isnan().all(), "written before the output"
    assert room[-GUARD:].isnan().all(), "written past the output"
    return out


def expected(
    w: BlockSparseMatrix, x: Tensor, *, layout: Layout, finish: Finish, extras: Extras
) -> tuple[Tensor, Tensor]:
    """The result in float64 and the sum of magnitudes that bounds its error."""
    dense, operand = w.to_dense().detach().double(), x.double()
    tokens = layout is Layout.TOKENS

    def product(left: Tensor, other: Tensor) -> Tensor:
        return other @ left.mT if tokens else left @ other

    total, size = finish.alpha * product(dense, operand), abs(finish.alpha) * product(dense.abs(), operand.abs())
    if extras.addend is not None:
        total, size = (
            total + finish.beta * extras.addend.double(),
            size + abs(finish.beta) * extras.addend.double().abs(),
        )
    if extras.bias is not None:
        bias = extras.bias.double() if tokens else extras.bias.double()[:, None]
        total, size = total + bias, size + bias.abs()
    return ACTIVATIONS[finish.activation](total), size


def close(out: Tensor, exact: Tensor, magnitude: Tensor) -> None:
    """Every element within the rounding bound of its own row and column: a norm would hide one bad block."""
    limit = ROUNDING[out.dtype] * magnitude + torch.finfo(out.dtype).tiny
    off = (out.double() - exact).abs()
    bad = ~(off <= limit)
    assert not bad.any(), f"{int(bad.sum())} of {bad.numel()} elements off, first at {bad.nonzero()[0].tolist()}"


def nothing_stored(where: Where) -> None:
    """1: no block at all: zeros, or beta * c + bias, and the activation of it."""
    w = where.matrix(torch.zeros(3, 4, dtype=torch.bool))
    assert w.nnz_blocks == 0
    assert (right(where, w, 5) == 0).all()
    right(where, w, 5, finish=EVERYTHING)
    right(where, w, 5, layout=Layout.COLUMNS, finish=Finish(beta=1.0, bias=True, activation=Activation.RELU))


def some_rows_empty(where: Where) -> None:
    """2: first, last and alternating block rows empty; neighbours untouched."""
    for empty in (slice(0, 1), slice(-1, None), slice(0, None, 2)):
        mask = torch.ones(5, 4, dtype=torch.bool)
        mask[empty] = False
        right(where, where.matrix(mask), 33, finish=EVERYTHING)
        right(where, where.matrix(mask), 33, layout=Layout.COLUMNS)


def every_block_stored(where: Where) -> None:
    """3: density 1 equals the dense product."""
    right(where, where.matrix(torch.ones(6, 5, dtype=torch.bool)), 64)
    right(where, where.matrix(torch.ones(6, 5, dtype=torch.bool)), 64, layout=Layout.COLUMNS)


def uneven_rows(where: Where) -> None:
    """4: one full row among empty ones, and rows of 64, 32, 16 ... blocks."""
    one = torch.zeros(16, 64, dtype=torch.bool)
    one[5] = True
    right(where, where.matrix(one), 48)
    falling = torch.arange(64)[None, :] < (64 / torch.arange(1, 17)[:, None] ** 1.5)
    right(where, where.matrix(falling), 48)
    right(where, where.matrix(falling), 48, layout=Layout.COLUMNS)
    right(where, where.matrix(falling).T, 48)


def one_block_in_a_corner(where: Where) -> None:
    """5: a single block, in each corner."""
    for row, col in itertools.product((0, -1), repeat=2):
        mask = torch.zeros(4, 5, dtype=torch.bool)
        mask[row, col] = True
        right(where, where.matrix(mask), 17)


def unsorted_columns(where: Where) -> None:
    """6 and 21: any order of the blocks in a row; canonicalize() gives the bits of the sorted matrix back."""
    w = where.matrix(scattered(6, 8))
    order = torch.cat([
        torch.arange(int(begin), int(end)).flip(0) for begin, end in itertools.pairwise(w.pattern.crow.tolist())
    ])  # fmt: skip
    order = order.to(where.device)
    mixed = BlockSparseMatrix.from_parts(
        w.values[order].contiguous(), w.pattern.crow, w.pattern.col[order].contiguous(), w.shape, allow_unsorted=True
    )
    right(where, mixed, 40)
    right(where, mixed.T, 40)
    x = where.randn(40, w.shape[1])
    sorted_out = guarded(where, w, x, layout=Layout.TOKENS)
    assert torch.equal(guarded(where, mixed.canonicalize(), x, layout=Layout.TOKENS), sorted_out)


def duplicate_columns(where: Where) -> None:
    """7: refused with row and column; summed when allowed."""
    values = where.randn(3, 32, 32)
    crow = torch.tensor([0, 2, 3], device=where.device)
    col = torch.tensor([1, 1, 0], device=where.device)
    with pytest.raises(UnsupportedInput, match="block row 0 stores block column 1 more than once"):
        BlockSparseMatrix.from_parts(values, crow, col, (64, 64))
    w = BlockSparseMatrix.from_parts(values, crow, col, (64, 64), allow_duplicates=True)
    x = where.randn(9, 64, seed=1)
    wide = x.double()
    first = wide[:, 32:] @ (values[0].double() + values[1].double()).T
    size = wide[:, 32:].abs() @ (values[0].double().abs() + values[1].double().abs()).T
    out = linear(x, w, backend=where.backend)
    close(out[:, :32], first, 2 * size)


def ragged_everywhere(where: Where) -> None:
    """9: rows, columns and tokens that no tile divides; nothing past the end is written."""
    for n in (*range(1, 18), 255, 256, 257):
        right(where, where.matrix(scattered(3, 4), shape=(75, 101)), n)
    for n in (1, 15, 16, 17, 255, 257):
        right(where, where.matrix(scattered(3, 4), shape=(75, 101)), n, layout=Layout.COLUMNS, finish=EVERYTHING)
        right(where, where.matrix(scattered(3, 4), shape=(75, 101)).T, n)


def nan_in_an_unused_column(where: Where) -> None:
    """12: a block that is not stored is skipped, not multiplied by zero."""
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[:, 2] = False
    w = where.matrix(mask)
    x = where.randn(20, 128, seed=1)
    clean = guarded(where, w, x, layout=Layout.TOKENS)
    for poison in (math.nan, math.inf):
        dirty = x.clone()
        dirty[:, 64:96] = poison
        assert torch.equal(guarded(where, w, dirty, layout=Layout.TOKENS), clean)
        columns = guarded(where, w, dirty.mT.contiguous(), layout=Layout.COLUMNS)
        assert columns.isfinite().all()


def nan_and_infinity_in_use(where: Where) -> None:
    """13: NaN, and +inf meeting -inf, at the places of the plain product."""
    w = where.matrix(torch.ones(2, 2, dtype=torch.bool))
    w.values[0, 3, 5], w.values[1, 3, 6] = math.inf, -math.inf
    x = where.randn(6, 64, seed=1)
    x[2, 40] = math.nan
    x[4, 5], x[4, 38] = 1.0, 1.0
    out = guarded(where, w, x, layout=Layout.TOKENS)
    exact = x.double() @ w.to_dense().double().T
    assert torch.equal(out.isnan(), exact.isnan())
    assert torch.equal(out.isposinf(), exact.isposinf())
    assert torch.equal(out.isneginf(), exact.isneginf())


def overflow_and_denormals(where: Where) -> None:
    """14: sums beyond float16 become infinite only when rounded; small numbers and -0.0 are kept."""
    w = where.matrix(torch.ones(1, 2, dtype=torch.bool))
    w.values.zero_()
    w.values[0, 0, 0], w.values[1, 0, 0] = 6e4, -6e4  # their products cancel in float32
    w.values[0, 1, 0], w.values[1, 1, 0] = 6e4, 6e4
    w.values[0, 2, 0] = 2.0**-24
    x = torch.zeros(3, 64, dtype=where.dtype, device=where.device)
    x[0, 0], x[0, 32] = 4.0, 4.0
    x[1, 0] = 1.0
    x[2, 0] = -0.0
    out = guarded(where, w, x, layout=Layout.TOKENS)
    assert out[0, 0] == 0
    if where.dtype == torch.float16:
        assert out[0, 1].isposinf()
        assert out[1, 2] == 2.0**-24
    assert (out[2] == 0).all()


def long_cancelling_sum(where: Where) -> None:
    """15: large terms that cancel over a long row: the bound is that of the magnitudes, not a fixed tolerance."""
    cols = 131072 if where.device != "cpu" else 8192
    w = where.matrix(torch.ones(1, cols // 128, dtype=torch.bool), block=128)
    x = where.randn(4, cols, seed=1)
    half = cols // 2
    x[:, half:] = x[:, :half]
    with torch.no_grad():
        w.values[w.values.shape[0] // 2 :] = -w.values[: w.values.shape[0] // 2]
    exact, magnitude = expected(w, x, layout=Layout.TOKENS, finish=PLAIN, extras=Extras())
    close(guarded(where, w, x, layout=Layout.TOKENS), exact, magnitude)


def gradients(where: Where) -> None:
    """22: gradients against float64, both layouts and directions; those of empty rows are exactly zero."""
    mask = scattered(4, 5)
    mask[1] = False
    for turned, layout in itertools.product((False, True), Layout):
        w = where.matrix(mask, shape=(120, 155))
        w = (w.T if turned else w).requires_grad_()
        rows, cols = w.shape
        x = where.randn(*((37, cols) if layout is Layout.TOKENS else (cols, 37)), seed=1).requires_grad_()
        bias = where.randn(rows, seed=3).requires_grad_()
        grad = where.randn(*((37, rows) if layout is Layout.TOKENS else (rows, 37)), seed=4)
        if layout is Layout.TOKENS:
            torch.autograd.backward(linear(x, w, bias, activation="relu", backend=where.backend), grad)
        else:
            torch.autograd.backward(matmul(w, x, bias=bias, activation="relu", backend=where.backend), grad)
        _gradients_are_right(w, x, bias, grad, layout=layout)
    _gradient_of_unused_input(where)


def _gradients_are_right(w: BlockSparseMatrix, x: Tensor, bias: Tensor, grad: Tensor, *, layout: Layout) -> None:
    values, operand = w.values.detach().double().requires_grad_(), x.detach().double().requires_grad_()
    shift = bias.detach().double().requires_grad_()
    dense = w.with_values(values).to_dense()
    tokens = layout is Layout.TOKENS
    pre = operand @ dense.mT + shift if tokens else dense @ operand + shift[:, None]
    # rounding decides the sign of what is nearly zero; the mask is taken from there
    live = (pre.abs() > 1e-2) | (pre == 0)
    torch.autograd.backward(torch.relu(pre), grad.double())
    for found, exact in ((w.values.grad, values.grad), (x.grad, operand.grad), (bias.grad, shift.grad)):
        assert found is not None
        assert exact is not None
        scale = 16 * ROUNDING[found.dtype] * (1 if live.all() else 20)
        assert (found.double() - exact).norm() <= scale * exact.norm()


def _gradient_of_unused_input(where: Where) -> None:
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1], mask[:, 2] = False, False
    w = where.matrix(mask).requires_grad_()
    x = where.randn(8, 96, seed=1).requires_grad_()
    torch.autograd.backward(linear(x, w, backend=where.backend), where.randn(8, 96, seed=2))
    assert x.grad is not None
    assert (x.grad[:, 64:] == 0).all()


def repeatable(where: Where, *, runs: int = 100) -> None:
    """23: the same bits every time, forward and backward, with a row long enough to be split."""
    mask = scattered(6, 160)
    mask[2] = True
    w = where.matrix(mask).requires_grad_()
    x = where.randn(64, w.shape[1], seed=1).requires_grad_()
    grad = where.randn(64, w.shape[0], seed=2)
    first: list[Tensor] = []
    for _ in range(runs):
        w.values.grad = x.grad = None
        out = linear(x, w, backend=where.backend)
        torch.autograd.backward(out, grad)
        assert w.values.grad is not None
        assert x.grad is not None
        found = [out.detach(), w.values.grad, x.grad]
        first = first or found
        assert all(torch.equal(one, other) for one, other in zip(first, found, strict=True))


def metamorphic(where: Where) -> None:
    """26: linear in x, block rows permute with the output, and any block size of one matrix gives one result."""
    from firstlight.kernels.convert import reblock

    w = where.matrix(scattered(4, 4), block=128)
    x, y = where.randn(24, 512, seed=1), where.randn(24, 512, seed=2)
    both = linear(2 * x + y, w, backend=where.backend).double()
    apart = 2 * linear(x, w, backend=where.backend).double() + linear(y, w, backend=where.backend).double()
    _, size = expected(w, 2 * x.abs() + y.abs(), layout=Layout.TOKENS, finish=PLAIN, extras=Extras())
    assert ((both - apart).abs() <= 4 * ROUNDING[where.dtype] * size).all()
    order = torch.tensor([2, 0, 3, 1], device=where.device)
    dense = w.to_dense()
    moved = BlockSparseMatrix.from_dense(dense.view(4, 128, 512)[order].reshape(512, 512), block=128)
    plain = linear(x, w, backend=where.backend)
    assert torch.equal(linear(x, moved, backend=where.backend), plain.view(24, 4, 128)[:, order].reshape(24, 512))
    exact, size = expected(w, x, layout=Layout.TOKENS, finish=PLAIN, extras=Extras())
    for block in (64, 32, 16):
        close(linear(x, reblock(w, block), backend=where.backend), exact, size)


def indices_changed_in_place(where: Where) -> None:
    """29: what was derived from a pattern is derived anew after its indices changed."""
    w = where.matrix(torch.eye(4, dtype=torch.bool))
    right(where, w, 8)
    right(where, w.T, 8)
    with torch.no_grad():
        w.pattern.col.copy_(w.pattern.col.flip(0))
    right(where, w, 8)
    right(where, w.T, 8)


def list_lengths(where: Where) -> None:
    """28, as far as it concerns a product: rows of 0 to 9 blocks, around every pipeline depth."""
    mask = torch.arange(9)[None, :] < torch.arange(10)[:, None]
    right(where, where.matrix(mask), 32)
    right(where, where.matrix(mask).T, 32, layout=Layout.COLUMNS)


CASES: tuple[Callable[[Where], None], ...] = (
    nothing_stored, some_rows_empty, every_block_stored, uneven_rows, one_block_in_a_corner, unsorted_columns,
    duplicate_columns, ragged_everywhere, nan_in_an_unused_column, nan_and_infinity_in_use, overflow_and_denormals,
    long_cancelling_sum, gradients, metamorphic, indices_changed_in_place, list_lengths,
)  # fmt: skip
# 12 cannot hold for a dense copy, which multiplies by zero; documented in dense.py and docs/kernels/library.md
NOT_FOR_DENSE = (nan_in_an_unused_column,)

# 30: every pair of values of block, dtype, operation and finish occurs in one of these
PAIRS: tuple[tuple[int, torch.dtype, str, Finish], ...] = (
    (16, torch.float16, "linear", Finish(bias=True, activation=Activation.GELU)),
    (16, torch.bfloat16, "matmul", Finish(alpha=0.5, beta=-1.0)),
    (16, torch.float32, "transposed", Finish(bias=True, activation=Activation.RELU)),
    (32, torch.float16, "matmul", Finish(bias=True, activation=Activation.SILU)),
    (32, torch.bfloat16, "transposed", PLAIN),
    (32, torch.float32, "linear", Finish(bias=True, activation=Activation.GELU_TANH)),
    (64, torch.float16, "transposed", Finish(alpha=0.5, beta=-1.0)),
    (64, torch.bfloat16, "linear", Finish(bias=True, activation=Activation.RELU)),
    (64, torch.float32, "matmul", PLAIN),
    (128, torch.float16, "linear", PLAIN),
    (128, torch.bfloat16, "matmul", Finish(bias=True, activation=Activation.GELU)),
    (128, torch.float32, "transposed", Finish(bias=True)),
    (16, torch.float16, "sampled", PLAIN),
    (32, torch.bfloat16, "sampled", PLAIN),
    (64, torch.float32, "sampled", PLAIN),
    (128, torch.float16, "sampled", PLAIN),
)


def pair(where: Where, *, block: int, operation: str, finish: Finish) -> None:
    """One of PAIRS."""
    w = where.matrix(scattered(3, 5), block=block, shape=(3 * block - 3, 5 * block - 8))
    if operation == "sampled":
        _sampled(where, w)
        return
    layout = Layout.COLUMNS if operation == "matmul" else Layout.TOKENS
    right(where, w.T if operation == "transposed" else w, 65, layout=layout, finish=finish)


def _sampled(where: Where, w: BlockSparseMatrix) -> None:
    rows, cols = w.shape
    for a, b in (
        (where.randn(rows, 70, seed=1), where.randn(cols, 70, seed=2).mT),
        (where.randn(70, rows, seed=1).mT, where.randn(70, cols, seed=2)),
    ):
        found = sampled_matmul(a, b, w, alpha=0.5, backend=where.backend)
        turned = sampled_matmul(b.mT, a.mT, w.T, alpha=0.5, backend=where.backend)
        stored = w.with_values(torch.ones_like(w.values)).to_dense().double()
        exact, size = 0.5 * (a.double() @ b.double()) * stored, (a.double().abs() @ b.double().abs()) * stored
        close(found.to_dense(), exact, size)
        close(turned.to_dense().mT, exact, size)


def scattered(rows: int, cols: int, *, seed: int = 5) -> Tensor:
    """About half of the blocks, the same on every run."""
    return torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < 0.5


def name_of(case: Any) -> str:
    """The name of a case in a test id."""
    return str(getattr(case, "__name__", case))

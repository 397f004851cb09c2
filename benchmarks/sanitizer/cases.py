"""Small products, attentions and gradients for compute-sanitizer, each held against float64 on the processor.

Two thread blocks do all the work, however large the GPU is: each then walks several items, its rings go round more than
once, and racecheck, which follows every access of every thread, comes to an end. Outputs hold NaN before a call.
The kernels are compiled with line numbers and without the debug macro, whose bounded waits would trap here.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from benchmarks.sanitizer.attention_cases import (
    AttentionCase,
    GradientCase,
    attentions,
    gradients,
    run_attention,
    run_gradient,
)
from benchmarks.sanitizer.list_cases import ListsCase, MaskListsCase, lists, masks, run_lists, run_masks
from benchmarks.sanitizer.where import DRY, Where, normal
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.pattern import BLOCKS
from firstlight.kernels.product import Activation, Epilogue, Layout, Second
from firstlight.kernels.reference import activated
from firstlight.kernels.sm90 import attention, gradient, loaded, multiply_plan, sample_plan
from firstlight.kernels.sm90.cache import key_of, read_entry, write_entry
from firstlight.kernels.sm90.compile import Compiled, Variant, compile_program, find_compiler, read_program
from firstlight.kernels.sm90.multiply_plan import tile_of
from firstlight.kernels.sm90.problem import Problem
from firstlight.kernels.sm90.variants import PITCH, TURN, Build, multiply_variant, sample_variant

WHAT = ("multiply", "epilogue", "sample", "turn", "pitch", "lists", "mask_lists", "attention", "gradient")
THREAD_BLOCKS = 2
ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # of the sum of magnitudes; sums are in float32
LONG = 1024  # tokens of a sampled product that is cut into portions
TOKENS, COLUMNS = Layout.TOKENS, Layout.COLUMNS


@dataclass(frozen=True, slots=True)
class ProductCase:
    """A product, e.g. block 16, by token, 600 of them, one list of 12 steps that is cut into portions."""

    block: int
    layout: Layout
    n: int
    pattern: str = "scattered"  # scattered, one row, uneven
    what: str = "multiply"
    turned: bool = False
    bf16: bool = False
    finish: bool = False  # alpha, addend, bias and an activation
    activation: str = "gelu"  # where it is finished
    gated: bool = False  # multiplied by another tensor after the activation
    batch: int = 0  # 0: none
    infinite: bool = False
    cols: int = 0  # 0: by the pattern

    @property
    def id(self) -> str:
        """E.g. multiply/16/tokens/n40/one row/turned/bf16."""
        words = [self.what, str(self.block), self.layout.value, f"n{self.n}", self.pattern.replace(" ", "-")]
        words += [name for name in ("turned", "bf16", "finish", "infinite") if getattr(self, name)]
        words += [f"batch{self.batch}"] if self.batch else []
        words += [f"cols{self.cols}"] if self.cols else []
        words += [self.activation] if self.activation != "gelu" else []
        words += ["gated"] if self.gated else []
        return "/".join(words)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.bf16 else torch.float16

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compiled for it."""
        problem = self.problem
        build = Build(self.block, self.bf16, problem.tokens, self.turned, problem.short_rows)
        kernel = multiply_variant(build, tile_of(problem, THREAD_BLOCKS))
        if problem.widens_x or problem.widens_out:
            return kernel, PITCH
        return (kernel, TURN) if problem.turns_x else (kernel,)

    @property
    def problem(self) -> Problem:
        """As the plan sees it."""
        w = _matrix(self)
        rows, cols = reversed(w.shape) if self.turned else w.shape
        return Problem(
            rows, cols, self.block, w.nnz_blocks, self.n, self.batch or 1, self.layout is TOKENS, self.turned,
            self.bf16, device=0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleCase:
    """A product at stored blocks, e.g. block 64, both operands by token, summed over 1024 tokens in portions."""

    block: int
    layout: Layout
    n: int
    bf16: bool = False
    what: str = "sample"

    @property
    def id(self) -> str:
        return f"sample/{self.block}/{self.layout.value}/n{self.n}" + ("/bf16" if self.bf16 else "")

    @property
    def variants(self) -> tuple[Variant, ...]:
        by_token = self.layout is TOKENS and self.block >= 64
        kernel = sample_variant(self.block, bf16=int(self.bf16), by_token=int(by_token))
        return (kernel, TURN) if self.layout is TOKENS and not by_token else (kernel,)


Case = ProductCase | SampleCase | AttentionCase | GradientCase | ListsCase | MaskListsCase


# -------------------------------------------------------------------------------------------------------------- which


def cases(what: tuple[str, ...]) -> tuple[Case, ...]:
    """The cases of some kernels, taken in turn, each kernel's most different ones first: time may run out."""
    makers: dict[str, Callable[[], Iterator[Case]]] = {
        "multiply": _products, "epilogue": _epilogues, "sample": _samples, "turn": _turns, "pitch": _pitches,
        "lists": lists, "mask_lists": masks, "attention": attentions, "gradient": gradients,
    }  # fmt: skip
    columns = [list(makers[name]()) for name in WHAT if name in what]
    rows = itertools.zip_longest(*columns)
    return tuple(case for row in rows for case in row if case is not None)


def _products() -> Iterator[Case]:
    blocks = tuple(reversed(BLOCKS)) if BLOCKS[0] < BLOCKS[-1] else BLOCKS
    plain = [ProductCase(block, TOKENS, 600) for block in blocks]
    yield from plain
    yield from (ProductCase(block, layout, 512) for block in (128, 64) for layout in (TOKENS, COLUMNS))  # clusters
    yield from (ProductCase(block, COLUMNS, 40, "one row") for block in blocks)  # narrow tiles, cut into portions
    yield from (replace(case, turned=True) for case in plain)
    yield from (ProductCase(block, COLUMNS, 600, finish=True) for block in blocks)
    yield from (ProductCase(block, TOKENS, 40, "one row", turned=True) for block in blocks)
    yield from (ProductCase(block, COLUMNS, 72, batch=3) for block in blocks)
    yield from (ProductCase(block, TOKENS, 256, "uneven", finish=True) for block in blocks)  # wide tiles, in portions
    yield from (ProductCase(block, COLUMNS, 512, "uneven", finish=True, turned=True) for block in (128, 64))
    yield from (ProductCase(block, layout, 72, infinite=True) for block in (16, 32) for layout in (TOKENS, COLUMNS))
    yield from (ProductCase(block, COLUMNS, 600, turned=True) for block in blocks)
    yield from (ProductCase(block, TOKENS, 40, finish=True, bf16=True) for block in blocks)
    yield from (ProductCase(block, COLUMNS, 600, bf16=True) for block in blocks)


def _epilogues() -> Iterator[Case]:
    """Every activation with a gate, and with an addend where sums are put together from portions."""
    for block, activation in (
        (128, "silu"),
        (64, "relu"),
        (32, "gelu_tanh"),
        (16, "none"),
        (64, "gelu"),
        (128, "gelu"),
    ):
        plain = ProductCase(block, TOKENS, 520, what="epilogue", finish=True, activation=activation)
        yield replace(plain, gated=True, bf16=block == 64)
        yield replace(plain, pattern="uneven")


def _samples() -> Iterator[Case]:
    yield from (SampleCase(block, layout, 200) for layout in (TOKENS, COLUMNS) for block in (128, 16, 64, 32))
    yield from (SampleCase(block, layout, LONG) for layout, block in ((TOKENS, 128), (COLUMNS, 32)))
    yield from (SampleCase(block, TOKENS, 200, bf16=True) for block in (64, 16))


def _pitches() -> Iterator[Case]:
    """Columns that TMA cannot read or write, or reads slowly."""
    for n, block in ((75, 128), (603, 64), (601, 128), (77, 16), (301, 32), (600, 64)):
        yield ProductCase(block, COLUMNS, n, what="pitch", finish=n == 601)


def _turns() -> Iterator[Case]:
    for cols, block in ((101, 32), (104, 16), (200, 32), (75, 16)):
        yield ProductCase(block, TOKENS, 70 if block == 16 else 330, what="turn", cols=cols)


# ---------------------------------------------------------------------------------------------------------------- run


def run_case(case: Case, where: Where) -> str:
    """What is wrong with the result, in words; empty: nothing."""
    if isinstance(case, ProductCase):
        return _run_product(case, where)
    if isinstance(case, SampleCase):
        return _run_sample(case, where)
    if isinstance(case, ListsCase):
        return run_lists(case, where)
    if isinstance(case, MaskListsCase):
        return run_masks(case, where)
    return run_attention(case, where) if isinstance(case, AttentionCase) else run_gradient(case, where)


def _matrix(case: ProductCase | SampleCase) -> BlockSparseMatrix:
    block = case.block
    step = max(64, block)
    pattern = case.pattern if isinstance(case, ProductCase) else "scattered"
    cols = (case.cols if isinstance(case, ProductCase) else 0) or {"scattered": 10 * step - 8}.get(pattern, 50 * step)
    rows = 128 if pattern == "one row" else 376
    if isinstance(case, SampleCase) and case.n >= LONG:
        rows, cols = 120, 248  # so few places that the sum is cut
    height, width = -(-rows // block), -(-cols // block)
    places = torch.rand(height, width, generator=torch.Generator().manual_seed(block)) < 0.4
    if pattern == "one row":
        places[0] = True
    elif pattern == "uneven":
        places = torch.zeros_like(places)
        places[0], places[-1, 0] = True, True
    elif height > 1:
        places[height // 2] = False
    dtype = torch.bfloat16 if case.bf16 else torch.float16
    return BlockSparseMatrix.from_mask(places, block=block, values=normal(rows, cols, dtype=dtype, seed=7))


def _run_product(case: ProductCase, where: Where) -> str:
    forward = _matrix(case)
    w = forward.T if case.turned else forward
    rows, cols = w.shape
    shape, out_shape = ((case.n, cols), (case.n, rows)) if case.layout is TOKENS else ((cols, case.n), (rows, case.n))
    batch = (case.batch,) if case.batch else ()
    x = normal(*batch, *shape, dtype=case.dtype, seed=1)
    if case.infinite:
        flat = x.view(-1)
        flat[3], flat[x.numel() // 2], flat[-5] = math.inf, math.nan, -math.inf
    given = Epilogue()
    if case.finish:
        addend, bias = normal(*batch, *out_shape, dtype=case.dtype, seed=2), normal(rows, dtype=case.dtype, seed=3)
        second = Second.MULTIPLIED if case.gated else Second.ADDED
        given = Epilogue(-0.5, 1.0 if case.gated else 2.0, addend, bias, Activation(case.activation), second)
    found = _multiplied(case, where, x, given)
    if case.infinite:
        return _same_kind(found, _multiplied(case, DRY, x, given))
    dense, wide = w.to_dense().double(), x.double()
    exact, size = (
        other @ left.mT if case.layout is TOKENS else left @ other
        for left, other in ((dense, wide), (dense.abs(), wide.abs()))
    )
    if given.addend is not None and given.bias is not None:
        shift = given.bias.double() if case.layout is TOKENS else given.bias.double()[:, None]
        other = given.addend.double()
        before = given.alpha * exact + shift + (0.0 if case.gated else given.beta * other)
        size = abs(given.alpha) * size + shift.abs() + (0.0 if case.gated else given.beta * other.abs())
        exact = activated(before, given.activation) * (other if case.gated else 1.0)
        size = size * other.abs() if case.gated else size
    return _off(found, exact, size)


def _multiplied(case: ProductCase, where: Where, x: Tensor, given: Epilogue) -> Tensor:
    """What a backend writes over NaN."""
    matrix = _matrix(case).to(device=where.device)
    matrix = matrix.T if case.turned else matrix
    shape = list(x.shape)
    shape[-1 if case.layout is TOKENS else -2] = matrix.shape[0]
    out = torch.full(shape, math.nan, dtype=case.dtype, device=where.device)
    addend, bias = (None if each is None else each.to(where.device) for each in (given.addend, given.bias))
    there = replace(given, addend=addend, bias=bias)
    if case.what == "pitch" and where.device != "cpu":
        _poison(where.device)
    where.products.multiply(matrix.index, matrix.values, x.to(where.device), out, layout=case.layout, epilogue=there)
    return out.cpu()


def _poison(device: str) -> None:
    """NaN in the memory that a call will take for its copies: initcheck does not see what the copy engine writes there,
    and calls it not written; whoever reads what nobody wrote now gets NaN."""
    taken = [torch.full((bytes_ // 4,), math.nan, device=device) for bytes_ in (*(1 << 19,) * 8, 1 << 23, 1 << 24)]
    del taken


def _same_kind(found: Tensor, wanted: Tensor) -> str:
    """Infinities and NaN reach the rows that store their column and no others, as in the reference."""
    tests = (torch.isnan, torch.isposinf, torch.isneginf)
    bad = sum(int((test(found) != test(wanted)).sum()) for test in tests)
    return f"{bad} elements are of another kind than the reference's" if bad else ""


def _run_sample(case: SampleCase, where: Where) -> str:
    w = _matrix(case)
    a, b = (normal(size, case.n, dtype=w.dtype, seed=size) for size in w.shape)
    given = (a, b) if case.layout is COLUMNS else (a.mT.contiguous(), b.mT.contiguous())
    there, (left, right) = w.to(device=where.device), (each.to(where.device) for each in given)
    values = torch.full_like(there.values, math.nan)
    where.products.sample(there.pattern.forward, left, right, values, layout=case.layout, alpha=1.0)
    stored = w.with_values(torch.ones_like(w.values)).to_dense().double()
    exact, size = a.double() @ b.double().mT * stored, a.double().abs() @ b.double().abs().mT
    return _off(w.with_values(values.cpu()).to_dense(), exact, size)


def _off(found: Tensor, exact: Tensor, size: Tensor) -> str:
    bound = ROUNDING[found.dtype] * size + torch.finfo(found.dtype).tiny
    bad = ~((found.double() - exact).abs() <= bound)  # NaN is bad too
    return f"{int(bad.sum())} of {bad.numel()} elements off, first {bad.nonzero()[0].tolist()}" if bad.any() else ""


# ------------------------------------------------------------------------------------------------------------ compile


def with_lines(variant: Variant, **_: Any) -> Compiled:
    """The kernel with line numbers, otherwise as it is; kept on disk beside the others."""
    program, compiler = replace(read_program(variant), debug=True), find_compiler()
    key = key_of(program, compiler)
    found = read_entry(key)
    if found is None:
        found = compile_program(program, compiler)
        try:
            write_entry(key, found)
        except OSError:
            pass  # compiled again by the next process
    return found


def compile_with_lines(variant: Variant) -> tuple[str, float, str]:
    """(kernel, seconds, error), for a pool's child; needs no GPU."""
    began = time.perf_counter()
    try:
        with_lines(variant)
        said = ""
    except Exception as error:  # noqa: BLE001 it says so again when it is launched
        said = f"{type(error).__name__}: {error}"[:300]
    return str(variant), time.perf_counter() - began, said


def use_lines_and_two_thread_blocks() -> None:
    """In this process: the plans take kernels with line numbers and a GPU of two multiprocessors."""
    places: list[tuple[Any, str, Any]] = [(loaded, "built", with_lines)]
    for module in (multiply_plan, sample_plan, attention, gradient):
        places.append((module, "multiprocessors", lambda _device: THREAD_BLOCKS))
    for module, name, value in places:
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, value)

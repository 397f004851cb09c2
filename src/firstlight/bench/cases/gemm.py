"""Matrix products: sizes in fp16, every precision at 8192, batches of small ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from firstlight.bench import operator_counts
from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.cases import data, low_precision
from firstlight.bench.cases.needs import (
    FAST_FP64,
    bf16_needs,
    fp4_needs,
    fp8_needs,
    int8_needs,
    tf32_needs,
)
from firstlight.bench.cases.settings import settings_for, under
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (1024, 2048, 4096, 8192, 16384)
LARGE = 8192


@dataclass(frozen=True, slots=True)
class Product:
    """[m, k] times [k, n] in one dtype, `batch` of them; both operands row-major."""

    case_id: str
    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1


def cases(place: Place) -> tuple[Case, ...]:
    """The size sweep, the precisions and the batched products."""
    return (*_sizes(), *_precisions(place), *_batched(place))


def _sizes() -> tuple[Case, ...]:
    sweep = tuple(product_case("fp16", size, size, size) for size in SIZES[:-1])
    return (*sweep, product_case("fp16", 16384, 16384, 16384, effort=Effort.STANDARD))


def _precisions(place: Place) -> tuple[Case, ...]:
    # At 8192 a GeForce needs 0.65 s for one fp64 product.
    fp64 = LARGE if place.capability in FAST_FP64 else LARGE // 2
    square = (LARGE, LARGE, LARGE)
    return (
        product_case("bf16", *square, needs=bf16_needs(place)),
        product_case("tf32", *square, needs=tf32_needs(place)),
        product_case("fp32", *square, effort=Effort.STANDARD),
        product_case("fp64", fp64, fp64, fp64, effort=Effort.STANDARD),
        low_precision.fp8_case(LARGE, low_precision.Sums.FAST, needs=fp8_needs(place)),
        low_precision.fp8_case(LARGE, low_precision.Sums.FP32, needs=fp8_needs(place)),
        low_precision.int8_case(LARGE, needs=int8_needs(place)),
        low_precision.nvfp4_case(LARGE, needs=fp4_needs(place)),
    )


def _batched(place: Place) -> tuple[Case, ...]:
    return (
        batched_case("fp16", 32, size=1024),
        batched_case("bf16", 32, size=1024, needs=bf16_needs(place), effort=Effort.STANDARD),
        batched_case("tf32", 32, size=1024, needs=tf32_needs(place), effort=Effort.STANDARD),
    )


def product_case(
    dtype: str, m: int, n: int, k: int, *, effort: Effort = Effort.QUICK, needs: str = "", devices: str = "cuda"
) -> Case:
    """One product, e.g. gemm/fp16/8192x8192x8192."""
    case_id = f"gemm/{dtype}/{m}x{n}x{k}"
    work = operator_counts.gemm(
        m, n, k, in_bytes=operator_counts.IN_BYTES[dtype], out_bytes=operator_counts.OUT_BYTES[dtype]
    )
    return Case(
        id=case_id,
        family="gemm",
        params=(("m", str(m)), ("n", str(n)), ("k", str(k)), ("layout", "row x row"), ("accumulate", _sums(dtype))),
        dtype=dtype,
        work=work,
        peak=dtype,
        prepare=partial(prepare_product, Product(case_id, dtype, m, n, k)),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[dtype],
        least_effort=effort,
        devices=(devices,),
        needs=needs,
    )


def batched_case(
    dtype: str, batch: int, *, size: int, effort: Effort = Effort.QUICK, needs: str = "", devices: str = "cuda"
) -> Case:
    """`batch` products of one size, e.g. bmm/fp16/32x1024x1024x1024."""
    case_id = f"bmm/{dtype}/{batch}x{size}x{size}x{size}"
    width = operator_counts.IN_BYTES[dtype]
    work = operator_counts.gemm(size, size, size, in_bytes=width, out_bytes=width, batch=batch)
    return Case(
        id=case_id,
        family="bmm",
        params=(
            ("batch", str(batch)),
            *((name, str(size)) for name in ("m", "n", "k")),
            ("layout", "row x row"),
            ("accumulate", _sums(dtype)),
        ),
        dtype=dtype,
        work=work,
        peak=dtype,
        prepare=partial(prepare_product, Product(case_id, dtype, size, size, size, batch)),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[dtype],
        least_effort=effort,
        devices=(devices,),
        needs=needs,
    )


def prepare_product(product: Product, place: Place, sets: int) -> Prepared:
    """Buffers and calls of a product; the check recomputes 64 x 64 spread elements in a wider type."""
    import torch

    multiply = torch.bmm if product.batch > 1 else torch.mm
    operands = []
    for part in range(sets):
        random = data.source(product.case_id, place, part=part)
        lead = (product.batch,) if product.batch > 1 else ()
        left = data.normal((*lead, product.m, product.k), product.dtype, random)
        right = data.normal((*lead, product.k, product.n), product.dtype, random, std=product.k**-0.5)
        out = torch.empty((*lead, product.m, product.n), dtype=left.dtype, device=left.device)
        operands.append((left, right, out))
    settings = settings_for(product.dtype)
    calls = tuple(under(settings, partial(multiply, left, right, out=out)) for left, right, out in operands)

    def check() -> float:
        left, right, out = operands[0]
        data.poison(out)
        calls[0]()
        if product.batch > 1:
            some = data.spread(product.batch, place, count=4)
            return max(product_error(left[i], right[i], out[i], place=place) for i in some.tolist())
        return product_error(left, right, out, place=place)

    return Prepared(calls, check)


def product_error(left: Tensor, right: Tensor, out: Tensor, *, place: Place) -> float:
    """Error of spread elements of left @ right; fp64 is held against exact sums."""
    import torch

    if left.dtype is torch.float64:
        return _exact_sum_error(left, right, out, place=place)
    rows, columns = data.spread(out.shape[0], place), data.spread(out.shape[1], place)
    wanted = left[rows].double() @ right[:, columns].double()
    return data.relative_error(out[rows][:, columns], wanted)


def _exact_sum_error(left: Tensor, right: Tensor, out: Tensor, *, place: Place) -> float:
    """fp64 against sums without rounding: math.fsum over a few spread elements."""
    import math

    import torch

    rows, columns = data.spread(out.shape[0], place, count=6), data.spread(out.shape[1], place, count=6)
    lefts, rights = left[rows].tolist(), right[:, columns].t().tolist()
    wanted = [[math.fsum(x * y for x, y in zip(a, b, strict=True)) for b in rights] for a in lefts]
    return data.relative_error(out[rows][:, columns].cpu(), torch.tensor(wanted, dtype=torch.float64))


def _sums(dtype: str) -> str:
    return {"fp64": "fp64"}.get(dtype, "fp32")

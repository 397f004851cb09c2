"""Products below 16 bits: fp8 and nvfp4 through torch._scaled_mm, int8 through torch._int_mm.

Inputs are normal numbers scaled to their largest magnitude and then quantised, with more than 200 byte values in use:
data that collapsed to one constant draws less power and reads as a faster card. The check multiplies the quantised
numbers themselves, so it judges the kernel and not the format.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING

from firstlight.bench import operator_counts
from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.cases import data, nvfp4
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEAST_BYTE_VALUES = 200
FP8_LARGEST = 448.0  # of e4m3
INT8_STD = 40.0  # 127 lies at 3.2 standard deviations


class Sums(enum.Enum):
    """How an fp8 product is summed on Hopper: FAST keeps partial sums in the tensor core's own short registers."""

    FAST = "fast"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class Square:
    """A square product of one size."""

    case_id: str
    size: int
    sums: Sums = Sums.FP32


def fp8_case(size: int, sums: Sums, *, needs: str = "", devices: str = "cuda") -> Case:
    """e4m3 in, bf16 out, e.g. gemm/fp8/8192x8192x8192; the id of the other summation ends in /fp32-sums."""
    case_id = f"gemm/fp8/{size}x{size}x{size}" + ("" if sums is Sums.FAST else "/fp32-sums")
    scales = 2 * 4  # one fp32 scale for each operand
    return _case(
        "fp8",
        Square(case_id, size, sums),
        devices=devices,
        needs=needs,
        extra_bytes=scales,
        effort=Effort.QUICK if sums is Sums.FAST else Effort.RIGOROUS,
    )


def int8_case(size: int, *, needs: str = "", devices: str = "cuda") -> Case:
    """int8 in, int32 out, e.g. gemm/int8/8192x8192x8192."""
    square = Square(f"gemm/int8/{size}x{size}x{size}", size)
    return _case("int8", square, devices=devices, needs=needs, effort=Effort.STANDARD)


def nvfp4_case(size: int, *, needs: str = "", devices: str = "cuda") -> Case:
    """e2m1 with one e4m3 scale per 16 elements in, bf16 out, e.g. gemm/nvfp4/8192x8192x8192."""
    square = Square(f"gemm/nvfp4/{size}x{size}x{size}", size)
    return _case("nvfp4", square, devices=devices, needs=needs, effort=Effort.QUICK)


def _case(dtype: str, square: Square, *, devices: str, needs: str, effort: Effort, extra_bytes: int = 0) -> Case:
    size = square.size
    work = operator_counts.gemm(
        size, size, size, in_bytes=operator_counts.IN_BYTES[dtype], out_bytes=operator_counts.OUT_BYTES[dtype]
    )
    prepare = {"fp8": prepare_fp8, "int8": prepare_int8, "nvfp4": prepare_nvfp4}[dtype]
    accumulate = {"fp8": square.sums.value, "int8": "int32", "nvfp4": "fp32"}[dtype]
    return Case(
        id=square.case_id,
        family="gemm",
        params=(
            *((name, str(size)) for name in ("m", "n", "k")),
            ("layout", "row x column"),
            ("accumulate", accumulate),
            ("out", "int32" if dtype == "int8" else "bf16"),
        ),
        dtype=dtype,
        work=work,
        peak="fp4" if dtype == "nvfp4" else dtype,
        prepare=partial(prepare, square),
        set_bytes=work.bytes + extra_bytes,
        tolerance=data.TOLERANCE[dtype],
        least_effort=effort,
        devices=(devices,),
        needs=needs,
    )


def prepare_fp8(square: Square, place: Place, sets: int) -> Prepared:
    """Per-tensor scaled e4m3 operands, the second one column-major as the tensor cores want it."""
    import torch

    operands = []
    for part in range(sets):
        random = data.source(square.case_id, place, part=part)
        left, left_scale = _fp8(square.size, random, std=1.0)
        right, right_scale = _fp8(square.size, random, std=square.size**-0.5)
        out = torch.empty((square.size, square.size), dtype=torch.bfloat16, device=place.device)
        operands.append((left, right.t(), left_scale, right_scale, out))
    multiply = partial(torch._scaled_mm, out_dtype=torch.bfloat16, use_fast_accum=square.sums is Sums.FAST)
    calls = tuple(partial(multiply, a, b, x, y, out=out) for a, b, x, y, out in operands)

    def check() -> float:
        left, right, left_scale, right_scale, out = operands[0]
        data.poison(out)
        calls[0]()
        rows, columns = data.spread(square.size, place), data.spread(square.size, place)
        a = left.view(torch.uint8)[rows].view(torch.float8_e4m3fn).double() * left_scale
        b = right.t().view(torch.uint8)[columns].view(torch.float8_e4m3fn).double() * right_scale
        return data.relative_error(out[rows][:, columns], a @ b.t())

    return Prepared(calls, check)


def _fp8(size: int, random: torch.Generator, *, std: float) -> tuple[Tensor, Tensor]:
    import torch

    wide = data.normal((size, size), "fp32", random, std=std)
    scale = wide.abs().amax() / FP8_LARGEST
    narrow = wide.div_(scale).to(torch.float8_e4m3fn)
    require_varied_bytes(narrow.view(torch.uint8), "fp8")
    return narrow, scale


def prepare_int8(square: Square, place: Place, sets: int) -> Prepared:
    """Rounded normal numbers; the sums of 8192 products stay far inside int32."""
    import torch

    operands = []
    for part in range(sets):
        random = data.source(square.case_id, place, part=part)
        left, right = _int8(square.size, random), _int8(square.size, random)
        out = torch.empty((square.size, square.size), dtype=torch.int32, device=place.device)
        operands.append((left, right.t(), out))
    calls = tuple(partial(torch._int_mm, left, right, out=out) for left, right, out in operands)

    def check() -> float:
        left, right, out = operands[0]
        data.poison(out)
        calls[0]()
        rows, columns = data.spread(square.size, place), data.spread(square.size, place)
        return data.relative_error(out[rows][:, columns], left[rows].double() @ right[:, columns].double())

    return Prepared(calls, check)


def _int8(size: int, random: torch.Generator) -> Tensor:
    import torch

    wide = data.normal((size, size), "fp32", random, std=INT8_STD)
    narrow = wide.round_().clamp_(-127, 127).to(torch.int8)
    require_varied_bytes(narrow.view(torch.uint8), "int8")
    return narrow


def prepare_nvfp4(square: Square, place: Place, sets: int) -> Prepared:
    """Blocks of 16 with e4m3 scales in the tiled order that cuBLAS reads."""
    import torch

    if not hasattr(torch, "float4_e2m1fn_x2"):
        raise Unavailable(f"torch {torch.__version__} has no float4_e2m1fn_x2")
    operands = []
    for part in range(sets):
        random = data.source(square.case_id, place, part=part)
        left = nvfp4.quantise(data.normal((square.size, square.size), "fp32", random))
        right = nvfp4.quantise(data.normal((square.size, square.size), "fp32", random))
        require_varied_bytes(left.packed, "nvfp4")
        out = torch.empty((square.size, square.size), dtype=torch.bfloat16, device=place.device)
        operands.append((left, right, out))

    def multiply(left: nvfp4.Blocks, right: nvfp4.Blocks, out: Tensor) -> None:
        pair = torch.float4_e2m1fn_x2
        torch._scaled_mm(
            left.packed.view(pair),
            right.packed.view(pair).t(),
            left.tiled_scales,
            right.tiled_scales,
            out_dtype=torch.bfloat16,
            out=out,
        )

    calls = tuple(partial(multiply, left, right, out) for left, right, out in operands)

    def check() -> float:
        left, right, out = operands[0]
        data.poison(out)
        calls[0]()
        rows, columns = data.spread(square.size, place), data.spread(square.size, place)
        wanted = nvfp4.dequantise(left, rows) @ nvfp4.dequantise(right, columns).t()
        return data.relative_error(out[rows][:, columns], wanted)

    return Prepared(calls, check)


def require_varied_bytes(values: Tensor, what: str) -> None:
    """Refuse quantised data that collapsed: more than 200 different byte values must occur."""
    import torch

    distinct = int(torch.unique(values.flatten()[: 1 << 20]).numel())
    assert distinct > LEAST_BYTE_VALUES, f"{what} data has {distinct} byte values; more than {LEAST_BYTE_VALUES} wanted"

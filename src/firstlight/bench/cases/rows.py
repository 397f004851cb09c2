"""Linear layers, layer normalisation and softmax: what a transformer does to rows."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import operator_counts
from firstlight.bench.case import Cache, Case, Effort, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import bf16_needs
from firstlight.bench.cases.settings import settings_for, under
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

LAYERNORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Linear:
    """`rows` vectors of `inputs` numbers to `outputs` numbers, with bias."""

    case_id: str
    dtype: str
    rows: int
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Rows:
    """An operation along the last dimension of a tensor."""

    case_id: str
    dtype: str
    shape: tuple[int, ...]


def cases(place: Place) -> tuple[Case, ...]:
    """Linear layers (few rows cold and warm), layernorm, softmax."""
    bf16 = bf16_needs(place)
    return (
        linear_case("fp16", 32, 4096, 4096, effort=Effort.STANDARD),
        linear_case("fp16", 32, 4096, 11008),
        linear_case("fp16", 32, 4096, 4096, cache=Cache.WARM, effort=Effort.STANDARD),
        linear_case("fp16", 32, 4096, 11008, cache=Cache.WARM, effort=Effort.STANDARD),
        linear_case("fp16", 4096, 4096, 4096),
        linear_case("bf16", 4096, 4096, 4096, effort=Effort.STANDARD, needs=bf16),
        linear_case("fp16", 16384, 4096, 4096, effort=Effort.STANDARD),
        layernorm_case("fp16", (32, 512, 4096)),
        layernorm_case("fp16", (8, 2048, 4096), effort=Effort.STANDARD),
        layernorm_case("fp16", (4, 4096, 8192), effort=Effort.STANDARD),
        softmax_case("fp16", (32, 12, 512, 512)),
        softmax_case("fp16", (8, 32, 2048, 2048), effort=Effort.STANDARD),
        softmax_case("fp16", (4, 32, 4096, 4096), effort=Effort.STANDARD),
    )


def linear_case(
    dtype: str,
    rows: int,
    inputs: int,
    outputs: int,
    *,
    cache: Cache = Cache.COLD,
    effort: Effort = Effort.QUICK,
    needs: str = "",
) -> Case:
    """One linear layer, e.g. linear/fp16/m32-k4096-n11008; the id of a row with warm weights ends in /warm."""
    case_id = f"linear/{dtype}/m{rows}-k{inputs}-n{outputs}" + ("/warm" if cache is Cache.WARM else "")
    work = operator_counts.linear(rows, inputs, outputs, element_bytes=data.ELEMENT_BYTES[dtype])
    return Case(
        id=case_id,
        family="linear",
        params=(("m", str(rows)), ("k", str(inputs)), ("n", str(outputs)), ("bias", "yes"), ("accumulate", "fp32")),
        dtype=dtype,
        work=work,
        peak=dtype,
        prepare=partial(prepare_linear, Linear(case_id, dtype, rows, inputs, outputs)),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[dtype],
        cache=cache,
        least_effort=effort,
        needs=needs,
    )


def prepare_linear(case: Linear, place: Place, sets: int) -> Prepared:
    """Activations of unit variance, weights of 1/sqrt(inputs), a bias of 0.1."""
    from torch.nn.functional import linear

    inputs: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        inputs.append(
            (
                data.normal((case.rows, case.inputs), case.dtype, random),
                data.normal((case.outputs, case.inputs), case.dtype, random, std=case.inputs**-0.5),
                data.normal((case.outputs,), case.dtype, random, std=0.1),
            )
        )
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    settings = settings_for(case.dtype)
    calls = tuple(
        data.holding(under(settings, partial(linear, *each)), box) for each, box in zip(inputs, boxes, strict=True)
    )

    def check() -> float:
        shape = (case.rows, case.outputs)
        out = data.call_on_poison(calls[0], boxes[0], shape=shape, dtype=case.dtype, place=place)
        x, weight, bias = inputs[0]
        rows, columns = data.spread(case.rows, place), data.spread(case.outputs, place)
        wanted = x[rows].double() @ weight[columns].double().t() + bias[columns].double()
        return data.relative_error(out[rows][:, columns], wanted)

    return Prepared(calls, check)


def layernorm_case(dtype: str, shape: tuple[int, ...], *, effort: Effort = Effort.QUICK, devices: str = "cuda") -> Case:
    """Layer normalisation over the last dimension with scale and shift, e.g. layernorm/fp16/32x512x4096."""
    case_id = f"layernorm/{dtype}/{_by(shape)}"
    work = operator_counts.layernorm(math.prod(shape[:-1]), shape[-1], element_bytes=data.ELEMENT_BYTES[dtype])
    return _rows_case(Rows(case_id, dtype, shape), work, effort=effort, devices=devices)


def softmax_case(dtype: str, shape: tuple[int, ...], *, effort: Effort = Effort.QUICK, devices: str = "cuda") -> Case:
    """Softmax over the last dimension, e.g. softmax/fp16/32x12x512x512."""
    case_id = f"softmax/{dtype}/{_by(shape)}"
    work = operator_counts.softmax(math.prod(shape[:-1]), shape[-1], element_bytes=data.ELEMENT_BYTES[dtype])
    return _rows_case(Rows(case_id, dtype, shape), work, effort=effort, devices=devices)


def _rows_case(rows: Rows, work: operator_counts.Work, *, effort: Effort, devices: str) -> Case:
    family = rows.case_id.partition("/")[0]
    return Case(
        id=rows.case_id,
        family=family,
        params=(("shape", _by(rows.shape)), ("dim", "last")),
        dtype=rows.dtype,
        work=work,
        peak="bandwidth",
        prepare=partial({"layernorm": prepare_layernorm, "softmax": prepare_softmax}[family], rows),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[rows.dtype],
        least_effort=effort,
        devices=(devices,),
    )


def prepare_layernorm(case: Rows, place: Place, sets: int) -> Prepared:
    """Rows with a mean of their own, so that forgetting to subtract it is seen."""
    from torch.nn.functional import layer_norm

    width = case.shape[-1]
    inputs: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        x = data.normal(case.shape, case.dtype, random).add_(0.5)
        scale, shift = (data.normal((width,), case.dtype, random, std=0.2).add_(offset) for offset in (1.0, 0.0))
        inputs.append((x, scale, shift))
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    calls = tuple(
        data.holding(partial(layer_norm, x, (width,), scale, shift, LAYERNORM_EPSILON), box)
        for (x, scale, shift), box in zip(inputs, boxes, strict=True)
    )

    def check() -> float:
        out = data.call_on_poison(calls[0], boxes[0], shape=case.shape, dtype=case.dtype, place=place)
        x, scale, shift = inputs[0]
        rows = data.spread(math.prod(case.shape[:-1]), place)
        some = x.view(-1, width)[rows].double()
        centred = some - some.mean(dim=1, keepdim=True)
        spread = (centred.square().mean(dim=1, keepdim=True) + LAYERNORM_EPSILON).sqrt()
        wanted = centred / spread * scale.double() + shift.double()
        return data.relative_error(out.view(-1, width)[rows], wanted)

    return Prepared(calls, check)


def prepare_softmax(case: Rows, place: Place, sets: int) -> Prepared:
    """Scores of unit variance."""
    import torch

    width = case.shape[-1]
    inputs = [data.normal(case.shape, case.dtype, data.source(case.case_id, place, part=part)) for part in range(sets)]
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    calls = tuple(data.holding(partial(torch.softmax, x, -1), box) for x, box in zip(inputs, boxes, strict=True))

    def check() -> float:
        out = data.call_on_poison(calls[0], boxes[0], shape=case.shape, dtype=case.dtype, place=place)
        rows = data.spread(math.prod(case.shape[:-1]), place)
        some = inputs[0].view(-1, width)[rows].double()
        powers = (some - some.amax(dim=1, keepdim=True)).exp()
        return data.relative_error(out.view(-1, width)[rows], powers / powers.sum(dim=1, keepdim=True))

    return Prepared(calls, check)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)

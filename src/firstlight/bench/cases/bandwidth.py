"""Device memory: copy, add, triad and read over arrays of 512 MiB each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import operator_counts
from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.cases import data
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

MIB = 1 << 20
ARRAY_BYTES = 512 * MIB
ROWS = 8192  # of the array as `read` sums it: one fp32 sum a row
SCALE = 0.75  # of the triad; exact in every dtype


@dataclass(frozen=True, slots=True)
class Stream:
    """One pass over arrays of `elements`."""

    case_id: str
    operation: str  # copy, add, triad, read
    dtype: str
    elements: int


def cases(place: Place) -> tuple[Case, ...]:
    """Four operations in fp16 (add as everybody quotes it) and fp32."""
    del place
    return tuple(
        stream_case(operation, dtype, ARRAY_BYTES, effort=_effort(operation, dtype))
        for dtype in ("fp16", "fp32")
        for operation in ("copy", "add", "triad", "read")
    )


def _effort(operation: str, dtype: str) -> Effort:
    if dtype == "fp16" and operation in ("copy", "add"):
        return Effort.QUICK
    return Effort.STANDARD if dtype == "fp16" or operation == "copy" else Effort.RIGOROUS


def stream_case(
    operation: str, dtype: str, array_bytes: int, *, effort: Effort = Effort.QUICK, devices: str = "cuda"
) -> Case:
    """One operation over arrays of a size, e.g. bandwidth/add/fp16/512MiB."""
    case_id = f"bandwidth/{operation}/{dtype}/{array_bytes // MIB}MiB"
    width = data.ELEMENT_BYTES[dtype]
    elements = array_bytes // width
    sums = 4 * ROWS if operation == "read" else 0
    work = _work(operation, elements, width)
    return Case(
        id=case_id,
        family="bandwidth",
        params=(("operation", operation), ("array_bytes", str(array_bytes))),
        dtype=dtype,
        work=work,
        peak="bandwidth",
        prepare=partial(prepare_stream, Stream(case_id, operation, dtype, elements)),
        set_bytes=work.bytes + sums,
        tolerance=data.TOLERANCE[dtype],
        least_effort=effort,
        devices=(devices,),
    )


def _work(operation: str, elements: int, width: int) -> operator_counts.Work:
    if operation == "read":
        return operator_counts.elementwise(elements, element_bytes=width, reads=1, writes=0)
    named = {"copy": operator_counts.copy, "add": operator_counts.add, "triad": operator_counts.triad}
    return named[operation](elements, element_bytes=width)


def prepare_stream(case: Stream, place: Place, sets: int) -> Prepared:
    """Arrays of normal numbers; the check looks at elements or rows spread over the whole array."""
    import torch

    arrays: list[tuple[tuple[Tensor, ...], Tensor]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        reads = tuple(
            data.normal((case.elements,), case.dtype, random)
            for _ in range(2 if case.operation in ("add", "triad") else 1)
        )
        if case.operation == "read":
            out = torch.empty((ROWS,), dtype=torch.float32, device=place.device)
        else:
            out = torch.empty_like(reads[0])
        arrays.append((reads, out))
    calls = tuple(_call(case.operation, reads, out) for reads, out in arrays)

    def check() -> float:
        reads, out = arrays[0]
        data.poison(out)
        calls[0]()
        if case.operation == "read":
            rows = data.spread(ROWS, place)
            return data.relative_error(out[rows], reads[0].view(ROWS, -1)[rows].double().sum(dim=1))
        some = data.spread(case.elements, place, count=1 << 16)
        return data.relative_error(out[some], _wanted(case.operation, [array[some].double() for array in reads]))

    # Inside a graph a copy becomes a node of its own kind, which an H200 runs at 2.7 instead of 4.2 TB/s.
    return Prepared(calls, check, flags=("uncaptured",) if case.operation == "copy" else ())


def _call(operation: str, reads: tuple[Tensor, ...], out: Tensor) -> Callable[[], Any]:
    import torch

    if operation == "copy":
        return partial(out.copy_, reads[0])
    if operation == "add":
        return partial(torch.add, *reads, out=out)
    if operation == "triad":
        return partial(torch.add, *reads, alpha=SCALE, out=out)
    return partial(torch.sum, reads[0].view(ROWS, -1), dim=1, dtype=torch.float32, out=out)


def _wanted(operation: str, reads: list[Tensor]) -> Tensor:
    if operation == "copy":
        return reads[0]
    return reads[0] + reads[1] * (1.0 if operation == "add" else SCALE)

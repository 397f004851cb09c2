"""Seeded random data made on the device, slices to check, and the error of a result against its reference.

Never zeros or constants: on an H200 a bf16 product of zeros ran 13 % faster than one of random numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from firstlight.bench.case import Place

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Largest error of a slice, ||got - wanted|| / ||wanted||, for one product or one pass over rows with fp32 sums.
# Plain rounding of the output gives 2.8e-4 in fp16 and 2.3e-3 in bf16; tf32 operands give about 3e-4, which is why
# fp32 stands at 5e-5: an "fp32" product that was run as tf32 does not pass.
TOLERANCE = {
    "fp64": 1e-12,
    "fp32": 5e-5,
    "tf32": 2e-3,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "fp8": 1e-2,
    "nvfp4": 1e-2,
    "int8": 1e-9,  # sums of int8 products are exact
}
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
# Names of torch and of everyday speech.
SPELLINGS = {"float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16",
             "half": "fp16", "bfloat16": "bf16"}  # fmt: skip
SPREAD = 64  # rows and columns of a result that are compared, spread evenly with the first and the last


def torch_dtype(name: str) -> torch.dtype:
    """The torch type that holds a dtype of ours; tf32 lives in fp32 tensors."""
    import torch

    return {
        "fp64": torch.float64,
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
    }[name]


def spelled(dtype: object) -> str:
    """Our name of a dtype as a user writes it: 'fp16' for torch.float16, 'float16' and 'half'; '' for any other."""
    plain = str(dtype).removeprefix("torch.").lower()
    found = SPELLINGS.get(plain, plain)
    return found if found in ELEMENT_BYTES else ""


def source(case_id: str, place: Place, *, part: int) -> torch.Generator:
    """A random source of its own for each case and buffer set: the same numbers in every run."""
    import torch

    generator = torch.Generator(device=place.device)
    generator.manual_seed(zlib.crc32(case_id.encode()) + 7919 * part)
    return generator


def normal(shape: Sequence[int], dtype: str, random: torch.Generator, *, std: float = 1.0) -> Tensor:
    """Normal numbers on the source's device; weights take std = 1/sqrt(K) so that products stay near 1."""
    import torch

    return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=random.device).normal_(0, std, generator=random)


def spread(size: int, place: Place, *, count: int = SPREAD) -> Tensor:
    """Evenly spread indices with the first and the last, so that a missing tile or tail is met: 0, 130, ..., 8191."""
    import torch

    return torch.linspace(0, size - 1, min(size, count), dtype=torch.float64, device=place.device).round().long()


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """||got - wanted|| / ||wanted|| in double precision, e.g. 2.8e-4; infinite for NaN and for a shape that differs."""
    import math

    if got.shape != wanted.shape:
        return math.inf
    got, wanted = got.double(), wanted.double()
    error = float(((got - wanted).norm() / wanted.norm()).item())
    return math.inf if math.isnan(error) else error


def poison(tensor: Tensor) -> None:
    """Fill an output with NaN (integers: the smallest value) so that what a kernel leaves unwritten is seen."""
    import torch

    tensor.fill_(float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)


def holding(operation: Callable[[], Any], box: list[Any]) -> Callable[[], None]:
    """A call that keeps its result in `box` until the next one, so that every buffer set has an output of its own.

    The old result is dropped first: the allocator hands the same memory out again, inside a captured graph too.
    """

    def call() -> None:
        box.clear()
        box.append(operation())

    return call


def call_on_poison(
    call: Callable[[], Any], box: list[Any], *, shape: Sequence[int], dtype: str, place: Place
) -> Tensor:
    """The result of one call whose output memory held NaN before, as far as the allocator hands the same block out."""
    import torch

    if box:
        poison(box[0])
    else:
        poison(torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=place.device))
    call()
    result: Tensor = box[0]
    return result

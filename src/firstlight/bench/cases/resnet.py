"""ResNet-50 inference at 224 x 224, channels_last, random weights: eager, as a graph, compiled, compiled graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from firstlight.bench import model_counts
from firstlight.bench.case import Cache, Case, Effort, Mode, Place
from firstlight.bench.cases import data
from firstlight.bench.cases.inference import MODEL_TOLERANCE, Inference, Run, prepare_inference
from firstlight.bench.cases.needs import tf32_needs
from firstlight.bench.cases.settings import Search

if TYPE_CHECKING:
    import torch
    from torch import nn

IMAGE, CLASSES = 224, 1000
BATCHES = {"fp16": (1, 8, 32, 64, 128, 256), "tf32": (1, 8, 32, 64, 128), "fp32": (1, 8, 32, 64, 128)}
COMPILED_BATCHES = (1, 32, 64, 128)
QUICK_BATCHES = (1, 64)
# Weights, running statistics and one 8-byte counter for each of the 53 norms; models/resnet50.py has the model.
NUMBERS, COUNTERS = 25_557_032 + 53_120, 53


def cases(place: Place) -> tuple[Case, ...]:
    """Eager and graph rows; `compiled_cases` has the others, which run last."""
    return tuple(
        resnet_case(dtype, batch, run=run, effort=_effort(dtype, batch, run), needs=_needs(dtype, place))
        for dtype, batches in BATCHES.items()
        for run in (Run.EAGER, Run.GRAPH)
        for batch in batches
    )


def compiled_cases() -> tuple[Case, ...]:
    """torch.compile without and with a graph, fp16."""
    return tuple(
        resnet_case("fp16", batch, run=run, effort=Effort.STANDARD if batch in QUICK_BATCHES else Effort.RIGOROUS)
        for batch in COMPILED_BATCHES
        for run in (Run.COMPILED, Run.COMPILED_GRAPH)
    )


def _effort(dtype: str, batch: int, run: Run) -> Effort:
    if dtype == "fp16" and batch in QUICK_BATCHES:
        return Effort.QUICK
    if dtype == "fp16":  # a graph row stands beside each compiled one
        return Effort.STANDARD if run is Run.EAGER or batch in COMPILED_BATCHES else Effort.RIGOROUS
    return Effort.STANDARD if dtype == "tf32" and run is Run.EAGER else Effort.RIGOROUS


def _needs(dtype: str, place: Place) -> str:
    return tf32_needs(place) if dtype == "tf32" else ""


def resnet_case(
    dtype: str, batch: int, *, run: Run, effort: Effort = Effort.STANDARD, needs: str = "", compiler: str = "inductor"
) -> Case:
    """One row, e.g. resnet50/fp16/b64/graph; tf32 is what torch does with fp32 tensors unless told otherwise."""
    case_id = f"resnet50/{dtype}/b{batch}/{run.value}"
    width = data.ELEMENT_BYTES[dtype]
    shape = (batch, 3, IMAGE, IMAGE)
    inference = Inference(case_id, dtype, run, build_resnet, shape, compiler)
    return Case(
        id=case_id,
        family="resnet50",
        params=(
            ("batch", str(batch)),
            ("image", f"{IMAGE}x{IMAGE}"),
            ("layout", "nhwc"),
            ("run", run.value),
            ("algorithm", Search.HEURISTIC.value),
            ("items", str(batch)),
            ("item", "image"),
        ),
        dtype=dtype,
        work=model_counts.resnet50(batch, element_bytes=width),
        peak=dtype,
        prepare=partial(prepare_inference, inference),
        set_bytes=width * (NUMBERS + batch * (3 * IMAGE**2 + CLASSES)) + 8 * COUNTERS,
        tolerance=MODEL_TOLERANCE[dtype],
        cache=Cache.WARM,  # a server runs one set of weights again and again
        mode=Mode.HOST,
        least_effort=effort,
        needs=needs,
        flags=("algorithmic", *run.flags),
    )


def build_resnet(dtype: str, random: torch.Generator) -> nn.Module:
    """The model on the device of the random source."""
    from firstlight.bench.models.resnet50 import build

    return build(dtype=data.torch_dtype(dtype), device=str(random.device), random=random)

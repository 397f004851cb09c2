"""How a model is run: eagerly, as a CUDA graph, compiled, or compiled and as a graph. One row each.

All four are timed by the wall clock, as their user waits for them: the difference between eager and graph is launches,
the difference between graph and compiled-graph is kernels. One figure for both would hide which of the two it was.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firstlight.bench.case import Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import is_cpu
from firstlight.bench.cases.settings import Backend, apply_reference_settings, settings_for, under
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

WARM_UPS = 3  # calls before a capture: cuDNN's search and lazy loading cannot be captured

# Largest error of a whole model against the same model in a wider type: five to twenty times what an H200 shows
# (ResNet-50: 5e-7, 4.8e-4 and 3.6e-4 in fp32, tf32 and fp16; the encoder: 7.7e-4 in fp16, 6.3e-3 in bf16).
MODEL_TOLERANCE = {"fp32": 1e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 3e-2}


class Run(enum.Enum):
    """How a model is executed; `compiled` is torch.compile without graphs."""

    EAGER = "eager"
    GRAPH = "graph"
    COMPILED = "compiled"
    COMPILED_GRAPH = "compiled-graph"

    @property
    def flags(self) -> tuple[str, ...]:
        """What a runner has to know: rows flagged 'compile' are dropped by --no-compile and run last."""
        return ("compile",) if self in (Run.COMPILED, Run.COMPILED_GRAPH) else ()


@dataclass(frozen=True, slots=True)
class Inference:
    """A forward pass: `build` makes the model for a dtype and a random source."""

    case_id: str
    dtype: str
    run: Run
    build: Callable[[str, torch.Generator], nn.Module]
    input_shape: tuple[int, ...]
    compiler: str = "inductor"  # backend of torch.compile


def prepare_inference(case: Inference, place: Place, sets: int) -> Prepared:
    """A model and its input for every buffer set; compiled rows share one model, compiled once in a process."""
    models: list[Any] = []
    inputs: list[Tensor] = []
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    calls: list[Callable[[], Any]] = []
    settings = settings_for(case.dtype, backend=Backend.ANY)
    for part, box in enumerate(boxes):
        random = data.source(case.case_id, place, part=part)
        if case.run.flags:
            model, forward = _compiled(case.build, case.dtype, place.device, case.compiler)
        else:
            model = forward = case.build(case.dtype, random)
        given = _channels_last(data.normal(case.input_shape, case.dtype, random))
        call = data.holding(under(settings, functools.partial(forward, given)), box)
        models.append(model)
        inputs.append(given)
        calls.append(captured(call, place) if case.run in (Run.GRAPH, Run.COMPILED_GRAPH) else call)
    calls[0]()  # a compiled model is compiled here, before anybody looks at a clock

    def check() -> float:
        out = data.call_on_poison(calls[0], boxes[0], shape=(), dtype=case.dtype, place=place)
        return model_error(models[0], inputs[0], out, dtype=case.dtype)

    return Prepared(tuple(calls), check, flags=() if case.run is Run.EAGER else ("uncaptured",))


def captured(call: Callable[[], Any], place: Place) -> Callable[[], Any]:
    """The call as a CUDA graph to replay; on a processor, which has no graphs, the call itself."""
    if is_cpu(place):
        return call
    import torch

    side = _side_stream(place.device)
    here = torch.cuda.current_stream(place.device)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    here.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@functools.lru_cache(maxsize=16)
def _side_stream(device: str) -> Any:
    """One stream for the warm-ups of all captures: cuBLAS keeps 32 MiB of workspace for every stream it has met."""
    import torch

    cuda: Any = torch.cuda
    return cuda.Stream(device)


def model_error(model: nn.Module, given: Tensor, out: Tensor, *, dtype: str) -> float:
    """Error of the first and the last item of the batch against the same model in fp32 (fp64 for an fp32 model)."""
    import copy

    import torch

    wide = torch.float64 if dtype == "fp32" else torch.float32
    some = sorted({0, given.shape[0] - 1})
    apply_reference_settings()
    with torch.no_grad():
        wanted = copy.deepcopy(model).to(wide)(_channels_last(given[some].to(wide)))
    return max(data.relative_error(out[item], wanted[place]) for place, item in enumerate(some))


@functools.lru_cache(maxsize=2)
def _compiled(
    build: Callable[[str, torch.Generator], nn.Module], dtype: str, device: str, compiler: str
) -> tuple[nn.Module, Callable[..., Any]]:
    import torch

    random = torch.Generator(device=device)
    random.manual_seed(0)
    model = build(dtype, random)
    return model, torch.compile(model, dynamic=False, backend=compiler)


def _channels_last(given: Tensor) -> Tensor:
    import torch

    return given.to(memory_format=torch.channels_last) if given.dim() == 4 else given

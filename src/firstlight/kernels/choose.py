"""Which backend computes a product, and why.

A named backend is taken as named. `auto` takes a sparse kernel (triton or sm90, whichever was measured to be faster)
where it was measured to beat the same matrix stored dense on this GPU model (crossover.py), and the dense one above
that; sm90 is taken only where it was measured. A GPU without measurements gets a careful default: what an untuned
kernel reached on every GPU we know of. Processor tensors never go to a GPU kernel.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from firstlight.errors import BadInput, FirstlightError, UnsupportedInput
from firstlight.frozen import dataclass
from firstlight.kernels.crossover import Machine, Row, crossover, machine_for, neighbours, time_at
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.product import Layout

if TYPE_CHECKING:
    from firstlight.kernels.launch import Request

BACKENDS = ("auto", "sm90", "triton", "dense", "reference")
SPARSE = ("triton", "sm90")  # at equal speed the first is taken
_MODULES = {
    "sm90": "firstlight.kernels.sm90",
    "triton": "firstlight.kernels.triton_backend",
    "dense": "firstlight.kernels.dense",
    "reference": "firstlight.kernels.reference",
}
# Without measurements: sparse up to here. torch's own untuned BSR kernel (one pipeline stage) loses to dense on an H200
# just below density 0.3 at block 128, in 0.1-0.3 at 64, in 0.02-0.1 at 32 and at 0.02 at 16; ours is not slower.
DEFAULT_DENSITY = {128: 0.10, 64: 0.10, 32: 0.05, 16: 0.02}
# On a processor the reference goes through the block rows one by one; one large product wins early (measured, 2 cores).
CPU_DENSITY = {128: 0.15, 64: 0.05, 32: 0.0, 16: 0.0}
TRITON_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SM90_DTYPES = (torch.float16, torch.bfloat16)
OLDEST_CAPABILITY = (8, 0)
HOPPER = (9, 0)  # code for sm_90a runs there and nowhere else
_KEPT_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend that a call takes and the reason, e.g. Choice('dense', 'density 0.620 is above 0.431, ...')."""

    backend: str
    why: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a choice depends on; equal questions get equal answers."""

    operation: str  # multiply or sample
    device: int  # CUDA ordinal, -1 for the processor
    dtype: torch.dtype
    shape: tuple[int, int]
    block: int
    entries: int
    n: int
    layout: Layout
    training: bool  # dense has to copy the values for the call: they are trained, or no copy is kept


_generation = 0  # counts forget_choices; answers of an older generation are not taken


def backend_module(operation: str, pattern: Pattern, tensor: Tensor, n: int, *, request: Request) -> ModuleType:
    """The module that computes this product; a dictionary lookup after the first time."""
    # kept on the pattern, which fixes device, shape, block and entries; hashing an enum would cost more than the lookup
    copied = request.training if operation == "sample" else not pattern.keeps_copy(tensor)
    key = (n, tensor.dtype, operation, request.layout is Layout.TOKENS, copied, request.backend, _generation)
    answers: dict[Any, ModuleType] = pattern.backends
    if len(answers) >= _KEPT_CHOICES:
        answers.clear()
    found = answers.get(key)
    if found is None:
        question = Question(
            operation, tensor.get_device(), tensor.dtype, pattern.shape, pattern.block, pattern.col.shape[0], n,
            request.layout, copied,
        )  # fmt: skip
        found = answers[key] = _module(answer(request.backend, question).backend)
    return found


def answer(name: str, question: Question) -> Choice:
    """The choice for a backend name as the caller gave it."""
    if name == "auto":
        return _auto(question)
    if name not in BACKENDS:
        raise UnsupportedInput(f"backend is {name!r}; accepted: {', '.join(BACKENDS)}. Leave it out for auto.")
    if name == "sm90":
        _require_sm90(question)
    if name == "triton":
        _require_triton(question)
    return Choice(name, "it was asked for")


def forget_choices() -> None:
    """Makes the next calls choose anew, e.g. after autotune wrote new measurements."""
    global _generation
    _generation += 1
    measurements.cache_clear()
    _warn_about_sm90.cache_clear()


def _auto(question: Question) -> Choice:
    density = _density(question)
    if question.device < 0:
        limit = CPU_DENSITY[question.block]
        if density <= limit:
            return Choice("reference", f"on the processor, density {density:.3f} is at most {limit:g}")
        return Choice("dense", f"on the processor, density {density:.3f} is above {limit:g}")
    hurdles = {
        "triton": why_not_triton(question.device, question.dtype),
        "sm90": why_not_sm90(question.device, question.dtype),
    }
    gpu = torch.cuda.get_device_name(question.device)
    return best_choice(gpu, question, hurdles)


def best_choice(gpu: str, question: Question, hurdles: dict[str, str]) -> Choice:
    """The fastest of the sparse kernels without a hurdle, or dense where that is faster than all of them."""
    density = _density(question)
    offers = [_offer(gpu, question, name) for name in SPARSE if not hurdles[name]]
    if len(offers) == len(SPARSE):  # one that was not measured, or has to copy its operands, stands back
        offers = [offer for offer in offers if offer.backend == SPARSE[0] or not _stands_back(question, offer)]
    elif hurdles["sm90"] and torch.cuda.is_available() and is_hopper(question.device):
        _warn_about_sm90(gpu, hurdles["sm90"])
    if not offers:
        return Choice("dense", hurdles[SPARSE[0]])
    fitting = [offer for offer in offers if density <= offer.limit]
    if not fitting:
        best = max(offers, key=lambda offer: offer.limit)
        return Choice("dense", f"density {density:.3f} is above {best.limit:.3f}, {best.why}")
    best = min(fitting, key=lambda offer: offer.time)
    return Choice(best.backend, f"density {density:.3f} is at most {best.limit:.3f}, {best.why}")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a sparse kernel is expected to do, e.g. Offer('sm90', limit=0.71, time=0.13, why='the lowest ...')."""

    backend: str
    limit: float  # density up to which it is faster than dense
    time: float  # as a share of dense's; infinite: not measured
    why: str


def _offer(gpu: str, question: Question, backend: str) -> Offer:
    limit, why = density_limit(gpu, question, backend)
    found = measurements(gpu)
    near = neighbours(found, _as_row(question, backend)) if isinstance(found, Machine) else ()
    density = _density(question)
    time = sum(time_at(row, density) for row in near) / len(near) if near else math.inf
    return Offer(backend, limit, time, why)


def _stands_back(question: Question, offer: Offer) -> bool:
    from firstlight.kernels.sm90.problem import is_padded

    return offer.time == math.inf or is_padded(question.layout, question.block, question.shape, question.n)


@functools.lru_cache(maxsize=8)
def _warn_about_sm90(gpu: str, hurdle: str) -> None:
    found = measurements(gpu)
    if isinstance(found, Machine) and any(row.backend == "sm90" for row in found.rows):
        warnings.warn(f"backend 'auto' goes without the Hopper kernels: {hurdle}.", SlowerPath, stacklevel=2)


class SlowerPath(UserWarning):
    """A faster kernel was measured on this GPU model and cannot run here."""


def density_limit(gpu: str, question: Question, backend: str = "triton") -> tuple[float, str]:
    """Up to which density a sparse kernel is taken on this GPU model, and where that number is from."""
    found = measurements(gpu)
    if isinstance(found, Machine):
        near = neighbours(found, _as_row(question, backend))
        if near:
            limit = min(crossover(row, training=question.training) for row in near)
            extra = " with the dense copy made for each call" if question.training else ""
            return limit, f"the lowest crossover of {len(near)} measured neighbours on {gpu}{extra}"
        kind = f"{question.operation} at block {question.block} in {_name(question.dtype)}, {question.layout.value}"
        kind += "" if backend == "triton" else f", by {backend}"
        reason = f"{gpu} was measured, but not {kind}"
    else:
        reason = found
    return DEFAULT_DENSITY[question.block], f"the careful default: {reason}"


@functools.lru_cache(maxsize=16)
def measurements(gpu: str) -> Machine | str:
    """The measured rows for a GPU model, or why there are none; read once."""
    try:
        found = machine_for(gpu)
    except BadInput as error:
        return str(error)
    return f"{gpu} was not measured; `firstlight kernels autotune` does it" if found is None else found[0]


def why_not_triton(device: int, dtype: torch.dtype) -> str:
    """What keeps the portable kernel from running on this device, e.g. 'triton is not installed'; empty: nothing."""
    if dtype not in TRITON_DTYPES:
        return f"the sparse kernel takes float16, bfloat16 and float32, not {_name(dtype)}"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]} is below 8.0"
    if not triton_installed():
        return "triton is not installed"
    return ""


def why_not_sm90(device: int, dtype: torch.dtype) -> str:
    """What keeps the Hopper kernels from running here, e.g. 'compute capability is 8.0, ...'; empty: nothing."""
    if dtype not in SM90_DTYPES:
        return f"the Hopper kernels take float16 and bfloat16, not {_name(dtype)}"
    if not is_hopper(device):
        major, minor = torch.cuda.get_device_capability(device)
        return f"compute capability is {major}.{minor}, and the Hopper kernels run on 9.0 (H100, H200, GH200) alone"
    return why_not_built()


def is_hopper(device: int) -> bool:
    """Whether a device runs code for sm_90a."""
    return torch.cuda.get_device_capability(device) == HOPPER


@functools.lru_cache(maxsize=1)
def why_not_built() -> str:
    """What keeps the Hopper kernels from being compiled and loaded on this machine; empty: nothing. Asked once."""
    from firstlight.kernels.sm90 import compile as compiling
    from firstlight.kernels.sm90 import libcuda

    try:
        compiling.find_compiler()
        libcuda.library()
    except FirstlightError as error:
        return str(error).rstrip(".")
    return ""


@functools.lru_cache(maxsize=1)
def triton_installed() -> bool:
    """Whether `import triton` would find something."""
    return importlib.util.find_spec("triton") is not None


def _require_triton(question: Question) -> None:
    if question.device >= 0:
        if hurdle := why_not_triton(question.device, question.dtype):
            raise UnsupportedInput(f"backend 'triton' cannot run here: {hurdle}. Use backend='auto' or 'dense'.")
    elif os.environ.get("TRITON_INTERPRET") != "1":
        raise UnsupportedInput(
            "backend 'triton' was given tensors on the processor; it takes tensors on a CUDA device. Move them there, "
            "or use backend='reference' (TRITON_INTERPRET=1 runs the kernel in Triton's interpreter, for tests)."
        )


def _require_sm90(question: Question) -> None:
    if question.device < 0:
        raise UnsupportedInput(
            "backend 'sm90' was given tensors on the processor; it takes tensors on an H100 or H200. Move them there, "
            "or use backend='reference'."
        )
    if hurdle := why_not_sm90(question.device, question.dtype):
        raise UnsupportedInput(f"backend 'sm90' cannot run here: {hurdle}. Use backend='auto'.")


def _density(question: Question) -> float:
    rows, cols = (-(-side // question.block) for side in question.shape)
    return question.entries / max(1, rows * cols)


def _as_row(question: Question, backend: str) -> Row:
    rows, cols = question.shape
    return Row(
        operation=question.operation, block=question.block, dtype=_name(question.dtype), layout=question.layout.value,
        rows=rows, cols=cols, tokens=question.n, dense_us=0.0, copy_us=0.0, sparse_us=(),
        backend=backend,
    )  # fmt: skip


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.lru_cache(maxsize=8)
def _module(backend: str) -> ModuleType:
    return importlib.import_module(_MODULES[backend])

"""Which backend computes a product, and why.

A named backend is taken as named. `auto` takes what is expected to be the fastest (choice/): triton, sm90, or dense
with the copy that it has to make. A GPU that nothing is known of gets a careful default: what an untuned kernel
reached on every GPU we know of. Processor tensors never go to a GPU kernel.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.backends import BY_NAME, arch_of, require, why_not
from firstlight.kernels.choice import answer as answers
from firstlight.kernels.choice.answer import (
    NEW_CALLS,
    Answer,
    Asking,
    Choice,
    answer,
    same,
    shortest,
    together,
)
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.cases import MULTIPLY, SAMPLE, TURNED, ProductCase
from firstlight.kernels.choice.models import Estimate, Models, models_for
from firstlight.kernels.memo import being_captured
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout
from firstlight.kernels.tf32 import tf32_allowed

if TYPE_CHECKING:
    from firstlight.kernels.launch import Request

SPARSE = ("triton", *BY_NAME)
_MODULES = {
    "triton": "firstlight.kernels.triton_backend",
    "dense": "firstlight.kernels.dense",
    "reference": "firstlight.kernels.reference",
}
# Without measurements: sparse up to here. torch's own untuned BSR kernel (one pipeline stage) loses to dense on an H200
# just below density 0.3 at block 128, in 0.1-0.3 at 64, in 0.02-0.1 at 32 and at 0.02 at 16; ours is not slower.
DEFAULT_DENSITY = {128: 0.10, 64: 0.10, 32: 0.05, 16: 0.02}
# On a processor the reference goes through the block rows one by one; one large product wins early (measured, 2 cores).
CPU_DENSITY = {128: 0.15, 64: 0.05, 32: 0.0, 16: 0.0}
_KEPT_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Question:
    """What a choice depends on; equal questions get equal answers."""

    operation: str  # multiply or sample
    device: int  # CUDA ordinal, -1 for the processor
    dtype: torch.dtype
    shape: tuple[int, int]  # of the matrix as stored
    block: int
    entries: int
    n: int
    layout: Layout
    training: bool  # dense has to copy the values for the call: they are trained, or no copy is kept
    turned: bool = False  # the transpose of what is stored is multiplied
    activation: Activation = Activation.NONE
    extras: int = 0  # tensors that the epilogue reads

    @property
    def case(self) -> ProductCase:
        """The question as the models take it; what is empty counts as one."""
        rows, cols = (max(1, each) for each in self.shape)
        operation = self.operation if self.operation == SAMPLE else TURNED if self.turned else MULTIPLY
        return ProductCase(
            operation, self.layout.value, self.block, precision_of(self.dtype), rows, cols, self.entries,
            max(1, self.n), self.activation.value, self.extras,
        )  # fmt: skip


class Taken(NamedTuple):
    """The module that computes a call, and whether later calls will take the same."""

    module: ModuleType
    is_settled: bool


def backend_module(
    operation: str, pattern: Pattern, tensor: Tensor, n: int, *, request: Request, epilogue: Epilogue = PLAIN
) -> Taken:
    """The module that computes this product; a dictionary lookup after the first time."""
    if request.backend != "auto" and tensor.is_cuda:  # the question of a named backend is soon answered
        return _named(request.backend, tensor.get_device(), tensor.dtype)
    # kept on the pattern, which fixes device, shape, block and entries; hashing an enum would cost more than the lookup
    copied = request.training if operation == SAMPLE else not pattern.keeps_copy(tensor)
    extras = (epilogue.bias is not None) + (epilogue.addend is not None)
    key = (
        n, tensor.dtype, operation, request.layout is Layout.TOKENS, copied, request.backend, answers.generation,
        request.transposed, epilogue.activation._value_, extras,
        tensor.dtype is torch.float32 and tf32_allowed(),
    )  # fmt: skip
    kept = pattern.backends
    if len(kept) >= _KEPT_CHOICES:
        kept.clear()
    found = kept.get(key)
    if found is None:
        question = Question(
            operation, tensor.get_device(), tensor.dtype, pattern.shape, pattern.block, pattern.col.shape[0], n,
            request.layout, copied, request.transposed, epilogue.activation, extras,
        )  # fmt: skip
        found = kept[key] = answer(request.backend, question, ASKING)
    if found.is_settled or not _is_new(pattern, (operation, request.transposed)) or being_captured(tensor):
        return Taken(_module(found.settled.backend), is_settled=True)
    return Taken(_module(found.at_first.backend), is_settled=False)


@functools.lru_cache(maxsize=256)
def _named(backend: str, device: int, dtype: torch.dtype) -> Taken:
    """What a call that names its backend takes on a GPU, whatever its pattern: a new one need not ask again."""
    require(backend, device, lambda: why_not(backend, device, dtype))
    return Taken(_module(backend), is_settled=True)


def _is_new(pattern: Pattern, direction: tuple[str, bool]) -> bool:
    """Counts the calls in one direction of a pattern; its lists serve all of them."""
    count = pattern.new_calls[direction] = pattern.new_calls.get(direction, 0) + 1
    return count <= NEW_CALLS


def explained(name: str, question: Question) -> Choice:
    """The choice for a backend name as the caller gave it, from a pattern's third call on."""
    return answer(name, question, ASKING).settled


def forget_choices() -> None:
    """Makes the next calls choose again, e.g. after autotune wrote new measurements."""
    answers.forget(_auto_once, _warn, _named)


def _auto(question: Question) -> Answer:
    return _auto_once(question, precision_of(question.dtype))


@functools.lru_cache(maxsize=4096)
def _auto_once(question: Question, _precision: str) -> Answer:
    """Layers of one shape and density ask the same; the precision is torch's setting, which no question holds."""
    if question.device < 0:
        density, limit = question.case.density, CPU_DENSITY[question.block]
        if density <= limit:
            return same(Choice("reference", f"on the processor, density {density:.3f} is at most {limit:g}"))
        return same(Choice("dense", f"on the processor, density {density:.3f} is above {limit:g}"))
    hurdles = {name: _hurdle(name, question) for name in SPARSE}
    models, arch = models_for(card_of(question.device)), arch_of(question.device)
    if arch is not None and hurdles[arch.name] and not isinstance(models, str):
        _warn(arch.called, hurdles[arch.name])
    return best_choice(question, hurdles, models)


def best_choice(question: Question, hurdles: dict[str, str], models: Models | str) -> Answer:
    """The fastest of the kernels without a hurdle by what was measured; the careful default where nothing was."""
    sparse = [name for name in SPARSE if not hurdles[name]]
    if not sparse:
        return same(Choice("dense", hurdles[SPARSE[0]]))
    if not isinstance(models, str):
        offers = offers_of(question, tuple(sparse), models)
        if "dense" in offers and len(offers) > 1:
            prepare = {name: models.prepare_us(question.case, name) for name in offers}
            return shortest(offers, prepare, models)
    density, limit = question.case.density, DEFAULT_DENSITY[question.block]
    unknown = models if isinstance(models, str) else f"{models.card.gpu} was measured, but not {_words(question)}"
    backend, relation = (sparse[0], "at most") if density <= limit else ("dense", "above")
    return same(Choice(backend, f"density {density:.3f} is {relation} {limit:.3f}, the careful default: {unknown}"))


def offers_of(question: Question, sparse: tuple[str, ...], models: Models) -> dict[str, Estimate]:
    """What each backend is expected to take; dense with the copy that it has to make."""
    case = question.case
    offers = models.offers(case, sparse)
    dense = models.estimate(case, "dense")
    if dense is not None and question.training and case.operation != SAMPLE:
        copy = models.estimate(case, "copy")
        dense = None if copy is None else together([dense, copy])
    return offers if dense is None else {**offers, "dense": dense}


def _words(question: Question) -> str:
    return f"{question.operation} at block {question.block} in {precision_of(question.dtype)}, {question.layout.value}"


@functools.lru_cache(maxsize=8)
def _warn(called: str, hurdle: str) -> None:
    warnings.warn(f"backend 'auto' goes without the {called} kernels: {hurdle}.", SlowerPath, stacklevel=2)


class SlowerPath(UserWarning):
    """A faster kernel was measured on such a GPU and cannot run here."""


def precision_of(dtype: torch.dtype) -> str:
    """A type as rows name it, e.g. float16; tf32 for float32 where torch may round to that."""
    if dtype is torch.float32 and tf32_allowed():
        return "tf32"
    return str(dtype).removeprefix("torch.")


def _require(name: str, question: Question) -> None:
    require(name, question.device, lambda: _hurdle(name, question))


def _hurdle(name: str, question: Question) -> str:
    on_gpu = name in SPARSE and question.device >= 0
    return why_not(name, question.device, question.dtype) if on_gpu else ""


@functools.lru_cache(maxsize=8)
def _module(backend: str) -> ModuleType:
    return BY_NAME[backend].part() if backend in BY_NAME else importlib.import_module(_MODULES[backend])


ASKING = Asking(_auto, _require)

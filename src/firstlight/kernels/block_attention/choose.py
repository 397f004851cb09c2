"""Which backend computes attention, and why.

A named backend is taken as named. `auto` takes what is expected to be the fastest (choice/), with gradients the forward
and the backward pass together. Of a GPU that nothing is known of the rule is a careful one: torch's own kernels for the
two shapes they know by name, a sparse kernel where most blocks need not be computed, and torch's with the mask as a
tensor above that, unless such a tensor would be large. Gradients: backward_of.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.backends import BY_NAME, require
from firstlight.kernels.backends import why_not_triton as why_no_triton_here
from firstlight.kernels.block_attention.dense import flash_knows
from firstlight.kernels.block_attention.seen import LISTED, LOWER_RIGHT, Attended
from firstlight.kernels.choice import answer as answers
from firstlight.kernels.choice.answer import Answer, Asking, Choice, answer, same, shortest, together
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.cases import BACKWARD, FORWARD, AttentionCase
from firstlight.kernels.choice.models import Estimate, Models, models_for
from firstlight.kernels.choose import precision_of

SPARSE_SHARE = 0.3  # a sparse kernel is taken up to this share of the blocks on a GPU that was not measured
# On a processor the reference goes through the lists one by one: against torch's kernel on one core it wins up to
# 0.3 with one list for all heads, up to 0.1 to 0.25 with one for each (1024 and 2048 long, float32, head dim 64).
CPU_SHARE = 0.15
SPARSE = (*BY_NAME, "triton")
MASK_BYTES = 1 << 31  # of a mask as torch takes it, with a place for every query and key: no larger one is made unasked
TRITON_HEAD_DIMS = (16, 256)
_MODULES = {
    "triton": "firstlight.kernels.block_attention.triton",
    "dense": "firstlight.kernels.block_attention.dense",
    "reference": "firstlight.kernels.block_attention.reference",
}


class Question(NamedTuple):
    """What a choice depends on; equal questions get equal answers."""

    device: int  # CUDA ordinal, -1 for the processor
    dtype: torch.dtype
    head_dim: int
    shape: str  # full, upper_left, lower_right or listed
    block: int
    share: float  # of the blocks that may have to be computed
    lengths: tuple[int, int]
    lists: int = 1  # batch * heads of the mask
    positive: bool = True  # the scale is above 0, which sm90 needs
    heads: tuple[int, int, int] = (1, 1, 1)  # batch, query heads, key heads
    is_cut: bool = False  # some blocks are seen in part
    precision: str = "float16"  # the type as rows name it
    recorded: bool = False  # gradients will be asked for

    def case(self, operation: str) -> AttentionCase:
        """The forward or backward pass as the models take it; what is empty counts as one."""
        batch, heads, kv_heads, q_len, k_len = (max(1, each) for each in (*self.heads, *self.lengths))
        places = self.lists * -(-q_len // self.block) * -(-k_len // self.block)
        return AttentionCase(
            operation, self.shape, self.block, self.precision, self.head_dim, batch, heads, kv_heads, q_len, k_len,
            self.lists, round(self.share * places), int(self.is_cut),
        )  # fmt: skip


def question_of(q: Tensor, seen: Attended, scale: float = 1.0, *, kv_heads: int = 0, recorded: int = 0) -> Question:
    """What the choice for a call depends on; kv_heads 0: as many as query heads; recorded 1: with gradients."""
    batch, heads, _, head_dim = q.shape
    return Question(
        q.get_device(), q.dtype, head_dim, seen.shape, seen.block, seen.share, (seen.q_len, seen.k_len), seen.lists,
        scale > 0.0, (batch, heads, kv_heads or heads), seen.is_cut, precision_of(q.dtype), bool(recorded),
    )  # fmt: skip


def explained(name: str, question: Question) -> Choice:
    """The choice for a backend name as the caller gave it, from a mask's third call on."""
    return answer(name, question, ASKING).settled


def answered(name: str, question: Question) -> Answer:
    """The choice, and what a new mask's first calls take."""
    return answer(name, question, ASKING)


class Named(NamedTuple):
    """Who computes a call whose caller named a backend."""

    forward: str
    backward: str


@functools.lru_cache(maxsize=256)
def named(backend: str, device: int, dtype: torch.dtype, head_dim: int, block: int) -> Named:
    """What a call on a GPU takes, whatever its mask: a new one need not ask again."""
    question = Question(device, dtype, head_dim, LISTED, block, 1.0, (1, 1))
    _require(backend, question)
    return Named(backend, backward_of(backend, question, asked=backend))


def forget_choices() -> None:
    """Makes the next calls choose again, e.g. after new measurements were written."""
    answers.forget(_auto, _gradients, named)


def backward_of(backend: str, question: Question, *, asked: str = "auto") -> str:
    """Which backend computes the gradients of an output that `backend` computed: not every one can.

    Where a caller leaves the choice to us it is the faster of sm90 and triton, also behind torch's output where that
    came with its lse. Without triton, which computes the sums of the rows for both, they are the reference's.
    """
    if backend == "reference":
        return backend
    if question.device < 0:
        return "triton" if backend == "triton" else "reference"
    if why_not_triton(question):
        return "reference"
    if asked == "auto":
        return _gradients(question)
    return backend if backend in BY_NAME else "triton"


@functools.lru_cache(maxsize=1024)
def _gradients(question: Question) -> str:
    """The faster of those that compute gradients from an output and its lse."""
    models = _models(question)
    hurdles = _hurdles(question)
    able = [name for name in SPARSE if not hurdles[name]]
    if isinstance(models, str) or able == ["triton"]:
        return "triton"
    offers = models.offers(question.case(BACKWARD), able)
    return min(offers, key=lambda name: offers[name].us, default="triton")


@functools.lru_cache(maxsize=8)
def module(backend: str) -> ModuleType:
    """The module of a backend, with forward and, but for dense, backward."""
    return BY_NAME[backend].part("attention") if backend in BY_NAME else importlib.import_module(_MODULES[backend])


@functools.lru_cache(maxsize=1024)
def _auto(question: Question) -> Answer:
    if question.device < 0:
        return same(_on_processor(question))
    hurdles = _hurdles(question)
    models = _models(question)
    found = None if isinstance(models, str) else by_models(models, question, hurdles)
    return found or same(by_rule(question, hurdles["triton"]))


def _models(question: Question) -> Models | str:
    return models_for(card_of(question.device))


def _hurdles(question: Question) -> dict[str, str]:
    made_for = {
        name: _why_not_arch(name, question) if question.positive else "the scale is not above 0" for name in BY_NAME
    }
    return {"triton": why_not_triton(question), **made_for, "dense": ""}


def by_models(models: Models, question: Question, hurdles: dict[str, str]) -> Answer | None:
    """The backend that is expected to be the fastest of those without a hurdle; None: nothing like it was measured."""
    hurdles = {**hurdles, "dense": _large(question)} if _is_too_large(question) else hurdles
    able = [name for name in (*SPARSE, "dense") if not hurdles[name]]
    case = question.case(FORWARD)
    offers = models.offers(case, able)
    if question.recorded:
        offers = _with_gradients(offers, question.case(BACKWARD), models)
    if not offers or ("dense" in able) != ("dense" in offers):
        return None
    listed = question.shape == LISTED  # what plain shapes need is made once for a length, not for a mask
    return shortest(offers, {name: models.prepare_us(case, name) for name in offers} if listed else {}, models)


def _with_gradients(forward: dict[str, Estimate], case: AttentionCase, models: Models) -> dict[str, Estimate]:
    """Both passes: torch's gradients belong to torch's output, ours to any of ours."""
    backward = models.offers(case, forward)
    ours = min((backward[name] for name in SPARSE if name in backward), key=lambda one: one.us, default=None)
    behind = {name: backward.get("dense") if name == "dense" else ours for name in forward}
    return {name: together([one, after]) for name, one in forward.items() if (after := behind[name]) is not None}


def by_rule(question: Question, hurdle: str) -> Choice:
    """The careful choice on a GPU that was not measured; hurdle: what keeps the sparse kernel from running."""
    note = "the careful rule for a GPU that was not measured"
    if _has_name(question):
        return Choice("dense", f"torch knows {_words(question)} by name ({note})")
    if hurdle:
        return Choice("dense", hurdle)
    if _is_too_large(question):
        return Choice("triton", f"{_large(question)} ({note})")
    if question.share > SPARSE_SHARE:
        return Choice("dense", f"up to {question.share:.3f} of the blocks, more than {SPARSE_SHARE:g} ({note})")
    return Choice("triton", f"up to {question.share:.3f} of the blocks, at most {SPARSE_SHARE:g} ({note})")


def _on_processor(question: Question) -> Choice:
    if _has_name(question):
        return Choice("dense", f"on the processor; torch knows {_words(question)} by name")
    if question.share <= CPU_SHARE:
        return Choice("reference", f"on the processor, up to {question.share:.3f} of the blocks, at most {CPU_SHARE:g}")
    if _is_too_large(question):
        return Choice("reference", f"on the processor; {_large(question)}")
    return Choice("dense", f"on the processor, up to {question.share:.3f} of the blocks, more than {CPU_SHARE:g}")


def _is_too_large(question: Question) -> bool:
    return not _has_name(question) and _mask_bytes(question) > MASK_BYTES


def _large(question: Question) -> str:
    size = _mask_bytes(question) / (1 << 30)
    return f"the mask as a tensor for torch would take {size:.1f} GiB, more than {MASK_BYTES / (1 << 30):g}"


def _mask_bytes(question: Question) -> int:
    return question.lists * question.lengths[0] * question.lengths[1] * question.dtype.itemsize


def _has_name(question: Question) -> bool:
    """Whether torch needs no tensor for the mask."""
    if question.shape != LOWER_RIGHT:
        return question.shape != LISTED
    return question.device >= 0 and flash_knows(question.shape, question.lengths, question.dtype, question.head_dim)


def _words(question: Question) -> str:
    return "full attention" if question.shape == "full" else "causal attention"


def why_not_triton(question: Question) -> str:
    """What keeps the portable kernels from running this, e.g. 'triton is not installed'; empty: nothing."""
    low, high = TRITON_HEAD_DIMS
    if not low <= question.head_dim <= high:
        return f"the sparse kernels take head dims of {low} to {high}, not {question.head_dim}"
    return why_no_triton_here(question.device, question.dtype) if question.device >= 0 else ""


def _why_not_arch(name: str, question: Question) -> str:
    hurdle: str = module(name).why_not(question.device, question.dtype, question.head_dim, question.block)
    return hurdle


def _require(name: str, question: Question) -> None:
    require(
        name, question.device, lambda: why_not_triton(question) if name == "triton" else _why_not_arch(name, question)
    )


ASKING = Asking(_auto, _require)

"""Which backend computes attention, and why.

A named backend is taken as named. `auto` takes what measurements of this GPU model say (rows.py) where there are any.
Without them the rule is a careful one: torch's own kernels for the two shapes they know by name, a sparse kernel where
most blocks need not be computed, and torch's with the mask as a tensor above that, unless such a tensor would be large.
sm90 is taken only where it was measured to win, or by name. Gradients: backward_of.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.dense import flash_knows
from firstlight.kernels.block_attention.rows import Row, nearest, rows_for, times_at
from firstlight.kernels.block_attention.seen import LISTED, LOWER_RIGHT, Seen
from firstlight.kernels.choose import BACKENDS, Choice
from firstlight.kernels.choose import why_not_triton as why_no_triton_here

SPARSE_SHARE = 0.3  # a sparse kernel is taken up to this share of the blocks on a GPU that was not measured
# On a processor the reference goes through the lists one by one: against torch's kernel on one core it wins up to
# 0.3 with one list for all heads, up to 0.1 to 0.25 with one for each (1024 and 2048 long, float32, head dim 64).
CPU_SHARE = 0.15
SM90_GRADIENT_BLOCK = 128  # the block that sm90 has a kernel of its own for; for others its gradients are triton's
MASK_BYTES = 1 << 31  # of a mask as torch takes it, with a place for every query and key: no larger one is made unasked
TRITON_HEAD_DIMS = (16, 256)
_MODULES = {
    "sm90": "firstlight.kernels.sm90.attention",
    "triton": "firstlight.kernels.block_attention.triton",
    "dense": "firstlight.kernels.block_attention.dense",
    "reference": "firstlight.kernels.block_attention.reference",
}


generation = 0  # counts forget_choices: what was kept of an older one is not taken


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


def question_of(q: Tensor, seen: Seen, scale: float = 1.0) -> Question:
    """What the choice for a call depends on."""
    lengths = (seen.q_len, seen.k_len)
    return Question(
        q.get_device(), q.dtype, q.shape[3], seen.shape, seen.block, seen.share, lengths, seen.lists, scale > 0.0
    )


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
    """Makes the next calls choose anew, e.g. after new measurements were written."""
    global generation
    generation += 1
    _auto.cache_clear()
    _behind_torch.cache_clear()
    rows_for.cache_clear()


def backward_of(backend: str, question: Question, *, asked: str = "auto") -> str:
    """Which backend computes the gradients of an output that `backend` computed: not every one can.

    sm90's are its own, and where a caller leaves the choice to us also those behind torch's output, if this GPU is one
    on which sm90 was measured. Without triton, which computes the sums of the rows for both, they are the reference's.
    """
    if backend in ("triton", "reference"):
        return backend
    if question.device < 0 or why_not_triton(question):
        return "reference"
    if backend == "sm90":
        return "sm90"
    return _behind_torch(question) if asked == "auto" else "triton"


@functools.lru_cache(maxsize=1024)
def _behind_torch(question: Question) -> str:
    """Who computes gradients of an output of torch's that was made with its lse, of which torch has none."""
    if question.block != SM90_GRADIENT_BLOCK or not question.positive:
        return "triton"
    return "sm90" if _names_sm90(_rows_of(question)) and not _why_not_sm90(question) else "triton"


@functools.lru_cache(maxsize=8)
def module(backend: str) -> ModuleType:
    """The module of a backend, with forward and, but for dense, backward."""
    return importlib.import_module(_MODULES[backend])


@functools.lru_cache(maxsize=1024)
def _auto(question: Question) -> Choice:
    if question.device < 0:
        return _on_processor(question)
    hurdles = {"triton": why_not_triton(question), "dense": ""}
    rows = _rows_of(question)
    if _names_sm90(rows):  # without measurements it is not even looked for
        hurdles["sm90"] = _why_not_sm90(question) if question.positive else "the scale is not above 0"
    return by_rows(rows, question, hurdles) or by_rule(question, hurdles["triton"])


def _rows_of(question: Question) -> tuple[Row, ...]:
    return rows_for(torch.cuda.get_device_name(question.device))


def _names_sm90(rows: tuple[Row, ...]) -> bool:
    return any(backend == "sm90" for row in rows for backend, _ in row.us)


def by_rows(rows: tuple[Row, ...], question: Question, hurdles: dict[str, str]) -> Choice | None:
    """The backend with the shortest time in the nearest measured row, of those without a hurdle; None: no such row."""
    (q_len, k_len), dtype = question.lengths, str(question.dtype).removeprefix("torch.")
    row = nearest(rows, Row(question.shape, question.block, dtype, question.head_dim, q_len, k_len, ()))
    if row is None:
        return None
    times = {name: time for name, time in times_at(row, question.share).items() if not hurdles.get(name, "unknown")}
    if _is_too_large(question):
        times.pop("dense", None)
    if not times:
        return None
    best = min(times, key=lambda name: times[name])
    words = ", ".join(f"{name} {time:.1f} us" for name, time in sorted(times.items(), key=lambda item: item[1]))
    return Choice(best, f"measured at {row.q_len} x {row.k_len} with {question.share:.3f} of the blocks: {words}")


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
        return Choice("dense", f"{question.share:.3f} of the blocks are above {SPARSE_SHARE:g} ({note})")
    return Choice("triton", f"{question.share:.3f} of the blocks are at most {SPARSE_SHARE:g} ({note})")


def _on_processor(question: Question) -> Choice:
    if _has_name(question):
        return Choice("dense", f"on the processor; torch knows {_words(question)} by name")
    if question.share <= CPU_SHARE:
        return Choice("reference", f"on the processor, {question.share:.3f} of the blocks are at most {CPU_SHARE:g}")
    if _is_too_large(question):
        return Choice("reference", f"on the processor; {_large(question)}")
    return Choice("dense", f"on the processor, {question.share:.3f} of the blocks are above {CPU_SHARE:g}")


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


def _require_triton(question: Question) -> None:
    if question.device < 0 and os.environ.get("TRITON_INTERPRET") != "1":
        raise UnsupportedInput(
            "backend 'triton' was given tensors on the processor; it takes tensors on a CUDA device. Move them there, "
            "or use backend='reference' (TRITON_INTERPRET=1 runs the kernels in Triton's interpreter, for tests)."
        )
    if hurdle := why_not_triton(question):
        raise UnsupportedInput(f"backend 'triton' cannot run here: {hurdle}. Use backend='auto' or 'dense'.")


def _require_sm90(question: Question) -> None:
    if question.device < 0:
        raise UnsupportedInput(
            "backend 'sm90' was given tensors on the processor; it takes tensors on an H100 or H200. Move them there, "
            "or use backend='reference'."
        )
    if hurdle := _why_not_sm90(question):
        raise UnsupportedInput(f"backend 'sm90' cannot run here: {hurdle}. Use backend='auto'.")


def _why_not_sm90(question: Question) -> str:
    hurdle: str = module("sm90").why_not(question.device, question.dtype, question.head_dim, question.block)
    return hurdle

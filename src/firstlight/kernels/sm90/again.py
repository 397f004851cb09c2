"""A product or sampled product started again: launches are kept by the addresses they were made for.

An allocator that reuses memory comes back to the same addresses, so in a steady loop nothing is put together again and
no tensor map is encoded. A launch names addresses and holds no tensor; the lists stay as long as this does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import DEFAULT_STREAM, Held, held_after, use
from firstlight.kernels.memo import TensorMemo, keepable
from firstlight.kernels.prepared import empty_on
from firstlight.kernels.product import Epilogue
from firstlight.kernels.sm90.driver import Launch
from firstlight.kernels.sm90.lists import steps_of
from firstlight.kernels.sm90.multiply_plan import Addresses, MultiplyPlan, plan_of
from firstlight.kernels.sm90.problem import Problem
from firstlight.kernels.sm90.sample_plan import SampleAddresses, SamplePlan, Sampling
from firstlight.kernels.sm90.sample_plan import plan_of as plan_of_sample
from firstlight.kernels.sm90.steps import Steps
from firstlight.kernels.sm90.variants import SAMPLED
from firstlight.kernels.sm90.workspace import Control, control_of
from firstlight.kernels.torch_private import is_capturing, raw_stream

MOST_KEPT = 512  # sets of addresses for one product, about 2 kB each
# where dense, values and the result lie, the stream, and where bias, addend and scratch do, if there is any; 0: none
Key = tuple[int, ...]
NO_OTHERS = (0, 0, 0)
_raw_stream, _is_capturing = raw_stream, is_capturing


class Started(NamedTuple):
    """The launches of one set of addresses and the zeros they name."""

    launches: tuple[Launch, ...]
    control: Control


def keep_started(known: dict[Any, Started], key: Any, made: Started) -> None:
    """Keeps launches for their addresses; not those being captured, which name memory of the graph."""
    if not _is_capturing():
        if len(known) >= MOST_KEPT:
            known.clear()
        known[key] = made


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class ProductAgain:
    """A launch as firstlight.kernels.prepared wants it."""

    __slots__ = (
        "_arrivals", "_device", "_empty", "_epilogue", "_index", "_known", "_lists", "_ordinal", "_plan", "_room",
    )  # fmt: skip

    def __init__(self, plan: MultiplyPlan, index: Index, epilogue: Epilogue) -> None:
        self._plan, self._lists, self._index = plan, plan.lists(index), index.held
        self._epilogue = Epilogue(epilogue.alpha, epilogue.beta, None, None, epilogue.activation, epilogue.second)
        self._ordinal, self._device = plan.problem.device, index.columns.device
        self._arrivals, self._room = plan.arrivals(self._lists), (plan.scratch_bytes(self._lists),)
        self._empty = empty_on(self._device)
        self._known: dict[Key, Started] = {}

    @property
    def first_list(self) -> Tensor:
        """One of the tensors that this holds."""
        found = self._lists.tensors[0]
        assert found is not None, self._plan.problem
        return found

    def __call__(
        self, values: Tensor, dense: Tensor, out: Tensor, bias: Tensor | None, addend: Tensor | None,
        addresses: tuple[int, int],
    ) -> None:  # fmt: skip
        stream = _raw_stream(self._ordinal)
        key: Key = (*addresses, out.data_ptr(), stream)
        if bias is not None or addend is not None or self._room[0]:
            scratch = self._empty(self._room, (1,), torch.uint8) if self._room[0] else None  # lives to the launch
            key += (_address(bias), _address(addend), _address(scratch))
        found = self._known.get(key) if stream == DEFAULT_STREAM or not _is_capturing() else None
        if found is None:
            found = self._put_together(key)
        for launch in found.launches:
            launch.start(stream)

    def _put_together(self, key: Key) -> Started:
        dense, values, out, stream = key[:4]
        bias, addend, scratch = key[4:] or NO_OTHERS
        use(self._lists.held, self._index)  # a launch that is found again is of the same stream
        control = control_of(self._device, stream, arrivals=self._arrivals)
        at = Addresses(values, dense, out, bias, addend, scratch, control.queue, control.arrivals)
        made = Started(self._plan.launches(self._lists, at, self._epilogue), control)
        keep_started(self._known, key, made)
        return made


class SampleAgain:
    """The same for sampled products."""

    __slots__ = ("_alpha", "_arrivals", "_device", "_empty", "_held", "_known", "_ordinal", "_plan", "_room", "_steps")

    def __init__(self, plan: SamplePlan, steps: Steps, alpha: float, device: torch.device) -> None:
        self._plan, self._steps, self._alpha = plan, steps, alpha
        self._held: Held | None = None  # where it is kept
        self._ordinal, self._device = plan.sampling.device, device
        self._arrivals, self._room = plan.arrivals(steps), (plan.scratch_bytes(steps),)
        self._empty = empty_on(device)
        self._known: dict[tuple[int, ...], Started] = {}

    def hold(self) -> None:
        """For later calls, which may come on another stream."""
        self._held = held_after(*self._steps.tensors)

    def __call__(self, a: Tensor, b: Tensor, out_values: Tensor) -> None:
        scratch = self._empty(self._room, (1,), torch.uint8) if self._room[0] else None
        stream = _raw_stream(self._ordinal)
        place = 0 if scratch is None else scratch.data_ptr()
        key = (a.data_ptr(), b.data_ptr(), out_values.data_ptr(), stream, place)
        found = self._known.get(key) if stream == DEFAULT_STREAM or not _is_capturing() else None
        if found is None:
            use(self._held)
            control = control_of(self._device, stream, arrivals=self._arrivals)
            at = SampleAddresses(key[0], key[1], key[2], place, control.queue, control.arrivals)
            found = Started(self._plan.launches(self._steps, at, self._alpha), control)
            keep_started(self._known, key, found)
        for launch in found.launches:
            launch.start(stream)


_PRODUCTS: TensorMemo[ProductAgain] = TensorMemo()
_SAMPLES: TensorMemo[SampleAgain] = TensorMemo()
MOST_PRODUCTS = 1024  # a server whose batches have thousands of sizes starts over now and then


def product_of(index: Index, problem: Problem, epilogue: Epilogue) -> ProductAgain:
    """The product of an index, kept as long as the index's tensors live unchanged; what the epilogue does counts."""
    global _PRODUCTS
    tag = (problem, epilogue.alpha, epilogue.beta, epilogue.activation._value_, epilogue.second._value_)
    found = _PRODUCTS.get(index.row_starts, index.columns, tag)
    if found is None:
        if len(_PRODUCTS) >= MOST_PRODUCTS:
            _PRODUCTS = TensorMemo()
        found = ProductAgain(plan_of(problem, index), index, epilogue)
        if keepable(index.row_starts, found.first_list):
            _PRODUCTS.put(index.row_starts, index.columns, found, tag)
    return found


def sample_of(index: Index, sampling: Sampling, alpha: float) -> SampleAgain:
    """The sampled product of an index, kept likewise."""
    global _SAMPLES
    tag = (sampling, alpha)
    found = _SAMPLES.get(index.row_starts, index.columns, tag)
    if found is None:
        if len(_SAMPLES) >= MOST_PRODUCTS:
            _SAMPLES = TensorMemo()
        with torch.inference_mode(mode=False):
            steps = steps_of(index, width=SAMPLED.tokens // index.block, grouped=False)
        found = SampleAgain(plan_of_sample(sampling), steps, alpha, index.columns.device)
        if keepable(index.row_starts, steps.columns):
            found.hold()
            _SAMPLES.put(index.row_starts, index.columns, found, tag)
    return found

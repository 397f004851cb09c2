"""The buffers and calls of a user's case, its check before the first pass and the audit after every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import CLOCK_MONOTONIC_RAW, clock_gettime_ns, sleep  # held since before a user's file was read
from typing import TYPE_CHECKING, Any

from firstlight.bench.case import Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import is_cpu
from firstlight.bench.cases.settings import settings_for, under
from firstlight.bench.user_cases import guards
from firstlight.bench.user_cases.declare import Maker, UserCase
from firstlight.bench.user_cases.seal import Seal
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

Binder = Callable[[tuple[Any, ...], tuple[Any, ...]], Callable[[], Any]]  # (inputs, outputs) to one call on them
FIRST_LOOK = 1 << 16  # random sources of looks lie behind those of the buffer sets
LATE_S = 0.05  # given to a thread that works on after the call has returned
CALLS_BY_OTHER_CLOCK = 10
PAUSE_S = 0.02
PATIENCE_BY_OTHER_CLOCK_S = 5.0  # a busy machine can slow ten calls in a row a hundredfold; a cheat stays slow


@dataclass(frozen=True, slots=True)
class BoundCase:
    """A case of the user's with the way to call it and the seal of the instruments."""

    case: UserCase
    bind: Binder
    instruments: Seal
    case_id: str


@dataclass(frozen=True, slots=True)
class Buffers:
    """One set: inputs, declared outputs, a box for what `run` returns, and the call on them."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    box: list[Any]
    call: Callable[[], Any]

    def results(self, case: UserCase) -> tuple[Any, ...]:
        """What the last call made: declared outputs, or what it returned, or the inputs that it overwrites."""
        if self.outputs:
            return self.outputs
        if self.box and self.box[0] is not None:
            return as_tuple(self.box[0])
        return tuple(self.inputs[place] for place in case.in_place)


def prepare(plan: BoundCase, place: Place, sets: int) -> Prepared:
    """Sets of buffers with numbers of their own; looks at fresh numbers happen in `check` and `audit`."""
    buffers = tuple(_buffers(plan, place, part) for part in range(sets))
    looks = Looks(plan, place)

    def check() -> float:
        guards.instruments_whole(plan.instruments)
        for each in _ends(buffers):
            guards.varied_inputs(plan.case, each.inputs)
        error = looks.first(buffers[0])
        if error <= guards.tolerance_of(plan.case):
            for each in _ends(buffers):
                looks.fresh(each, when="before timing")
            looks.device_guards(buffers[0])
        guards.instruments_whole(plan.instruments)
        _forget_peak(place)
        return error

    def audit(seconds: float) -> None:
        guards.instruments_whole(plan.instruments)
        for each in _ends(buffers):
            looks.fresh(each, when="after the timed calls")
        if is_cpu(place):
            guards.plausible_time(seconds, by_other_clock=_least_s(buffers[0].call, wanted=guards.SLOWER * seconds))
        guards.instruments_whole(plan.instruments)

    return Prepared(tuple(each.call for each in buffers), check, audit=audit)


class Looks:
    """Looks at the results of a call; each has random numbers that no look before it had."""

    def __init__(self, plan: BoundCase, place: Place) -> None:
        self._plan = plan
        self._case = plan.case
        self._place = place
        self._taken = 0

    def first(self, buffers: Buffers) -> float:
        """The error of the first call, after every guard that needs one call alone."""
        case = self._case
        before = copies(buffers.inputs)
        wanted = self._reference(before)
        guards.varied_reference(wanted)
        guards.reference_not_given(case, before, wanted)
        self._poison(buffers, wanted)
        buffers.call()
        results = buffers.results(case)
        guards.proper_outputs(case, buffers.inputs, results, wanted)
        at_once = copies(results)
        finish(self._place)
        error = guards.worst_error(at_once, wanted)
        if error > guards.tolerance_of(case):
            self._not_late(results, wanted)
        guards.honest_counts(case, buffers.inputs, results, reference_flops=self._flops(before))
        guards.untouched_inputs(case, buffers.inputs, before)
        return error

    def fresh(self, buffers: Buffers, *, when: str) -> None:
        """The same call on new numbers in the same buffers."""
        wanted, before = self.renew(buffers)
        buffers.call()
        results = copies(buffers.results(self._case))
        finish(self._place)
        guards.fresh_enough(self._case, results, wanted, when=when)
        guards.untouched_inputs(self._case, buffers.inputs, before)

    def device_guards(self, buffers: Buffers) -> None:
        """What only a GPU can be asked: streams and graphs."""
        if not is_cpu(self._place):
            from firstlight.bench.user_cases.device_guards import graph_does_the_work, on_the_current_stream

            waits = on_the_current_stream(self, buffers, self._case)
            if not waits:
                graph_does_the_work(self, buffers, self._case)
            buffers.call()
            finish(self._place)

    def renew(self, buffers: Buffers) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        """New numbers in the inputs, NaN in the outputs; gives the reference and a copy of the inputs.

        Written through `.data`, which does not count a tensor's version up: a cache that looks at it sees no change.
        """
        self._taken += 1
        source = data.source(self._plan.case_id, self._place, part=FIRST_LOOK + self._taken)
        made = as_tuple(self._case.inputs(Maker(self._place.device, source)))
        changed = _copied(buffers.inputs, made)
        if not changed:
            raise guards.NotTrusted(
                "constant-data: inputs(make) gives the same numbers each time it is asked, so a kept result could not "
                "be told from a new one; take the numbers from `make`"
            )
        before = copies(buffers.inputs)
        wanted = self._reference(before)
        self._poison(buffers, wanted)
        finish(self._place)
        return wanted, before

    def _reference(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """The reference in double precision."""
        doubles = [_double(each) for each in inputs]
        return as_tuple(under(settings_for("fp64"), partial(self._case.reference, *doubles))())

    def _flops(self, inputs: Sequence[Any]) -> int:
        """FLOP of the reference's products as torch counts them; 0 where the case counts none to compare with.

        Counting costs two seconds of imports.
        """
        if not self._case.flops:
            return 0
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self._reference(inputs)
        return int(counter.get_total_flops())

    def _poison(self, buffers: Buffers, wanted: Sequence[Tensor]) -> None:
        """NaN where the result will be: in the outputs, in the last result, or in memory of that size given back."""
        import torch

        if not buffers.outputs and not buffers.box:
            for each in wanted:
                dtype = data.torch_dtype(self._case.dtype) if each.is_floating_point() else each.dtype
                _poisoned(torch.empty(each.shape, dtype=dtype, device=self._place.device))
            return
        inside = {each.untyped_storage().data_ptr() for each in buffers.inputs if isinstance(each, torch.Tensor)}
        for each in buffers.results(self._case):
            if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() not in inside:
                _poisoned(each)

    def _not_late(self, results: Sequence[Any], wanted: Sequence[Tensor]) -> None:
        sleep(LATE_S)
        finish(self._place)
        if guards.worst_error(results, wanted) <= guards.tolerance_of(self._case):
            raise guards.NotTrusted(
                "late-output: the result was not there when the call had ended, and was a moment later: the work goes "
                "on in a thread or a stream that the clock does not see; wait for it inside of run"
            )


def python_call(run: Callable[..., Any], inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
    """One call of a Python function."""
    return partial(run, *inputs, *outputs)


def as_tuple(given: Any) -> tuple[Any, ...]:
    """What a function of the user returned, as a tuple: one tensor is a tuple of one."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def copies(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of the tensors among them, queued on the current stream."""
    import torch

    return tuple(each.detach().clone() if isinstance(each, torch.Tensor) else each for each in tensors)


def finish(place: Place) -> None:
    """Wait for every stream of the device."""
    if not is_cpu(place):
        import torch

        torch.cuda.synchronize(place.device)


def _buffers(plan: BoundCase, place: Place, part: int) -> Buffers:
    maker = Maker(place.device, data.source(plan.case_id, place, part=part))
    inputs = as_tuple(plan.case.inputs(maker))
    outputs = () if plan.case.outputs is None else as_tuple(plan.case.outputs(maker))
    box: list[Any] = []
    operation = under(settings_for(plan.case.dtype), plan.bind(inputs, outputs))
    return Buffers(inputs, outputs, box, data.holding(operation, box))


def _forget_peak(place: Place) -> None:
    """The memory that the check took, with its doubles and copies, is not the case's."""
    if not is_cpu(place):
        import torch

        torch.cuda.reset_peak_memory_stats(place.device)


def _ends(buffers: tuple[Buffers, ...]) -> tuple[Buffers, ...]:
    return (buffers[0], buffers[-1]) if len(buffers) > 1 else buffers


def _copied(inputs: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether anything differs from before; numbers that are not tensors stay as they are."""
    import torch

    if len(inputs) != len(made):
        raise guards.NotTrusted(f"changed-shape: inputs(make) gave {len(inputs)} inputs, and then {len(made)}")
    changed = not any(isinstance(each, torch.Tensor) for each in inputs)
    for place, (old, new) in enumerate(zip(inputs, made, strict=True)):
        if not isinstance(old, torch.Tensor):
            continue
        if old.shape != new.shape or old.dtype is not new.dtype:
            raise guards.NotTrusted(f"changed-shape: input {place} was {tuple(old.shape)}, and then {tuple(new.shape)}")
        changed = changed or not torch.equal(old, new)
        old.data.copy_(new)
    return changed


def _poisoned(tensor: Tensor) -> None:
    import torch

    if tensor.dtype is torch.bool:
        tensor.data.logical_not_()
    else:
        data.poison(tensor.data)


def _double(each: Any) -> Any:
    import torch

    return each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each


def _least_s(call: Callable[[], Any], *, wanted: float) -> float:
    """The shortest of ten calls; of more tens, for up to five seconds, as long as none is as short as wanted.

    A pause before each ten lets threads that share a busy processor start together.
    """
    least = inf
    began = clock_gettime_ns(CLOCK_MONOTONIC_RAW)
    while True:
        for _ in range(CALLS_BY_OTHER_CLOCK):
            started = clock_gettime_ns(CLOCK_MONOTONIC_RAW)
            call()
            ended = clock_gettime_ns(CLOCK_MONOTONIC_RAW)
            least = min(least, (ended - started) / 1e9)
        if least <= wanted or (ended - began) / 1e9 > PATIENCE_BY_OTHER_CLOCK_S:
            return least
        sleep(PAUSE_S)

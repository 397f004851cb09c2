"""Why a figure would say nothing: the usual ways in which a kernel only looks fast, each with its sentence.

Every guard raises NotTrusted or returns. What they are for is in docs/bench-cases.md, with a planted example of each
under examples/user_kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firstlight.bench.cases import data
from firstlight.bench.user_cases.declare import UserCase
from firstlight.bench.user_cases.seal import Seal
from firstlight.errors import FirstlightError

if TYPE_CHECKING:
    from torch import Tensor

LOOKED_AT = 4096  # elements of an input that are looked at for repetition
REPEATED = 0.5  # of them the same number: the multipliers and the wires between them idle
FEW_VALUES = 16
OVERCOUNTED = 1.02  # of the flops that torch counts in the reference
SLOWER = 5.0  # times the figure, by a clock that the file could not reach
SHORT_S = 50e-6  # below it, a processor's call is mostly Python


class NotTrusted(FirstlightError):
    """A guard spoke: the text starts with its name, e.g. 'cached-output: ...'."""

    exit_code = 1


def instruments_whole(seal: Seal) -> None:
    """patched-instrument: a clock, an event, a comparison or a part of the stopwatch was replaced."""
    if broken := seal.broken():
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise NotTrusted(
            f"patched-instrument: {', '.join(broken[:3])}{more} changed after the file of cases was read; a time or a "
            "check made with it means nothing"
        )


def varied_inputs(case: UserCase, inputs: Sequence[Any]) -> None:
    """constant-data: zeros and repeated numbers switch fewer wires, so the clock stays higher (13 % on an H200)."""
    for place, tensor in enumerate(inputs):
        if not _is_float(tensor) or tensor.numel() < FEW_VALUES or place in case.may_repeat:
            continue
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // LOOKED_AT)
        some = flat[::step][:LOOKED_AT].double()
        _, counts = some.unique(return_counts=True)
        share = float(counts.max().item()) / some.numel()
        if len(counts) < min(FEW_VALUES, some.numel() // 2) or share > REPEATED:
            raise NotTrusted(
                f"constant-data: input {place} has {len(counts)} different numbers in {some.numel()}, the commonest in "
                f"{100 * share:.0f} % of them; use make.normal, or say may_repeat=({place},) where it has to be so"
            )


def varied_reference(wanted: Sequence[Tensor]) -> None:
    """constant-output: a reference that is one number everywhere proves nothing of the kernel."""
    for place, tensor in enumerate(wanted):
        if tensor.numel() >= FEW_VALUES and bool((tensor == tensor.reshape(-1)[0]).all().item()):
            raise NotTrusted(
                f"constant-output: the reference's output {place} is one number everywhere, which any kernel could "
                "fill in; choose inputs for which the result varies"
            )


def reference_not_given(case: UserCase, inputs: Sequence[Any], wanted: Sequence[Tensor]) -> None:
    """given-answer: an input that is the result but for its rounding; one that is it exactly makes the case a copy."""
    for place, tensor in enumerate(inputs):
        for answer in wanted:
            alike = _is_float(tensor) and tensor.shape == answer.shape and answer.numel() >= FEW_VALUES
            if alike and 0 < data.relative_error(tensor, answer) <= tolerance_of(case):
                raise NotTrusted(f"given-answer: input {place} already is the result; compute it inside of run")


def honest_counts(case: UserCase, inputs: Sequence[Any], outputs: Sequence[Tensor], *, reference_flops: int) -> None:
    """inflated-count: more bytes than the buffers have, or more products than the reference makes."""
    buffers = bytes_of(inputs) + bytes_of(outputs)
    if case.bytes > buffers:
        raise NotTrusted(
            f"inflated-count: bytes is {case.bytes}, and inputs and outputs together have {buffers}; each input is "
            "counted as read once, each output as written once"
        )
    elements = sum(each.numel() for each in outputs)
    if reference_flops and case.flops > OVERCOUNTED * reference_flops + 16 * elements:
        raise NotTrusted(
            f"inflated-count: flops is {case.flops:.4g}; the reference makes {reference_flops:.4g} in its products, "
            f"and 16 for each of {elements} outputs would be accepted on top"
        )


def proper_outputs(case: UserCase, inputs: Sequence[Any], outputs: Sequence[Any], wanted: Sequence[Tensor]) -> None:
    """lazy-output, aliased-output: results are plain tensors of the named type with memory of their own."""
    import torch

    if len(outputs) != len(wanted):
        raise NotTrusted(f"wrong-shape: run gives {len(outputs)} outputs, the reference {len(wanted)}")
    own = {_storage(each): place for place, each in enumerate(inputs) if isinstance(each, torch.Tensor)}
    for place, (tensor, answer) in enumerate(zip(outputs, wanted, strict=True)):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise NotTrusted(
                f"lazy-output: output {place} is a {type(tensor).__name__}; only a torch.Tensor surely holds its "
                "numbers when the clock stops"
            )
        if tensor.shape != answer.shape:
            raise NotTrusted(
                f"wrong-shape: output {place} is {tuple(tensor.shape)}, the reference's {tuple(answer.shape)}"
            )
        if tensor.is_floating_point() and tensor.dtype is not data.torch_dtype(case.dtype):
            raise NotTrusted(f"wrong-type: output {place} is {tensor.dtype} in a case of {case.dtype}")
        source = own.get(_storage(tensor))
        if source is not None and source not in case.in_place:
            raise NotTrusted(
                f"aliased-output: output {place} lies in the memory of input {source}; say in_place=({source},) if run "
                "is meant to overwrite it"
            )


def untouched_inputs(case: UserCase, inputs: Sequence[Any], before: Sequence[Any]) -> None:
    """changed-input: what the first call leaves behind (sorted, packed, zeroed) makes the next ones cheaper."""
    import torch

    for place, (now, then) in enumerate(zip(inputs, before, strict=True)):
        if isinstance(now, torch.Tensor) and place not in case.in_place and not _same(now, then):
            raise NotTrusted(
                f"changed-input: run changed input {place}, so the next call does other work; copy it inside of run, "
                f"or say in_place=({place},)"
            )


def plausible_time(seconds: float, *, by_other_clock: float) -> None:
    """other-clock: the same calls by a clock that was taken before the file was read."""
    if by_other_clock > SHORT_S and by_other_clock > SLOWER * seconds:
        raise NotTrusted(
            f"other-clock: the figure is {1e3 * seconds:.3g} ms a call, and the same calls right after it took "
            f"{1e3 * by_other_clock:.3g} ms at best; the timed calls did less"
        )


def fresh_enough(case: UserCase, outputs: Sequence[Tensor], wanted: Sequence[Tensor], *, when: str) -> None:
    """cached-output: right for the first inputs, wrong for new ones in the same buffers."""
    error = worst_error(outputs, wanted)
    if error > tolerance_of(case):
        raise NotTrusted(
            f"cached-output: {when}, with new numbers in the same input buffers, the relative error is {error:.3g} "
            f"(accepted: {tolerance_of(case):.3g}); an earlier result was returned, or the work was not done"
        )


def tolerance_of(case: UserCase) -> float:
    """The largest relative error: the user's, or that of the dtype (5e-5 for fp32)."""
    return float(case.tolerance) or data.TOLERANCE[case.dtype]


def worst_error(outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest relative error of all outputs; infinite where shapes differ."""
    if len(outputs) != len(wanted):
        return math.inf
    return max(_error(got, answer) for got, answer in zip(outputs, wanted, strict=True))


def bytes_of(tensors: Sequence[Any]) -> int:
    """Memory of tensors, each piece counted once and no more of it than is used."""
    import torch

    found: dict[tuple[int, int], int] = {}
    for each in tensors:
        if isinstance(each, torch.Tensor):
            key = (_storage(each), int(each.storage_offset()))
            found[key] = max(found.get(key, 0), each.numel() * each.element_size())
    return sum(found.values())


def _error(got: Tensor, wanted: Tensor) -> float:
    if wanted.is_floating_point() and bool((wanted == 0).all().item()):
        return 0.0 if bool((got == 0).all().item()) else math.inf
    return data.relative_error(got, wanted)


def _same(now: Tensor, then: Tensor) -> bool:
    """Bit for bit: a NaN that stays is no change."""
    import torch

    return bool(torch.equal(_bits(now), _bits(then)))


def _bits(tensor: Tensor) -> Tensor:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _is_float(tensor: Any) -> bool:
    import torch

    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr()) if tensor.device.type != "meta" else id(tensor)

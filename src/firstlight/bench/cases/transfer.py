"""Copies over links: host memory to the GPU and back, GPU to GPU. The size counts once per direction.

Set sizes are those of one GPU's memory: host buffers do not compete for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import operator_counts
from firstlight.bench.case import Cache, Case, Effort, Mode, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.links import link_between
from firstlight.bench.cases.needs import is_cpu
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

MIB = 1 << 20
HOST_MIB = 256
MATRIX_MIB = 256
SWEEP_MIB = (1, 10, 100, 500, 1000)
ELEMENT = 4  # fp32
COPY_TOLERANCE = 1e-12  # a copy is exact


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A copy between host memory and the device."""

    case_id: str
    direction: str  # h2d or d2h
    memory: str  # pinned or pageable
    size: int


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """A copy from one GPU to another, or both ways at once."""

    case_id: str
    pairs: tuple[tuple[int, int], ...]  # (source, target)
    size: int


def cases(place: Place) -> tuple[Case, ...]:
    """Host copies, then every ordered pair of GPUs, or one skipped row that says why there is none."""
    return (*_host_cases(), *peer_cases(gpu_count(), link_between))


def gpu_count() -> int:
    """GPUs that torch sees; none where there is no torch and the cases are only listed."""
    try:
        import torch
    except (ImportError, OSError):
        return 0
    return torch.cuda.device_count()


def _host_cases() -> tuple[Case, ...]:
    return tuple(
        host_case(direction, memory, HOST_MIB, effort=Effort.QUICK if memory == "pinned" else Effort.STANDARD)
        for memory in ("pinned", "pageable")
        for direction in ("h2d", "d2h")
    )


def host_case(direction: str, memory: str, mib: int, *, effort: Effort = Effort.QUICK) -> Case:
    """One copy between host and device, e.g. transfer/h2d/pinned/256MiB."""
    case_id = f"transfer/{direction}/{memory}/{mib}MiB"
    size = mib * MIB
    return Case(
        id=case_id,
        family="transfer",
        params=(("direction", direction), ("host_memory", memory), ("size_bytes", str(size))),
        dtype="fp32",
        work=operator_counts.transfer(size),
        peak="link",
        prepare=partial(prepare_host_copy, HostCopy(case_id, direction, memory, size)),
        set_bytes=size,
        tolerance=COPY_TOLERANCE,
        cache=Cache.WARM,
        # The driver stages a pageable copy through its own buffers while the caller waits: only the wall clock sees it.
        mode=Mode.DEVICE if memory == "pinned" else Mode.HOST,
        least_effort=effort,
    )


def prepare_host_copy(copy: HostCopy, place: Place, sets: int) -> Prepared:
    """A host buffer, pinned or not, and a device buffer of one size."""
    import torch

    pin = copy.memory == "pinned" and not is_cpu(place)
    pairs: list[tuple[Tensor, Tensor]] = []
    for part in range(sets):
        device = data.normal((copy.size // ELEMENT,), "fp32", data.source(copy.case_id, place, part=part))
        host = torch.empty((copy.size // ELEMENT,), dtype=torch.float32, pin_memory=pin)
        host.copy_(device)
        pairs.append((host, device) if copy.direction == "d2h" else (device, host))
    calls = tuple(partial(target.copy_, start, non_blocking=pin) for target, start in pairs)
    return Prepared(calls, partial(_copy_error, calls[0], pairs[:1], place=place), flags=() if pin else ("uncaptured",))


def _copy_error(call: Callable[[], Any], pairs: list[tuple[Tensor, Tensor]], *, place: Place) -> float:
    """0 when every byte arrived, infinite otherwise; targets are poisoned first."""
    import torch

    for target, _ in pairs:
        data.poison(target)
    call()
    if not is_cpu(place):
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)
    return 0.0 if all(torch.equal(target.cpu(), start.cpu()) for target, start in pairs) else math.inf


def peer_cases(gpus: int, link_of: Callable[[int, int], str]) -> tuple[Case, ...]:
    """The matrix of every ordered pair; the first pair also by size and both ways at once."""
    if gpus < 2:
        needs = f"copies between GPUs need two GPUs; torch sees {gpus}"
        return (_peer_case(((0, 1),), MATRIX_MIB, link="unknown", needs=needs),)
    matrix = [(source, target) for source in range(gpus) for target in range(gpus) if source != target]
    first = ((0, 1),)
    sweep = (_peer_case(first, mib, link=link_of(0, 1)) for mib in SWEEP_MIB)
    return (
        *(_peer_case((pair,), MATRIX_MIB, link=link_of(*pair)) for pair in matrix),
        *sweep,
        _peer_case(((0, 1), (1, 0)), SWEEP_MIB[-1], link=link_of(0, 1)),
    )


def _peer_case(pairs: tuple[tuple[int, int], ...], mib: int, *, link: str, needs: str = "") -> Case:
    source, target = pairs[0]
    both = len(pairs) > 1
    case_id = f"transfer/gpu{source}-gpu{target}/{mib}MiB" + ("/both-ways" if both else "")
    size = mib * MIB
    return Case(
        id=case_id,
        family="transfer",
        params=(
            ("direction", "both ways, sum of both" if both else "one way"),
            ("source", str(source)),
            ("target", str(target)),
            ("link", link),
            ("size_bytes", str(size)),
        ),
        dtype="fp32",
        work=operator_counts.transfer(size * len(pairs)),
        peak="link",
        prepare=partial(prepare_peer_copy, PeerCopy(case_id, pairs, size)),
        set_bytes=size * len(pairs),
        tolerance=COPY_TOLERANCE,
        cache=Cache.WARM,
        least_effort=Effort.STANDARD,
        needs=needs,
    )


def prepare_peer_copy(copy: PeerCopy, place: Place, sets: int) -> Prepared:
    """Copies on streams of the source GPUs that start after, and end before, what surrounds them on place's stream."""
    import torch

    groups: list[list[tuple[Tensor, Tensor]]] = []
    for part in range(sets):
        group = []
        for source, target in copy.pairs:
            there = Place(f"cuda:{source}", place.l2_bytes, place.free_bytes, place.capability)
            start = data.normal((copy.size // ELEMENT,), "fp32", data.source(copy.case_id, there, part=part))
            group.append((torch.empty_like(start, device=f"cuda:{target}"), start))
        groups.append(group)
    cuda: Any = torch.cuda
    streams = [cuda.Stream(source) for source, _ in copy.pairs]

    def all_at_once(group: list[tuple[Tensor, Tensor]]) -> None:
        here = torch.cuda.current_stream(place.device)
        for stream, (target, start) in zip(streams, group, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                target.copy_(start, non_blocking=True)
        for stream in streams:
            here.wait_stream(stream)

    calls = tuple(partial(all_at_once, group) for group in groups)
    return Prepared(calls, partial(_copy_error, calls[0], groups[0], place=place), flags=("uncaptured",))

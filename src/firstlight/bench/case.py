"""A case is data: what is run, what work it does, how it is checked. The stopwatch and the limits live elsewhere."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from firstlight.bench.operator_counts import Work
from firstlight.frozen import dataclass


class Cache(enum.Enum):
    """What the L2 cache holds when a call starts."""

    COLD = "cold"  # inputs and outputs are rotated or the cache is flushed
    WARM = "warm"  # the same buffers every call
    LARGE = "n/a"  # the working set is at least four times the L2: it makes no difference


class Mode(enum.Enum):
    """Whose time is the headline."""

    DEVICE = "device"  # events on a pre-blocked stream, or a graph: no launch gaps
    HOST = "host"  # wall time of an eager call and a synchronisation: what a user of eager mode waits for


class Effort(enum.Enum):
    """How long a run may take."""

    QUICK = "quick"
    STANDARD = "standard"
    RIGOROUS = "rigorous"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a case runs: device 'cuda:0' or 'cpu', with what is needed to choose sizes and rotation."""

    device: str
    l2_bytes: int
    free_bytes: int
    capability: tuple[int, int]  # (9, 0); (0, 0) on a CPU


def unaudited(_: float) -> None:
    """Our own cases are looked at before they are timed, and not again."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case with its buffers: every element of `calls` runs the operation once on buffers of its own.

    `check` gives the largest error against a higher-precision reference on a slice, relative to the reference's norm.
    `audit` gets the seconds of a call after each pass, and raises where they are not to be trusted.
    """

    calls: tuple[Callable[[], Any], ...]
    check: Callable[[], float]
    flags: tuple[str, ...] = ()  # e.g. uncaptured, algorithmic
    audit: Callable[[float], None] = unaudited


@dataclass(frozen=True, slots=True)
class LinkLimit:
    """The link that a case goes over, by name, and GB/s each way; None where that is not known."""

    name: str  # NV18 (NVLink 4.0), PCIe 5.0 x16 through the host
    gbps: float | None = None
    ceiling_gbps: float | None = None  # above this it cannot be, where that is more: a switch that adds up


@dataclass(frozen=True, slots=True)
class Case:
    """One measured thing, e.g. gemm/fp16/8192x8192x8192; the id is stable for ever."""

    id: str
    family: str
    params: tuple[tuple[str, str], ...]  # every parameter, as text: ("m", "8192")
    dtype: str
    work: Work
    peak: str  # the row of the peak table it is held against: fp16, tf32, fp8, ..., bandwidth, link, none
    prepare: Callable[[Place, int], Prepared]  # (place, number of buffer sets wanted)
    set_bytes: int  # memory of one buffer set, inputs and outputs
    tolerance: float
    cache: Cache = Cache.COLD
    mode: Mode = Mode.DEVICE
    least_effort: Effort = Effort.QUICK  # the smallest effort that includes it
    devices: tuple[str, ...] = ("cuda",)
    needs: str = ""  # a reason to skip elsewhere, e.g. 'capability 8.9' or 'two GPUs'; '' when none
    flags: tuple[str, ...] = ()
    link: LinkLimit | None = None  # of a case that knows its link; None: by its parameters

"""What a profile is: frozen records; what was not learned is None with the reason beside it."""

from __future__ import annotations

import enum

from firstlight.frozen import dataclass


class Source(enum.Enum):
    """Who looked."""

    NCU = "ncu"
    TORCH = "torch profiler"
    NOBODY = "nobody"


class Pace(enum.Enum):
    """Which unit sets the pace of a case, and so which conditions of a tier hold for it."""

    TENSOR = "tensor"
    VECTOR = "vector"
    MEMORY = "memory"
    UNKNOWN = "unknown"


class Met(enum.Enum):
    """Whether a condition holds."""

    YES = "met"
    NO = "not met"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Value:
    """One figure: tensor_pct 93.1 made of these counters; None with the reason where there is none."""

    key: str
    value: float | None
    names: tuple[str, ...]
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch as counted, or all launches of one name as the torch profiler timed them."""

    name: str
    launches: int
    time_s: float | None
    grid: str = ""
    block: str = ""
    values: tuple[Value, ...] = ()
    on_gpu: bool = True  # False: an operator of the processor


@dataclass(frozen=True, slots=True)
class Work:
    """What was asked of the GPU: a case with its counts, or a command with what the user says of it."""

    what: str  # gemm/fp16/8192x8192x8192, or the command
    is_case: bool
    flops: int | None = None
    least_bytes: int | None = None
    kind: Pace = Pace.UNKNOWN
    kind_from: str = ""
    correct: bool | None = None
    correct_from: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the stopwatch said of the case, without a profiler: tier S, 92.1 % of the limit at the measured clock."""

    tier: str | None
    pct: float | None
    time_s: float | None
    seen_in: str  # the run, or why there is none


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of a tier: 'tensor_pct >= 65', met, saw '93.1 %'."""

    text: str
    met: Met
    saw: str


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier with its conditions; hints are shown and never decide."""

    name: str
    title: str
    met: Met
    conditions: tuple[Condition, ...]
    hints: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What the shipped tiers have different from the report they come from, and why."""

    was: str
    now: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there are no counters: code counters-forbidden, what was seen, what to do."""

    code: str
    says: str
    do: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """All of it."""

    work: Work
    device: str
    source: Source
    tool: str  # ncu 2025.3.1.0 at /usr/local/cuda/bin/ncu
    command: tuple[str, ...]
    report: str  # the .ncu-rep that was kept; "" when there is none
    kernels: tuple[Kernel, ...]
    values: tuple[Value, ...]
    limit: Limit
    tiers_file: str
    tiers: tuple[TierResult, ...]
    changed: tuple[Changed, ...]
    notes: tuple[str, ...]
    trouble: Trouble | None = None

    def value(self, key: str) -> float | None:
        """The figure of one name over all kernels."""
        return next((each.value for each in self.values if each.key == key), None)

    @property
    def excess_traffic(self) -> float | None:
        """Bytes moved over the least that must move, 1.02; the most telling single figure of a memory-bound kernel."""
        moved = self.value("dram_bytes")
        return None if moved is None or not self.work.least_bytes else moved / self.work.least_bytes

    @property
    def reached(self) -> str:
        """The highest tier that is met together with all below it; '' for none."""
        return _last_before(self.tiers, (Met.NO, Met.NOT_KNOWN))

    @property
    def not_refuted(self) -> str:
        """The highest tier that nothing seen speaks against."""
        return _last_before(self.tiers, (Met.NO,))


def _last_before(tiers: tuple[TierResult, ...], stops: tuple[Met, ...]) -> str:
    last = ""
    for tier in tiers:
        if tier.met in stops:
            break
        last = tier.name
    return last

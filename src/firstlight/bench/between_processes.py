"""How much two processes running the same code differ, as data: what no number of passes inside one process can show.

A process fixes things for its whole life: where its pages lie, which cores it got, which algorithm a search chose. The
comparison of two runs has one process a side, so it cannot see this spread and has to be told.
"""

from __future__ import annotations

import enum
import math

from firstlight.bench.results import CaseResult
from firstlight.frozen import dataclass

LAUNCHES_FROM = 0.04  # share of an eager call in which the device waits: from here on the processor is in the time
SEARCHED = ("searched", "compile")  # flags of cases whose kernel was chosen by timing candidates in that process
NORMAL_90 = 1.645  # the two-sided 90 % that the test for "same" uses


class SpreadKind(enum.Enum):
    """What a time depends on beside the code and the GPU."""

    DEVICE = "device"  # nothing: kernels on a stream that is never empty
    HOST = "host"  # the processor: eager calls that wait for launches, and everything on a processor
    HOST_COPY = "host copy"  # the processor's memory: pageable copies
    SEARCHED = "searched"  # which kernel a search in that process chose


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of one process on a log scale (0.10: 10 %), and where that is known from."""

    kind: SpreadKind
    spread: float
    why: str  # completes 'runs of the same code differ by 10 % here: ...'
    source: str
    date: str
    confidence: str  # measured or supposed


SPREADS = (
    Spread(
        # An upper bound: processes differ by no more than their passes explain.
        SpreadKind.DEVICE, 0.005, "nothing but the GPU is in the time",
        "results/bench-aa-h200.json: process means spread by 0.26 % in five quick runs and 0.39 % in two standard ones",
        "2026-11-15", "measured",
    ),
    Spread(
        # The larger of two: five quick runs, which have three such figures, gave 4.0 %.
        SpreadKind.HOST, 0.104, "the time of the processor is in it",
        "results/bench-aa-h200.json: two standard runs on one machine, 17 figures, 10.4 % beyond what passes explain",
        "2026-11-15", "measured",
    ),
    Spread(
        # From two machines; two runs on one differed by 3.2 % at most (results/bench-aa-h200.json).
        SpreadKind.HOST_COPY, 0.105, "the driver copies through host memory",
        "two standard runs on two H200: transfer/d2h/pageable/256MiB differs by 13.8 %, a spread of 10.5 %",
        "2026-11-15", "measured",
    ),
    Spread(
        SpreadKind.SEARCHED, 0.146, "a search in each process chose its kernel",
        "two standard runs on two H200: depthwise/fp16/nhwc/b32-c256-56x56-k3 under cuDNN's search differs by 18.7 %",
        "2026-11-15", "measured",
    ),
)  # fmt: skip
_BY_KIND = {row.kind: row for row in SPREADS}


def kind_of(case: CaseResult) -> SpreadKind:
    """What the time of a case depends on, by its mode, flags and the share of launches in it."""
    if any(flag in case.flags for flag in SEARCHED):
        return SpreadKind.SEARCHED
    if case.mode == "host" and case.family == "transfer":
        return SpreadKind.HOST_COPY
    waits = case.launch_bound is None or case.launch_bound >= LAUNCHES_FROM
    started_anew = case.family == "collective"  # ranks meet anew in every run; the spread of that was not measured
    return SpreadKind.HOST if case.gpu < 0 or started_anew or (case.mode == "host" and waits) else SpreadKind.DEVICE


def spread_of(base: CaseResult, new: CaseResult) -> Spread:
    """The wider spread of the two sides of a comparison."""
    return max((_BY_KIND[kind_of(case)] for case in (base, new)), key=lambda row: row.spread)


def row_of(kind: SpreadKind) -> Spread:
    """The row of a kind."""
    return _BY_KIND[kind]


def can_be_same(between: float, margin: float) -> bool:
    """Whether one process a side could ever show that nothing changed by more than the margin."""
    return NORMAL_90 * math.sqrt(2) * between < math.log1p(margin)

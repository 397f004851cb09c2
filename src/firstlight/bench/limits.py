"""How far a measured time is from what the GPU can do, and whether it can be true at all.

Three ceilings: the datasheet (spec), the clock measured during the case (clock), and what this run itself achieved.
For each the least time is the larger of FLOP / F, bytes / B and the launch floor.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from firstlight.bench.operator_counts import Work
from firstlight.bench.peaks import Peaks, canonical
from firstlight.bench.results import Bound, CaseResult, LimitResult, Verdict
from firstlight.frozen import dataclass

# Above the ceiling at the measured clock: 2 % for the reading of the clock. At the highest clock there is no slack.
OVER_MEASURED_PCT = 102.0
OVER_MAXIMUM_PCT = 100.0
ALGORITHMIC = "algorithmic"  # Winograd, FFT: less work than the direct count
L2_RESIDENT = "l2_resident"
TIERS = ((90.0, "S"), (75.0, "A"), (50.0, "B"), (25.0, "C"), (0.0, "D"))
LAUNCH_TIER = "L"
LAUNCH_BOUND_ABOVE = 0.5


@dataclass(frozen=True, slots=True)
class Timed:
    """One call's work and time: peak 'fp16', 'bandwidth', 'link' or 'none'; cache 'cold', 'warm' or 'n/a'."""

    work: Work
    peak: str
    time_s: float
    cache: str = "n/a"
    flags: tuple[str, ...] = ()
    link_gbps: float | None = None  # of the link that was used, each way
    link_ceiling_gbps: float | None = None  # what cannot be passed, where a switch adds up and that is more
    launch_floor_s: float = 0.0
    l2_bytes: int = 0  # of the GPU: this much of a small cold case's output may still lie there when the clock stops


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz while a case ran: the median, which sets the ceiling, and the highest, which judges possibility."""

    sm_mhz: float | None = None
    sm_mhz_high: float | None = None
    mem_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class Achieved:
    """The best this run did: TFLOPS of the best product per precision, GB/s of the best stream."""

    tflops: tuple[tuple[str, float], ...] = ()
    gbps: float | None = None


class Band(enum.Enum):
    """Where a rate lies against what healthy cards of the model reach."""

    NORMAL = "normal"
    LOOK = "look at the power limit and the cooling"
    SUSPECT = "suspect"
    DEFECTIVE = "defective, throttled or shared"


def limit_of(timed: Timed, peaks: Peaks, *, clocks: Clocks, achieved: Achieved) -> LimitResult:
    """The three least times and the share of each; an unknown ceiling is None, e.g. spec on an unlisted GPU."""
    spec = _parts(timed, peaks.spec_tflops(timed.peak), peaks.bandwidth_gbps)
    clock = _parts(
        timed, peaks.tflops_at(timed.peak, clocks.sm_mhz), peaks.gbps_at(clocks.mem_mhz) or peaks.bandwidth_gbps
    )
    highest = _parts(timed, peaks.max_tflops(timed.peak), peaks.max_bandwidth_gbps)
    best = _parts(timed, dict(achieved.tflops).get(canonical(timed.peak)), achieved.gbps or peaks.bandwidth_gbps)
    bound = next((parts.bound for parts in (clock, spec, best) if parts.bound is not Bound.NONE), Bound.NONE)
    return LimitResult(
        bound=bound,
        peaks=peaks.source,
        t_spec_s=spec.least_s,
        t_clock_s=clock.least_s,
        t_max_clock_s=highest.least_s,
        t_achieved_s=best.least_s,
        pct_spec=_percent(spec.least_s, timed.time_s),
        pct_clock=_percent(clock.least_s, timed.time_s),
        pct_max_clock=_percent(highest.least_s, timed.time_s),
        pct_achieved=_percent(best.least_s, timed.time_s),
    )


def impossible_reasons(timed: Timed, peaks: Peaks, *, clocks: Clocks) -> tuple[str, ...]:
    """Why a time cannot be true, in sentences; () when it can. A limit that is not known refuses nothing."""
    return (*_compute_reasons(timed, peaks, clocks), *_memory_reasons(timed, peaks), *_link_reasons(timed))


def tier_of(limit: LimitResult, launch_bound: float | None) -> str | None:
    """S, A, B, C or D by the share of the clock ceiling (of the achieved one without it); L when bound by launches."""
    if launch_bound is not None and launch_bound > LAUNCH_BOUND_ABOVE:
        return LAUNCH_TIER
    share = limit.pct_clock if limit.pct_clock is not None else limit.pct_achieved
    return None if share is None else next(tier for floor, tier in TIERS if share >= floor)


def band_of(rate: float, expected: float) -> Band:
    """How normal a rate is: at 95 % of what healthy cards reach it is normal; healthy cards differ by 5 %."""
    share = rate / expected
    if share >= 0.95:
        return Band.NORMAL
    return Band.LOOK if share >= 0.90 else Band.SUSPECT if share >= 0.80 else Band.DEFECTIVE


def achieved_of(cases: Iterable[CaseResult]) -> Achieved:
    """The best product of each precision and the best stream of a run, over every figure of the cases that are ok."""
    tflops: dict[str, float] = {}
    gbps: float | None = None
    for case in (case for case in cases if case.verdict is Verdict.OK):
        for rate in (figure.rate for figure in case.figures):
            if case.family == "gemm" and rate.tflops is not None:
                key = canonical(case.peak)
                tflops[key] = max(rate.tflops, tflops.get(key, 0.0))
            elif case.peak == "bandwidth" and case.cache == "n/a" and rate.gbps is not None:
                gbps = max(rate.gbps, gbps or 0.0)
    return Achieved(tuple(sorted(tflops.items())), gbps)


@dataclass(frozen=True, slots=True)
class _Parts:
    least_s: float | None
    bound: Bound


def _parts(timed: Timed, tflops: float | None, gbps: float | None) -> _Parts:
    if timed.peak == "none":
        return _Parts(None, Bound.NONE)
    if timed.peak == "link":
        least = _over(timed.work.bytes, timed.link_gbps, 1e9)
        return _Parts(least, Bound.NONE if least is None else Bound.LINK)
    if timed.peak == "bandwidth":
        compute: float | None = 0.0
    else:
        compute = _over(timed.work.flops, tflops, 1e12)
    memory = _over(timed.work.bytes, gbps, 1e9)
    if compute is None or memory is None:  # half a roof is no roof: the other half might be the higher one
        return _Parts(None, Bound.NONE)
    times = ((compute, Bound.COMPUTE), (memory, Bound.MEMORY), (timed.launch_floor_s, Bound.LAUNCH))
    least, bound = max(times, key=lambda each: each[0])
    return _Parts(least or None, bound if least else Bound.NONE)


def _compute_reasons(timed: Timed, peaks: Peaks, clocks: Clocks) -> Iterable[str]:
    if timed.peak in ("bandwidth", "link", "none") or ALGORITHMIC in timed.flags or timed.work.flops == 0:
        return
    rate = timed.work.flops / timed.time_s / 1e12
    measured = peaks.tflops_at(timed.peak, clocks.sm_mhz_high or clocks.sm_mhz)
    highest = peaks.max_tflops(timed.peak)
    if highest is not None and rate > highest * OVER_MAXIMUM_PCT / 100:
        yield (
            f"{rate:.1f} TFLOPS is {100 * rate / highest:.1f} % of the {timed.peak} ceiling at the card's highest "
            f"clock ({highest:.1f} TFLOPS at {peaks.max_clock_mhz:.0f} MHz)"
        )
    elif measured is not None and rate > measured * OVER_MEASURED_PCT / 100:
        yield (
            f"{rate:.1f} TFLOPS is {100 * rate / measured:.1f} % of the {timed.peak} ceiling at the clock measured "
            f"during the case ({measured:.1f} TFLOPS at {clocks.sm_mhz_high or clocks.sm_mhz:.0f} MHz)"
        )


def _memory_reasons(timed: Timed, peaks: Peaks) -> Iterable[str]:
    """Only traffic that must reach the memory is judged: not a warm cache, not a working set that stays in L2."""
    if timed.peak in ("link", "none") or timed.cache == "warm" or L2_RESIDENT in timed.flags:
        return
    must_move = timed.work.bytes - (timed.l2_bytes if timed.cache == "cold" else 0)
    rate, highest = must_move / timed.time_s / 1e9, peaks.max_bandwidth_gbps
    # A datasheet rounds; a memory clock times a bus width does not.
    allowed = OVER_MEASURED_PCT if peaks.mem_bus_bits is None else OVER_MAXIMUM_PCT
    if highest is not None and rate > highest * allowed / 100:
        yield (
            f"{rate:.4g} GB/s is {100 * rate / highest:.1f} % of the memory bandwidth at the highest memory clock "
            f"({highest:.4g} GB/s)"
        )


def _link_reasons(timed: Timed) -> Iterable[str]:
    if timed.peak != "link" or timed.link_gbps is None:
        return
    rate = timed.work.bytes / timed.time_s / 1e9
    ceiling = max(timed.link_gbps, timed.link_ceiling_gbps or 0.0)
    if rate > ceiling * OVER_MEASURED_PCT / 100:
        most = "the most that a switch which adds up can show" if ceiling > timed.link_gbps else ""
        share = 100 * rate / ceiling
        yield (f"{rate:.4g} GB/s is {share:.1f} % of {most or 'what the link carries each way'} ({ceiling:.4g} GB/s)")


def limit_of_interest(limit: LimitResult | None) -> tuple[float | None, float | None]:
    """(least seconds, percent) at the clock during the case; where that is unknown, of what this run achieved."""
    if limit is None:
        return None, None
    if limit.pct_clock is not None:
        return limit.t_clock_s, limit.pct_clock
    return limit.t_achieved_s, limit.pct_achieved


def _over(amount: float, rate: float | None, unit: float) -> float | None:
    return None if rate is None else amount / (rate * unit)


def _percent(least_s: float | None, time_s: float) -> float | None:
    return None if least_s is None else 100 * least_s / time_s

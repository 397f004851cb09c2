"""From samples to results: summaries, rates, limits and verdicts of every case of one device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from firstlight.bench.attempts import Attempt
from firstlight.bench.case import Case, Mode
from firstlight.bench.clocks import middle_clock, middle_memory_clock, telemetry
from firstlight.bench.limits import (
    Achieved,
    Clocks,
    Timed,
    achieved_of,
    impossible_reasons,
    limit_of,
    tier_of,
)
from firstlight.bench.patience import Patience
from firstlight.bench.peaks import Peaks, pcie_gbps
from firstlight.bench.results import CaseResult, Figure, GpuResult, PassResult, Rate, Regime, Telemetry, Verdict
from firstlight.bench.statistics import summarise
from firstlight.bench.stopwatch import PassTiming, Stretch
from firstlight.frozen import dataclass

# Any of these during a case and its number says nothing of the card's speed.
FORBIDDEN = (
    ("hw_thermal", 0.0, "the card slowed itself down for heat"),
    ("hw_slowdown", 0.0, "the card slowed itself down in hardware"),
    ("hw_power_brake", 0.0, "the power supply told the card to slow down"),
    ("sw_thermal", 1.0, "the driver held the clock down for heat"),
)
ANNOTATED = (("sw_power", "power_capped"), ("sync_boost", "sync_boost"), ("app_clocks", "app_clocks"))
ANNOTATED_FROM_PCT = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the cases ran: the GPU with its peaks, None on a processor; gpu_place is its index in the result."""

    gpu: GpuResult | None
    gpu_place: int
    peaks: Peaks
    patience: Patience
    missing: tuple[str, ...]  # what NVML did not tell


def case_results(attempts: Sequence[Attempt], setting: Setting) -> tuple[CaseResult, ...]:
    """The results of one device: the limits need the best that the whole run achieved, so they come second."""
    bare = [_bare_result(attempt, setting) for attempt in attempts]
    achieved = achieved_of(bare)
    if setting.gpu is None:
        return tuple(bare)
    return tuple(
        _judged(result, attempt.case, setting, achieved) if result.figures else result
        for result, attempt in zip(bare, attempts, strict=True)
    )


def _bare_result(attempt: Attempt, setting: Setting) -> CaseResult:
    case = attempt.case
    has_figures = bool(attempt.passes) and attempt.verdict is Verdict.OK
    figures = _figures(attempt, setting) if has_figures else ()
    host = [sample for each in attempt.passes for sample in each.host] if has_figures else []
    return CaseResult(
        id=case.id,
        family=case.family,
        gpu=setting.gpu_place,
        params=case.params,
        dtype=case.dtype,
        mode=case.mode.value,
        cache=attempt.cache.value,
        data="normal",
        graph_calls=max((each.graph_calls for each in attempt.passes), default=1),
        flops=case.work.flops,
        dense_flops=case.work.dense_flops,
        bytes=case.work.bytes,
        flops_model=case.work.flops_model,
        bytes_model=case.work.bytes_model,
        peak=case.peak,
        verdict=attempt.verdict,
        reason=attempt.reason,
        headline=figures[-1].regime if figures else None,
        figures=figures,
        host_time_s=summarise(host, half_width=setting.patience.half_width, least_n=1) if host else None,
        launch_bound=_launch_bound(attempt.passes, host),
        peak_alloc_bytes=attempt.peak_alloc_bytes,
        peak_reserved_bytes=attempt.peak_reserved_bytes,
        setup_s=attempt.setup_s,
        error_rel=attempt.error_rel,
        flags=attempt.flags,
    )


def _launch_bound(passes: Sequence[PassTiming], host: Sequence[float]) -> float | None:
    """The share of an eager call's time in which the device waits for launches: 0.9 for a tiny kernel."""
    device = [sample for each in passes for sample in each.device]
    if not host or not device:
        return None
    return round(min(1.0, max(0.0, 1 - median(device) / median(host))), 4)


def _figures(attempt: Attempt, setting: Setting) -> tuple[Figure, ...]:
    """Burst first, sustained last: the last one is the headline."""
    found = []
    for regime in (Regime.BURST, Regime.SUSTAINED):
        stretches = [each for timing in attempt.passes for each in timing.stretches if each.regime is regime]
        if stretches:
            found.append(_figure(regime, stretches, attempt.case, setting))
    return tuple(found)


def _figure(regime: Regime, stretches: Sequence[Stretch], case: Case, setting: Setting) -> Figure:
    patience = setting.patience
    samples = [sample for stretch in stretches for sample in stretch.samples]
    summary = summarise(samples, half_width=patience.half_width, least_n=patience.precise_from)
    seen = telemetry([stretch.watch for stretch in stretches], missing=setting.missing)
    shares = dict(seen.reasons_pct)
    return Figure(
        regime=regime,
        time_s=summary,
        passes=tuple(_pass_result(stretch) for stretch in stretches),
        rate=_rate(case, summary.median),
        telemetry=None if setting.gpu is None else seen,
        flags=tuple(flag for reason, flag in ANNOTATED if shares.get(reason, 0.0) > ANNOTATED_FROM_PCT),
    )


def _pass_result(stretch: Stretch) -> PassResult:
    """The clock is that of the device's own cycle counter: NVML's lags by about 0.1 s, so a short stretch would get the
    clock of the case before it."""
    readings = stretch.watch.readings
    clock = round(median(stretch.sm_mhz), 1) if stretch.sm_mhz else middle_clock(readings)
    return PassResult(
        median=median(stretch.samples),
        n=len(stretch.samples),
        sm_mhz=clock,
        mem_mhz=middle_memory_clock(readings),
        samples=stretch.samples,
    )


def _rate(case: Case, time_s: float) -> Rate:
    items = dict(case.params).get("items", "")
    return Rate(
        tflops=case.work.flops / time_s / 1e12 if case.work.flops else None,
        gbps=case.work.bytes / time_s / 1e9 if case.work.bytes else None,
        items_per_s=int(items) / time_s if items.isdecimal() else None,
    )


def _judged(result: CaseResult, case: Case, setting: Setting, achieved: Achieved) -> CaseResult:
    """The result with limits, tiers and a verdict: impossible before invalid, since no heat makes a card faster."""
    figures = []
    impossible: list[str] = []
    invalid: list[str] = []
    for figure in result.figures:
        timed, clocks = _timed(case, result, figure, setting), _clocks(figure)
        limit = limit_of(timed, setting.peaks, clocks=clocks, achieved=achieved)
        launch_bound = result.launch_bound if case.mode is Mode.HOST else None
        figures.append(replace(figure, limit=limit, tier=tier_of(limit, launch_bound)))
        impossible += impossible_reasons(timed, setting.peaks, clocks=clocks)
        invalid += forbidden_reasons(figure.telemetry)
    verdict, reasons = result.verdict, impossible or invalid
    if reasons:
        verdict = Verdict.IMPOSSIBLE if impossible else Verdict.INVALID
    return replace(
        result, figures=tuple(figures), verdict=verdict, reason="; ".join(dict.fromkeys(reasons)) or result.reason
    )


def forbidden_reasons(seen: Telemetry | None) -> list[str]:
    """Why a figure is not valid, e.g. 'the card slowed itself down for heat (12.0 % of the time)'."""
    shares = dict(seen.reasons_pct) if seen is not None else {}
    return [
        f"{what} ({shares[reason]:.1f} % of the time)"
        for reason, above, what in FORBIDDEN
        if shares.get(reason, 0.0) > above
    ]


def _timed(case: Case, result: CaseResult, figure: Figure, setting: Setting) -> Timed:
    assert setting.gpu is not None
    return Timed(
        work=case.work,
        peak=case.peak,
        time_s=figure.time_s.median,
        cache=result.cache,
        flags=result.flags,
        link_gbps=link_gbps(case, setting.gpu, setting.peaks) if case.peak == "link" else None,
        link_ceiling_gbps=None if case.link is None else case.link.ceiling_gbps,
        l2_bytes=setting.gpu.l2_bytes or 0,
    )


def _clocks(figure: Figure) -> Clocks:
    """The median clock of the passes, and the highest that anybody saw, NVML or the cycle counter."""
    known = [each.sm_mhz for each in figure.passes if each.sm_mhz is not None]
    memory = [each.mem_mhz for each in figure.passes if each.mem_mhz is not None]
    seen = figure.telemetry.sm_mhz if figure.telemetry is not None else None
    highest = max((*known, *(() if seen is None else (seen[2],))), default=None)
    return Clocks(
        sm_mhz=median(known) if known else None, sm_mhz_high=highest, mem_mhz=median(memory) if memory else None
    )


def link_gbps(case: Case, gpu: GpuResult, peaks: Peaks) -> float | None:
    """What the link of a copy carries: NVLink each way, else PCIe as it runs; twice that for both ways at once."""
    if case.link is not None:
        return case.link.gbps
    params = dict(case.params)
    link = params.get("link", "")
    each_way: float | None = None
    if re.match(r"NV\d", link):
        each_way = peaks.nvlink_gbps / 2 if peaks.nvlink_gbps is not None else None
    elif gpu.pcie_gen is not None and gpu.pcie_width is not None:
        each_way = pcie_gbps(gpu.pcie_gen, gpu.pcie_width)
    both = params.get("direction", "").startswith("both")
    return None if each_way is None else each_way * (2 if both else 1)

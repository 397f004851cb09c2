"""How each number of a benchmark came about, in one line: what shows when it is hovered or focused."""

from __future__ import annotations

from firstlight.bench.limits import TIERS, limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult
from firstlight.numerals import significant
from firstlight.report.bench_cells import peaks_words, rate_text, spread_text, time_text


def time_formula(figure: Figure) -> str:
    """'median of 55 samples in 3 passes (6.252 us); 95 % interval 5.852 us to 6.366 us'."""
    time = figure.time_s
    low, high = time.ci95
    passes = ", ".join(time_text(each.median) for each in figure.passes)
    return (
        f"median of {time.n} samples = {time_text(time.median)}; 95 % interval {time_text(low)} to {time_text(high)} "
        f"(order statistics); medians of the passes: {passes}"
    )


def spread_formula(figure: Figure) -> str:
    """'(high - low) / 2 / median = ...'."""
    time = figure.time_s
    low, high = time.ci95
    return (
        f"half the 95 % interval / median = ({time_text(high)} - {time_text(low)}) / 2 / "
        f"{time_text(time.median)} = {spread_text(time)}"
    )


def rate_formula(case: CaseResult, figure: Figure) -> str:
    """'work / time = 2,147,483,648 FLOP / 6.252 us = 343.5 TFLOPS'."""
    text, time = rate_text(case, figure), time_text(figure.time_s.median)
    if text.endswith("FLOPS"):
        return f"FLOP / time = {case.flops:,} / {time} = {text}; counted as {case.flops_model}, useful FLOP only"
    if text.endswith("GB/s"):
        return f"bytes / time = {case.bytes:,} / {time} = {text}; counted as {case.bytes_model}; 1 GB = 10^9 bytes"
    return f"items of one call / {time} = {text}"


def share_formula(figure: Figure) -> str:
    """'least time / time = 2.027 us / 6.252 us = 32.4 %, bound by compute at the clock measured meanwhile; ...'."""
    limit = figure.limit
    least, share = limit_of_interest(limit)
    if limit is None or least is None or share is None:
        return "no limit is known for this case on this GPU"
    least_work = {"compute": "FLOP / peak", "memory": "bytes / bandwidth", "link": "bytes / link", "launch": "a launch"}
    at = "at the clock meanwhile" if limit.pct_clock is not None else "by the best of this run"
    spec = "" if limit.pct_spec is None else f"; {limit.pct_spec:.1f} % of the datasheet's"
    return (
        f"least time / time = {time_text(least)} / {time_text(figure.time_s.median)} = {share:.1f} %; least time = "
        f"{least_work.get(limit.bound.value, 'not known')} {at}{spec}"
    )


def tier_formula(figure: Figure) -> str:
    """'A: from 75 % of the limit on'."""
    floor = next((floor for floor, tier in TIERS if tier == figure.tier), None)
    return "L: bound by launches" if floor is None else f"{figure.tier}: from {floor:.0f} % of the limit on"


def clock_formula(figure: Figure) -> str:
    """'SM clock 1905 MHz (1890 to 1965); 48 degrees C'."""
    telemetry = figure.telemetry
    if telemetry is None or telemetry.sm_mhz is None:
        return "the SM clock was not read"
    low, middle, high = telemetry.sm_mhz
    power = "" if telemetry.power_w is None else f"; {telemetry.power_w:.0f} W"
    heat = "" if telemetry.temp_c is None else f"; {telemetry.temp_c:.0f} degrees C"
    reasons = ", ".join(f"{name.replace('_', ' ')} {share:.0f} % of the time" for name, share in telemetry.reasons_pct)
    held = f"; held down by {reasons}" if reasons else ""
    return f"SM clock {middle:.0f} MHz ({low:.0f} to {high:.0f}){power}{heat}{held}"


def peak_formula(precision: str, tflops: float, source: str) -> str:
    """'datasheet peak of fp16, dense: 989.4 TFLOPS (table gpu_peaks, h200-sxm)'."""
    return f"datasheet peak of {precision}, dense: {significant(tflops)} TFLOPS ({peaks_words(source)})"


def bandwidth_formula(run: RunResult, gpu: int, gbps: float) -> str:
    """'memory roof: FLOP per byte x 4800 GB/s'."""
    return f"memory roof of {run.gpus[gpu].name}: TFLOPS = FLOP per byte x {significant(gbps)} GB/s / 1000"

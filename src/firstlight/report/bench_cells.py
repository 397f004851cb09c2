"""Numbers of a benchmark as people read them: four significant digits with a unit; what is not known is a dash."""

from __future__ import annotations

from firstlight.bench.results import CaseResult, Figure, LimitResult, RunResult, TimeSummary
from firstlight.bench.steady import PUT_OFF
from firstlight.numerals import DASH, significant

LONGEST_COUNT = 30  # digits
_FLAGS = {PUT_OFF: "other processes held its cores"}


def time_text(seconds: float) -> str:
    """'1.364 ms', '25.45 us', '2.115 s'."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{significant(seconds / unit)} {name}"
    return f"{significant(seconds / 1e-9)} ns"


def ms_text(seconds: float | None) -> str:
    """Milliseconds with four significant digits: '0.02545'; '-' when not known."""
    return DASH if seconds is None else significant(seconds * 1e3)


def spread_text(time: TimeSummary) -> str:
    """Half the 95 % interval relative to the median: '0.3 %'; '1.2 % (wide)' where the aim was missed.

    Above 100 % the number says no more than that: 'over 100 % (wide)'.
    """
    low, high = time.ci95
    share = 50 * (high - low) / time.median
    return ("over 100 %" if share > 100 else f"{share:.1f} %") + ("" if time.ci_reached else " (wide)")


def flag_words(flag: str) -> str:
    """A flag of a case or a figure as people say it: 'launches not hidden'."""
    return _FLAGS.get(flag, flag.replace("_", " "))


def rate_text(case: CaseResult, figure: Figure) -> str:
    """The rate a reader looks for: items where there are any, else TFLOPS, else GB/s where memory or a link binds."""
    rate = figure.rate
    if rate.items_per_s is not None:
        item = dict(case.params).get("item", "item")
        return f"{rate.items_per_s:,.0f} {item}/s" if rate.items_per_s >= 100 else f"{rate.items_per_s:.1f} {item}/s"
    if case.family == "collective":
        return DASH if rate.gbps is None else f"{scaled_text(rate.gbps)} bus"
    if case.peak in ("bandwidth", "link") or is_memory_bound(figure.limit):
        return DASH if rate.gbps is None else f"{gbps_text(rate.gbps)} GB/s"
    if rate.tflops is not None:
        tera = rate.tflops >= 0.1
        return f"{significant(rate.tflops)} TFLOPS" if tera else f"{significant(1e3 * rate.tflops)} GFLOPS"
    return DASH if rate.gbps is None else f"{gbps_text(rate.gbps)} GB/s"


def scaled_text(gbps: float) -> str:
    """'1,234 GB/s', '18.2 kB/s': eight bytes between ranks are a matter of time, not of gigabytes."""
    for unit, many in (("GB/s", 1.0), ("MB/s", 1e3)):
        if gbps * many >= 0.1:
            return f"{gbps_text(gbps * many)} {unit}"
    return f"{gbps_text(gbps * 1e6)} kB/s"


def gbps_text(gbps: float) -> str:
    """'4,214' or '24.4'."""
    return f"{gbps:,.0f}" if gbps >= 100 else f"{gbps:.3g}"


def is_memory_bound(limit: LimitResult | None) -> bool:
    return limit is not None and limit.bound.value == "memory"


def whole(text: str) -> int | None:
    """A parameter that counts something, '512' to 512; None for other text, which a file of others may hold."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_COUNT else None


def environment_rows(run: RunResult) -> tuple[tuple[str, str], ...]:
    """What a reader must know beside the numbers; only what is known."""
    software, host = run.software, run.host
    gpus = ", ".join(dict.fromkeys(_gpu_text(run, place) for place in range(len(run.gpus))))
    count = f"{len(run.gpus)} x " if len(run.gpus) > 1 else ""
    rows = (
        ("GPU", f"{count}{gpus}" if gpus else "none: timed on the processor"),
        ("Driver", software.driver),
        ("CUDA", software.cuda),
        ("cuDNN", software.cudnn),
        ("CPU", host.cpu),
        ("OS", host.os),
        ("PyTorch", software.torch),
        ("Triton", software.triton),
        ("Python", host.python),
        ("Effort", f"{run.run.profile}, {run.run.passes} passes, started {run.run.started}"),
    )
    return tuple((name, value) for name, value in rows if value)


def peaks_words(source: str) -> str:
    """Where a GPU's peaks are from: 'table gpu_peaks, h200-sxm' for db:h200-sxm."""
    kind, _, name = source.partition(":")
    return {"db": f"table gpu_peaks, {name}", "estimated": f"estimated for capability {name}"}.get(kind, source)


def _gpu_text(run: RunResult, place: int) -> str:
    gpu = run.gpus[place]
    parts = [
        f"capability {gpu.cc}",
        f"{gpu.sms} SMs" if gpu.sms else "",
        f"{gpu.mem_bytes / 1e9:.0f} GB" if gpu.mem_bytes else "",
        f"at most {gpu.clock_max_mhz:.0f} MHz" if gpu.clock_max_mhz else "",
        f"{gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "",
        f"peaks: {peaks_words(gpu.peaks)}" if gpu.peaks != "none" else "no peak row",
    ]
    return f"{gpu.name} ({', '.join(part for part in parts if part)})"

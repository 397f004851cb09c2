"""A run as OpenMetrics text, for Prometheus and what reads its files.

Everything is a gauge without a timestamp: `info` and `stateset` are OpenMetrics alone, and the textfile collector of
node_exporter, which reads the older text format, refuses them and every timestamp. So one file serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firstlight.bench.results import CaseResult, GpuResult, RunResult, Verdict
from firstlight.frozen import dataclass
from firstlight.report.exports_rows import Row, gpu_label, rows, started

_PREFIX = "firstlight_bench"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels, e.g. ((("case", "gemm/fp16/8192x8192x8192"),), 0.001364)."""

    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, e.g. firstlight_bench_median_seconds with unit 'seconds' ('' where there is none)."""

    name: str
    unit: str
    told: str
    samples: tuple[Sample, ...]


def openmetrics(run: RunResult) -> str:
    """The exposition, ending in # EOF; what is not known has no sample."""
    return "".join(_text(family) for family in _families(run) if family.samples) + "# EOF\n"


def _families(run: RunResult) -> Iterator[Family]:
    yield from _of_run(run)
    verdicts = (Sample((*_case_labels(case), ("verdict", case.verdict.value)), 1.0) for case in run.cases)
    told = "1: what became of a case: ok, skipped, invalid, impossible or failed."
    yield Family("case_verdict", "", told, tuple(verdicts))
    measured = rows(run)
    for name, unit, told, value in _FIGURES:
        yield Family(name, unit, told, _samples(measured, value))
    yield Family("limit_ratio", "ratio", "Least possible time over the median: by datasheet, at the clock measured "
                 "meanwhile, by the best of this run.", tuple(_limits(measured)))  # fmt: skip
    taken = ((case, case.peak_alloc_bytes) for case in run.cases if case.verdict is Verdict.OK)
    peaks = (Sample(_case_labels(case), float(size)) for case, size in taken if size is not None)
    told = "The most memory that torch had allocated during a case."
    yield Family("peak_allocated_bytes", "bytes", told, tuple(peaks))


def _of_run(run: RunResult) -> Iterator[Family]:
    about = {
        "tool": run.tool, "run": run.run.id, "effort": run.run.profile, "commit": run.run.commit, "host": run.host.name,
        "os": run.host.os, "cpu": run.host.cpu, "python": run.host.python, "driver": run.software.driver,
        "cuda": run.software.cuda, "torch": run.software.torch, "cudnn": run.software.cudnn,
        "triton": run.software.triton,
    }  # fmt: skip
    known = tuple((name, value) for name, value in about.items() if value)
    yield Family("run_info", "", "1: which run this is, and with what software.", (Sample(known, 1.0),))
    yield Family("gpu_info", "", "1: a GPU of the run.",
                 tuple(Sample(_gpu_labels(place, gpu), 1.0) for place, gpu in enumerate(run.gpus)))  # fmt: skip
    began = started(run)
    yield Family("start_timestamp_seconds", "seconds", "When the run began, seconds since 1970.",
                 () if began is None else (Sample((), began.timestamp()),))  # fmt: skip
    took = run.run.wall_seconds
    yield Family("wall_seconds", "seconds", "How long the run took.", () if took is None else (Sample((), took),))
    yield Family("interrupted", "", "1: broken off by the user; 0: the run came to its end.",
                 (Sample((), float(run.run.interrupted)),))  # fmt: skip
    found = [
        (("code", each.code), ("severity", each.severity), ("gpu", _place(each.gpu))) for each in run.health.findings
    ]
    yield Family("health_findings", "", "Signs of a defect that the run saw, by code.",
                 tuple(Sample(labels, float(found.count(labels))) for labels in dict.fromkeys(found)))  # fmt: skip


def _times_1e12(rate: float | None) -> float | None:
    return None if rate is None else rate * 1e12


def _times_1e9(rate: float | None) -> float | None:
    return None if rate is None else rate * 1e9


def _sm_clock(row: Row) -> float | None:
    seen = row.figure.telemetry
    return None if seen is None or seen.sm_mhz is None else seen.sm_mhz[1] * 1e6


def _power(row: Row) -> float | None:
    return None if row.figure.telemetry is None else row.figure.telemetry.power_w


def _temperature(row: Row) -> float | None:
    return None if row.figure.telemetry is None else row.figure.telemetry.temp_c


# (name, unit, help, value of a figure)
_FIGURES: tuple[tuple[str, str, str, Callable[[Row], float | None]], ...] = (
    ("median_seconds", "seconds", "Median time of one call.", lambda row: row.figure.time_s.median),
    ("median_ci95_low_seconds", "seconds", "Lower end of the 95 % interval of the median.",
     lambda row: row.figure.time_s.ci95[0]),
    ("median_ci95_high_seconds", "seconds", "Upper end of the 95 % interval of the median.",
     lambda row: row.figure.time_s.ci95[1]),
    ("flops_per_second", "", "Useful floating-point operations per second.",
     lambda row: _times_1e12(row.figure.rate.tflops)),
    ("bytes_per_second", "", "Compulsory bytes per second.", lambda row: _times_1e9(row.figure.rate.gbps)),
    ("items_per_second", "", "Images, tokens or sequences per second.", lambda row: row.figure.rate.items_per_s),
    ("sm_clock_hertz", "hertz", "Median SM clock while the figure was taken.", _sm_clock),
    ("power_watts", "watts", "Mean power while the figure was taken.", _power),
    ("temperature_celsius", "celsius", "Temperature of the GPU while the figure was taken.", _temperature),
)  # fmt: skip


def _samples(measured: tuple[Row, ...], value: Callable[[Row], float | None]) -> tuple[Sample, ...]:
    found = ((row, value(row)) for row in measured)
    return tuple(Sample(_labels(row), each) for row, each in found if each is not None)


def _limits(measured: tuple[Row, ...]) -> Iterator[Sample]:
    for row in measured:
        if (limit := row.figure.limit) is None:
            continue
        for ceiling, share in (("spec", limit.pct_spec), ("clock", limit.pct_clock), ("achieved", limit.pct_achieved)):
            if share is not None:
                yield Sample((*_labels(row), ("ceiling", ceiling)), share / 100)


def _labels(row: Row) -> tuple[tuple[str, str], ...]:
    return (*_case_labels(row.case), ("regime", row.figure.regime.value))


def _case_labels(case: CaseResult) -> tuple[tuple[str, str], ...]:
    return (("case", case.id), ("family", case.family), ("dtype", case.dtype), ("gpu", gpu_label(case)))


def _gpu_labels(place: int, gpu: GpuResult) -> tuple[tuple[str, str], ...]:
    return (("gpu", str(place)), ("name", gpu.name), ("capability", gpu.cc), ("peaks", gpu.peaks))


def _place(gpu: int) -> str:
    """'0'; 'all' for a finding that is not about one GPU."""
    return "all" if gpu < 0 else str(gpu)


def _text(family: Family) -> str:
    name = f"{_PREFIX}_{family.name}"
    head = f"# TYPE {name} gauge\n" + (f"# UNIT {name} {family.unit}\n" if family.unit else "")
    lines = (f"{name}{_braces(sample)} {sample.value!r}\n" for sample in family.samples)
    return f"{head}# HELP {name} {family.told}\n" + "".join(lines)


def _braces(sample: Sample) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Nsight Compute as a child: where it is, which counters it has here, what it counted.

A report is written first (--export) and read in a second step (--import), so that the .ncu-rep which is kept and the
figures which are printed cannot differ, and what the program prints stays apart from what was counted.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import Completed, Machine, Outcome, which
from firstlight.machine.spawn import run_bounded
from firstlight.profile.metrics import METRICS, Metric, Over, ways_open
from firstlight.profile.result import Kernel, Value

QUERY_LIMIT_S = 60.0
IMPORT_LIMIT_S = 120.0
OUTPUT_LIMIT = 64 << 20
_BASE = re.compile(r"^[a-z][a-z0-9]*__[a-z0-9_]+$")
_VERSION = re.compile(r"Version\s+([0-9.]+)")
# what one of Nsight Compute's units is in ours; whatever is not here (inst, warp, %, "") counts as it stands
_SCALE = {
    "ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0,
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9,
    "cycle/second": 1.0, "cycle/s": 1.0, "cycle/usecond": 1e6, "cycle/us": 1e6, "cycle/nsecond": 1e9,
    "cycle/ns": 1e9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tool:
    """A Nsight Compute: its path, its version '2025.3.1.0' ('' when it did not say), the base names it has here."""

    path: str
    version: str
    bases: frozenset[str]


@dataclass(frozen=True, slots=True)
class Launches:
    """Which launches are counted: kernels that match a pattern, after so many, so many."""

    kernel: str = ""
    skip: int = 0
    count: int = 0  # 0: all

    @property
    def are_some(self) -> bool:
        """Whether some may be left out."""
        return bool(self.kernel or self.skip or self.count)


def find_ncu(machine: Machine) -> Fact[str]:
    """The ncu on PATH, in CUDA_HOME, a toolkit under /usr/local or an installation of its own, in this order."""
    if (found := which(machine, "ncu")) is not None:
        return Known(found, seen_in="PATH")
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := machine.env(name))]
    homes += [f"/usr/local/{name}" for name in reversed(machine.list("/usr/local", "cuda*"))]
    own = "/opt/nvidia/nsight-compute"
    places = [f"{home.rstrip('/')}/bin/ncu" for home in homes]
    places += [f"{own}/{name}/ncu" for name in reversed(machine.list(own, "20*"))]
    for place in places:
        stat = machine.stat(place)
        if stat is not None and stat.kind == "file" and stat.mode & 0o111:
            return Known(place, seen_in=os.path.dirname(place))
    return Unknown("ncu is neither on PATH nor in CUDA_HOME, /usr/local/cuda* or /opt/nvidia/nsight-compute")


def ask_ncu(path: str) -> Tool | str:
    """The tool with the counters it has for the GPU here; a sentence where it cannot be asked."""
    version = _run((path, "--version"))
    found = _VERSION.search(version.stdout)
    asked = _run((path, "--query-metrics", "--csv"))
    bases = read_names(asked.stdout)
    if not bases:
        return f"{asked.complaint if not asked.ok else 'ncu --query-metrics listed nothing'}: {_said(asked)}"[:300]
    return Tool(path, found.group(1) if found else "", bases)


def read_names(text: str) -> frozenset[str]:
    """Base names from what --query-metrics prints, as CSV or as columns: the first word of a line, where it is one."""
    words = (re.split(r"[,\s]", line.strip(), maxsplit=1)[0].strip('"') for line in text.splitlines())
    return frozenset(base for word in words if _BASE.match(base := word.partition(".")[0]))


def profile_argv(tool: Tool, launches: Launches, *, report: str, log: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """The command up to the program: clocks left alone, the counters that exist here, a report and a log."""
    names = tuple(dict.fromkeys(name for _, names in ways_open(tool.bases) for name in names))
    return (
        tool.path, "--clock-control", "none", "--metrics", ",".join(names), "--export", report, "--force-overwrite",
        "--log-file", log, "--target-processes", "all", *options,
        *(("--kernel-name", f"regex:{launches.kernel}") if launches.kernel else ()),
        *(("--launch-skip", str(launches.skip)) if launches.skip else ()),
        *(("--launch-count", str(launches.count)) if launches.count else ()),
    )  # fmt: skip


def import_report(path: str, report: str) -> tuple[tuple[Kernel, ...], str]:
    """The kernels of a report, and why there are none."""
    done = _run((path, "--import", report, "--csv", "--page", "raw", "--print-units", "base"), IMPORT_LIMIT_S)
    kernels = read_kernels(done.stdout)
    return kernels, "" if kernels else f"{done.complaint}: {_said(done)}"[:300]


def read_kernels(text: str) -> tuple[Kernel, ...]:
    """Kernels from the raw page as CSV: a line of names, a line of units, a line for every launch."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return ()
    header, *rest = list(csv.reader(lines[start:]))
    if not rest:
        return ()
    units = dict(zip(header, rest[0], strict=False))
    rows = [dict(zip(header, row, strict=False)) for row in rest[1:] if len(row) == len(header)]
    return tuple(_kernel(row, units) for row in rows)


def _kernel(row: dict[str, str], units: dict[str, str]) -> Kernel:
    counters = {
        name: number * _SCALE.get(units.get(name, "").strip().lower(), 1.0)
        for name, text in row.items()
        if "__" in name and (number := _number(text)) is not None
    }
    values = tuple(_value(metric, counters) for metric in METRICS)
    return Kernel(
        name=row.get("Kernel Name", ""),
        launches=1,
        time_s=next(each.value for each in values if each.key == "time_s"),
        grid=row.get("Grid Size", ""),
        block=row.get("Block Size", ""),
        values=values,
    )


def _value(metric: Metric, counters: dict[str, float]) -> Value:
    for way in metric.ways:
        value = way.value(counters)
        if value is not None:
            return Value(metric.key, value, tuple(name for name in way.names if name in counters))
    return Value(metric.key, None, (), "not in the report")


def over_all(kernels: tuple[Kernel, ...], bases: Collection[str] | None) -> tuple[Value, ...]:
    """Every metric over all kernels: sums are added, the rest is the mean by time; None names the reason.

    `bases` are the names the chip has, None where only a report was read.
    """
    return tuple(_over_all(metric, kernels, bases) for metric in METRICS)


def _over_all(metric: Metric, kernels: tuple[Kernel, ...], bases: Collection[str] | None) -> Value:
    found = [(kernel, each) for kernel in kernels for each in kernel.values if each.key == metric.key]
    known = [(kernel.time_s, each.value) for kernel, each in found if each.value is not None]
    names = next((each.names for _, each in found if each.names), ())
    if not known or len(known) < len(found):
        missing = bases is not None and not any(way.available(bases) for way in metric.ways)
        wanted = " or ".join(way.names[0] for way in metric.ways)
        return Value(metric.key, None, names, f"this chip has no {wanted}" if missing else "not counted")
    if metric.over is Over.SUM:
        return Value(metric.key, sum(value for _, value in known), names)
    weights = [time_s if time_s else 0.0 for time_s, _ in known]
    if sum(weights) == 0:
        weights = [1.0] * len(known)
    mean = sum(weight * value for weight, (_, value) in zip(weights, known, strict=True)) / sum(weights)
    return Value(metric.key, mean, names)


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None


def _run(argv: tuple[str, ...], limit_s: float = QUERY_LIMIT_S) -> Completed:
    return run_bounded(argv, timeout_s=limit_s, env={**os.environ, "LC_ALL": "C"}, limit=OUTPUT_LIMIT)


def _said(done: Completed) -> str:
    if done.outcome is not Outcome.EXITED:
        return str(done.outcome.value)
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    return next((line for line in lines if "==ERROR==" in line), lines[-1] if lines else "it said nothing")

"""What every export has in common: the figures of a run under the name they have elsewhere, and what is left out.

A figure of a case that failed, was disturbed or is faster than the silicon is never exported as a number: a chart does
not carry the reason along.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable

from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure under its name, e.g. 'gemm/fp16/8192x8192x8192[sustained]'; gpu is '0', or 'cpu'."""

    name: str
    param: str  # what stands in the brackets
    gpu: str
    case: CaseResult
    figure: Figure


def rows(run: RunResult) -> tuple[Row, ...]:
    """Every figure that may be shown as a number, in the order of the run; two regimes are two rows."""
    return tuple(
        Row(f"{case.id}[{param}]", param, gpu_label(case), case, figure)
        for case in run.cases
        if case.verdict is Verdict.OK
        for figure in case.figures
        for param in (_param(run, case, figure),)
    )


def left_out(run: RunResult) -> tuple[CaseResult, ...]:
    """The cases whose numbers are not exported."""
    return tuple(case for case in run.cases if case.verdict is not Verdict.OK)


def counted(cases: Iterable[CaseResult]) -> str:
    """'6 skipped, 1 impossible'."""
    counts = Counter(case.verdict for case in cases)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def case_name(run: RunResult, case: CaseResult) -> str:
    """The id; with its GPU where the run had several: 'gemm/fp16/8192x8192x8192[gpu1]'."""
    return f"{case.id}[gpu{case.gpu}]" if _has_several(run) else case.id


def gpu_label(case: CaseResult) -> str:
    """'0', or 'cpu'."""
    return "cpu" if case.gpu < 0 else str(case.gpu)


def started(run: RunResult) -> datetime.datetime | None:
    """When the run began, in UTC; None where the file holds something else."""
    try:
        read = datetime.datetime.fromisoformat(run.run.started.replace("Z", "+00:00"))
    except ValueError:
        return None
    if read.tzinfo is None:
        return read.replace(tzinfo=datetime.timezone.utc)
    try:
        return read.astimezone(datetime.timezone.utc)
    except OverflowError:  # year 1, east of Greenwich
        return None


def place_text(run: RunResult, case: CaseResult) -> str:
    """'NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130'; only what is known."""
    where = run.gpus[case.gpu].name if case.gpu >= 0 else run.host.cpu
    parts = (
        where,
        run.software.driver and f"driver {run.software.driver}",
        run.software.torch and f"torch {run.software.torch}",
    )
    return ", ".join(part for part in parts if part)


def _param(run: RunResult, case: CaseResult, figure: Figure) -> str:
    return f"{figure.regime.value}-gpu{case.gpu}" if _has_several(run) else figure.regime.value


def _has_several(run: RunResult) -> bool:
    return len(run.gpus) > 1

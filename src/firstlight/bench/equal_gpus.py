"""GPUs of many hosts, measured apart: which of them are equal, and what of each run one can be held against another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from firstlight.bench.bests import bests_of
from firstlight.bench.between_processes import SpreadKind, kind_of
from firstlight.bench.results import Bound, CaseResult, Figure, GpuResult, RunResult, Verdict
from firstlight.bench.steady import unsteady
from firstlight.frozen import dataclass
from firstlight.tables import Tables


@dataclass(frozen=True, slots=True)
class GpuSort:
    """What has to be the same for two GPUs to be equal: the card, how it is set, and what it was measured with."""

    name: str
    capability: str
    sms: int | None
    ecc: bool | None
    mig: bool | None
    effort: str
    torch: str | None
    cuda: str | None
    cudnn: str | None

    def __str__(self) -> str:
        """E.g. "NVIDIA H200, torch 2.11.0+cu130, quick"; what is said of a class of equal ones."""
        settings = (", MIG on" if self.mig else "") + (", ECC off" if self.ecc is False else "")
        return f"{self.name}{settings}, torch {self.torch or 'not known'}, {self.effort}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A figure of one run of one GPU, and what was seen of the card meanwhile; None where it was not read."""

    seconds: float
    family: str
    bound: Bound
    tflops: float | None
    sm_mhz: float | None
    mem_mhz: float | None
    power_w: float | None
    temp_c: float | None
    reasons_pct: tuple[tuple[str, float], ...] = ()

    @property
    def rate(self) -> float:
        """Calls a second."""
        return 1 / self.seconds


@dataclass(frozen=True, slots=True)
class BestProduct:
    """The best steady product of a precision beside what healthy cards of the model reach, both in TFLOPS."""

    precision: str
    tflops: float
    healthy_tflops: float


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One run of one GPU; figures by case and regime, e.g. "gemm/fp16/8192x8192x8192 [burst]"."""

    host: str
    device: str  # gpu-0
    number: int  # of the run: the first of every GPU are compared with each other
    sort: GpuSort
    card: GpuResult
    taken: Mapping[str, Taken]
    bests: tuple[BestProduct, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """A GPU with all its runs."""

    host: str
    device: str
    runs: tuple[GpuRun, ...]

    @property
    def sort(self) -> GpuSort:
        return self.runs[0].sort

    @property
    def card(self) -> GpuResult:
        return self.runs[0].card

    @property
    def where(self) -> str:
        return f"{self.host} {self.device}"


def gpu_runs(run: RunResult, tables: Tables, *, host: str, device: str, number: int) -> Iterator[GpuRun]:
    """What can be compared of a run: steady figures in which nothing but the GPU and its link is in the time.

    `device` is what a run of one GPU is called; those of a run of several have their own numbers.
    """
    for place, card in enumerate(run.gpus):
        sort = GpuSort(
            card.name,
            card.cc,
            card.sms,
            card.ecc,
            card.mig,
            run.run.profile,
            run.software.torch,
            run.software.cuda,
            run.software.cudnn,
        )
        taken = {
            f"{case.id} [{figure.regime.value}]": _taken(case, figure)
            for case in run.cases
            if case.gpu == place and case.verdict is Verdict.OK and _is_of_the_gpu(case)
            for figure in case.figures
            if not unsteady(case, figure)
        }
        bests = tuple(
            BestProduct(best.precision, best.tflops, best.healthy_tflops)
            for best in bests_of(run, tables)
            if best.gpu == place
        )
        name = device if len(run.gpus) == 1 else f"gpu-{card.index}"
        yield GpuRun(host, name, number, sort, card, taken, bests)


def _is_of_the_gpu(case: CaseResult) -> bool:
    """Models are timed on the host's clock: a busy processor there must not make its GPUs slow ones."""
    return case.mode == "device" and kind_of(case) is SpreadKind.DEVICE


def measured_gpus(runs: Sequence[GpuRun]) -> tuple[MeasuredGpu, ...]:
    """Each GPU once, in the order of the runs; a run on other software than the first of its GPU is left out."""
    found: dict[tuple[str, str], list[GpuRun]] = {}
    for run in sorted(runs, key=lambda run: run.number):
        mine = found.setdefault((run.host, run.device), [])
        if not mine or mine[0].sort == run.sort:
            mine.append(run)
    order = dict.fromkeys((run.host, run.device) for run in runs)
    return tuple(MeasuredGpu(host, device, tuple(found[host, device])) for host, device in order)


def _taken(case: CaseResult, figure: Figure) -> Taken:
    seen = figure.telemetry
    return Taken(
        seconds=figure.time_s.median,
        family=case.family,
        bound=Bound.NONE if figure.limit is None else figure.limit.bound,
        tflops=figure.rate.tflops,
        sm_mhz=_mean([each.sm_mhz for each in figure.passes]),
        mem_mhz=_mean([each.mem_mhz for each in figure.passes]),
        power_w=None if seen is None else seen.power_w,
        temp_c=None if seen is None else seen.temp_c,
        reasons_pct=() if seen is None else seen.reasons_pct,
    )


def _mean(readings: Sequence[float | None]) -> float | None:
    known = [reading for reading in readings if reading is not None]
    return fmean(known) if known and len(known) == len(readings) else None

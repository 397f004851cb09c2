"""The best product of each precision beside what healthy cards of the model reach."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.limits import Band, band_of
from firstlight.bench.peaks import canonical, peaks_of
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.bench.steady import unsteady
from firstlight.frozen import dataclass
from firstlight.tables import Tables

PRECISIONS = ("bf16", "fp8")


@dataclass(frozen=True, slots=True)
class Best:
    """The best product of a precision beside what healthy cards of the model reach."""

    gpu: int
    precision: str
    case: CaseResult
    figure: Figure
    tflops: float
    healthy_tflops: float

    @property
    def band(self) -> Band:
        return band_of(self.tflops, self.healthy_tflops)


def bests_of(run: RunResult, tables: Tables) -> Iterator[Best]:
    """The best steady bf16 and fp8 product of each GPU whose model has figures of healthy cards."""
    for place, gpu in enumerate(run.gpus):
        peaks = peaks_of(gpu, tables)
        for precision in PRECISIONS:
            healthy = peaks.seen_tflops(precision)
            found = [
                Best(place, precision, case, figure, figure.rate.tflops, healthy)
                for case in run.cases
                if case.gpu == place and case.family == "gemm" and case.verdict is Verdict.OK
                and canonical(case.peak) == precision
                for figure in case.figures
                if figure.rate.tflops is not None and healthy is not None and not unsteady(case, figure)
            ]  # fmt: skip
            if found:
                yield max(found, key=lambda best: best.tflops)

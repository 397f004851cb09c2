"""Is this number normal: the best products of a run beside what healthy cards of the model reach."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.limits import band_of
from firstlight.bench.peaks import canonical, peaks_of
from firstlight.bench.results import Figure, RunResult, Verdict
from firstlight.bench.steady import unsteady
from firstlight.report.bench_cells import significant
from firstlight.tables import Tables

PRECISIONS = ("bf16", "fp8")


def normal_lines(run: RunResult, tables: Tables) -> Iterator[str]:
    """'best bf16 product 797.7 TFLOPS (burst): 100 % of the 794.5 that healthy cards reach; normal'."""
    for place, gpu in enumerate(run.gpus):
        peaks = peaks_of(gpu, tables)
        where = f"GPU {place}: " if len(run.gpus) > 1 else ""
        for precision in PRECISIONS:
            expected, best = peaks.seen_tflops(precision), _best(run, place, precision)
            if expected is None or best is None or best.rate.tflops is None:
                continue
            rate = best.rate.tflops
            yield (
                f"{where}best {precision} product {significant(rate)} TFLOPS ({best.regime.value}): "
                f"{100 * rate / expected:.0f} % of the {significant(expected)} that healthy cards of this model reach; "
                f"{band_of(rate, expected).value}"
            )


def _best(run: RunResult, gpu: int, precision: str) -> Figure | None:
    figures = [
        figure
        for case in run.cases
        if case.gpu == gpu
        and case.family == "gemm"
        and case.verdict is Verdict.OK
        and canonical(case.peak) == precision
        for figure in case.figures
        if figure.rate.tflops is not None and not unsteady(case, figure)
    ]
    return max(figures, key=lambda figure: figure.rate.tflops or 0.0, default=None)

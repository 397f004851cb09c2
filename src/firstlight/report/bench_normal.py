"""Is this number normal: the best products of a run beside what healthy cards of the model reach."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.bests import bests_of
from firstlight.bench.results import RunResult
from firstlight.numerals import significant
from firstlight.tables import Tables


def normal_lines(run: RunResult, tables: Tables) -> Iterator[str]:
    """'best bf16 product 797.7 TFLOPS (burst): 100 % of the 794.5 that healthy cards reach; normal'."""
    for best in bests_of(run, tables):
        where = f"GPU {best.gpu}: " if len(run.gpus) > 1 else ""
        yield (
            f"{where}best {best.precision} product {significant(best.tflops)} TFLOPS ({best.figure.regime.value}): "
            f"{100 * best.tflops / best.healthy_tflops:.0f} % of the {significant(best.healthy_tflops)} that healthy "
            f"cards of this model reach; {best.band.value}"
        )

"""Runs as pages meet them: an H200's, a processor's, and one with figures that no layout was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from firstlight.bench.results import CaseResult, Figure, Health, RunResult, Verdict, read_run

H200 = Path(__file__).parents[2] / "results" / "bench-h200-standard.json"


def h200_run() -> RunResult:
    return read_run(str(H200))


def processor_run() -> RunResult:
    """The same samples as a processor's run has them: no card, no limits, no clock."""
    run = h200_run()
    cases = tuple(
        replace(
            case,
            gpu=-1,
            launch_bound=None,
            figures=tuple(replace(each, limit=None, tier="", telemetry=None, flags=()) for each in case.figures),
        )
        for case in run.cases
        if case.family in ("gemm", "softmax", "layernorm") and case.verdict is Verdict.OK
    )
    software = replace(run.software, driver=None, cuda=None, cudnn=None, nccl=None, torch="2.13.0+cpu")
    info = replace(run.run, id="processor", argv=("bench", "--device=cpu"))
    return replace(run, gpus=(), cases=cases, health=Health(), software=software, run=info)


def wild_run(*, times: float = 1.0) -> RunResult:
    """Intervals of 16463.6 %, times from nanoseconds to days, names and rates without an end."""
    run = processor_run()
    return replace(run, cases=tuple(_wild(case, place, times) for place, case in enumerate(run.cases)))


def long_names_run() -> RunResult:
    """An H200's run whose card, cases and families have names that are too long for every chart."""
    run = h200_run()
    cases = tuple(
        replace(case, id=f"{case.id}/" + "of-somebody's-own" * 3, family=f"{case.family}-of-somebody's-own-family")
        for case in run.cases
    )
    return replace(run, cases=cases, gpus=(replace(run.gpus[0], name="NVIDIA H200 " + "of a long name " * 8),))


def _wild(case: CaseResult, place: int, times: float) -> CaseResult:
    factor = times * 10.0 ** (3 * (place % 5) - 6)
    name = f"{case.id}/" + "a-rather-long-name-of-somebody's-own-case" * (place % 3)
    figures = tuple(_wide(each, factor) for each in case.figures)
    return replace(case, id=name, family=case.family + "-of-a-rather-long-family-name" * (place % 2), figures=figures)


def _wide(figure: Figure, factor: float) -> Figure:
    time = figure.time_s
    passes = tuple(
        replace(each, median=each.median * factor, samples=tuple(sample * factor for sample in each.samples))
        for each in figure.passes
    )
    median = time.median * factor
    wide = replace(time, median=median, ci95=(median * 0.01, median * 329.282), min=time.min * factor, ci_reached=False)
    rate = replace(figure.rate, tflops=(figure.rate.tflops or 1.0) / factor)
    return replace(figure, time_s=wide, passes=passes, rate=rate, flags=("not_steady", "few_samples"))

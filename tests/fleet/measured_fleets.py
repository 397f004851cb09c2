"""Fleets made of changed copies of a real run of an H200, in the folder of a run as `fleet bench` keeps it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from firstlight.bench.results import Bound, CaseResult, Figure, GpuResult, RunResult, read_run, to_text
from firstlight.fleet.run import Engine, FleetRun, HostEnd, HostRun, Verb
from firstlight.fleet.run_folder import Shelf
from firstlight.report.html.bench_page import without_samples

ROOT = Path(__file__).parents[2]
RUN_ID = "20261118T060000Z-3f2a9c"


KEPT = (
    "gemm/fp16/4096x4096x4096", "gemm/bf16/8192x8192x8192", "gemm/fp8/8192x8192x8192", "bandwidth/copy/fp16/512MiB",
    "bandwidth/add/fp16/512MiB", "transfer/h2d/pinned/256MiB", "transfer/h2d/pageable/256MiB",
    "sdpa/flash/fp16/b4-h32-s4096-d128/full", "layernorm/fp16/32x512x4096", "resnet50/fp16/b64/eager",
    "resnet50/fp16/b64/graph", "encoder/fp16/l6-d1024-h16-ff2048/b8-s512/eager",
)  # fmt: skip


@cache
def real_run() -> RunResult:
    """Some cases of each kind, so that a fleet is made quickly."""
    run = without_samples(read_run(str(ROOT / "results/bench-h200-standard.json")))
    return replace(run, cases=tuple(case for case in run.cases if case.id in KEPT))


@dataclass(frozen=True)
class Odd:
    """How one GPU differs from the others: times longer, clocks lower, what the driver says, what is set."""

    longer: float = 1.0
    where: Callable[[CaseResult, Figure], bool] = lambda case, figure: True
    clock: float = 1.0
    clocks_read: bool = True
    reasons: tuple[tuple[str, float], ...] = ()
    temp_c: float | None = None
    card: Callable[[GpuResult], GpuResult] = lambda card: card
    runs: tuple[int, ...] = (1, 2)  # in which of them it is odd


def is_bound(*bounds: Bound) -> Callable[[CaseResult, Figure], bool]:
    return lambda case, figure: figure.limit is not None and figure.limit.bound in bounds


def changed(run: RunResult, odd: Odd, noise: random.Random, *, spread: float = 0.002) -> RunResult:
    """The run as this GPU would have made it, with a little noise in every figure."""
    cases = []
    for case in run.cases:
        figures = tuple(_figure(case, figure, odd, noise.gauss(1, spread)) for figure in case.figures)
        cases.append(replace(case, figures=figures))
    return replace(run, cases=tuple(cases), gpus=tuple(odd.card(card) for card in run.gpus))


def _figure(case: CaseResult, figure: Figure, odd: Odd, noise: float) -> Figure:
    factor = noise * (odd.longer if odd.where(case, figure) else 1.0)
    passes = tuple(
        replace(
            each,
            median=each.median * factor,
            sm_mhz=each.sm_mhz * odd.clock if odd.clocks_read and each.sm_mhz else None,
        )
        for each in figure.passes
    )
    time = figure.time_s
    low, high = time.ci95
    times = replace(
        time, median=time.median * factor, min=time.min * factor, ci95=(low * factor, high * factor),
        q1=time.q1 * factor, q3=time.q3 * factor,
    )  # fmt: skip
    seen = figure.telemetry
    if seen is not None:
        reasons = dict(seen.reasons_pct) | dict(odd.reasons)
        seen = replace(
            seen, reasons_pct=tuple(reasons.items()), temp_c=seen.temp_c if odd.temp_c is None else odd.temp_c
        )
    tflops = figure.rate.tflops and figure.rate.tflops / factor
    return replace(figure, time_s=times, passes=passes, telemetry=seen, rate=replace(figure.rate, tflops=tflops))


@dataclass(frozen=True)
class Planned:
    """A fleet to be written: how many GPUs each host has, which of them is odd and how."""

    gpus: dict[str, int]
    odd: dict[tuple[str, int], Odd]
    spread: float = 0.002
    runs: int = 2
    seed: int = 29

    def documents(self) -> dict[tuple[str, str], RunResult]:
        """By host and the name of the file."""
        noise, found = random.Random(self.seed), {}
        for host, count in self.gpus.items():
            for place in range(count):
                for number in range(1, self.runs + 1):
                    odd = self.odd.get((host, place), Odd())
                    now = odd if number in odd.runs else Odd()
                    found[host, f"gpu-{place}-run-{number}.json"] = changed(real_run(), now, noise, spread=self.spread)
        return found


def write_fleet(state: Path, planned: Planned, *, lost: Sequence[str] = (), failed: Sequence[str] = ()) -> Path:
    """The folder of a run with all that its hosts sent."""
    shelf = Shelf(str(state / "fleet"))
    ends = {**dict.fromkeys(lost, HostEnd.UNREACHABLE), **dict.fromkeys(failed, HostEnd.FAILED)}
    hosts = [HostRun(name, end=HostEnd.DONE) for name in planned.gpus]
    hosts += [HostRun(name, end=end, reason="ssh: Connection refused") for name, end in ends.items()]
    words = (str(planned.runs), "all", "", "--effort", "quick")
    shelf.write(
        FleetRun(RUN_ID, Verb.BENCH, "2026-11-18T06:00:00Z", "ann@desk", words, tuple(hosts), Engine("/etc/hosts.yml"))
    )
    folder = Path(shelf.folder(RUN_ID))
    for (host, name), run in planned.documents().items():
        (folder / "hosts" / host).mkdir(parents=True, exist_ok=True)
        (folder / "hosts" / host / name).write_text(to_text(run))
    return folder

"""One run: for each device the gate, the soak and the passes; then figures, limits and health in one result."""

from __future__ import annotations

import datetime
import enum
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from firstlight import __version__
from firstlight.bench import gate, processor
from firstlight.bench.about import commit_of, gpu_of, host_of, software_of
from firstlight.bench.attempts import Attempt, Attempts, Tools, Turn, first_attempt, run_passes, unheard
from firstlight.bench.case import Place
from firstlight.bench.choice import Choice, Suite, chosen
from firstlight.bench.clocks import Counters, Gauge, NvmlCard, NvmlGauge, Watch, reasons_pct
from firstlight.bench.figures import Setting, case_results
from firstlight.bench.memory import CpuMemory, CudaMemory
from firstlight.bench.outliers import outliers
from firstlight.bench.patience import PATIENCE, Patience
from firstlight.bench.peaks import NO_PEAKS, peaks_of
from firstlight.bench.place import CPU, Device, describe, device_names, import_torch, place_of, with_link_under_load
from firstlight.bench.results import CaseResult, GpuResult, Health, RunInfo, RunResult
from firstlight.bench.second_look import PASSES_AGAIN
from firstlight.bench.soak import Soak, power_findings, product_load, soak, wear_findings
from firstlight.bench.stopwatch import Stopwatch
from firstlight.bench.timers import CpuTimer, CudaTimer, Timer
from firstlight.errors import CouldNotLook
from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.tables import Tables

NO_SOAK = Soak((), None, (), 0.0)
KEEP_EVERY_S = 10.0


class Round(enum.Enum):
    """Which look at the cases a run is."""

    FIRST = "first"
    AGAIN = "again"  # in the same process: the GPU is warm, and what NVML sees on it is us


@dataclass(frozen=True, slots=True)
class Request:
    """One call of `firstlight bench`: what is run, on which device, and whether a shared GPU is refused."""

    choice: Choice
    device: str
    argv: tuple[str, ...]
    refuses_contention: bool = False
    round: Round = Round.FIRST

    @property
    def patience(self) -> Patience:
        """That of the effort; a second look has five passes of the same length, all of them in both regimes."""
        given = PATIENCE[self.choice.effort]
        if self.round is Round.FIRST:
            return given
        budget_s = given.pass_budget_s * PASSES_AGAIN
        return replace(given, passes=PASSES_AGAIN, sustained_passes=PASSES_AGAIN, budget_s=budget_s, soak_s=0.0)


@dataclass(frozen=True, slots=True)
class BenchSetting:
    """What a run needs from outside: the suite, the facts, the tables, and where progress goes."""

    suite: Suite
    facts: Facts
    tables: Tables
    tell: Callable[[Turn], None]
    say: Callable[[str], None]
    keep: Callable[[RunResult], None] = unheard  # gets the result so far, every ten seconds


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What one device gave."""

    gpu: GpuResult | None
    cases: tuple[CaseResult, ...]
    health: Health
    timing_s: float
    interrupted: bool


def run_bench(request: Request, world: BenchSetting) -> RunResult:
    """The result of a run; raises where nothing could be measured at all."""
    began = time.perf_counter()
    started = datetime.datetime.now(datetime.timezone.utc)
    names = device_names(request.device)
    runs: list[DeviceRun] = []
    interrupted = False

    def keep(unfinished: DeviceRun) -> None:
        so_far = [*runs, unfinished]
        world.keep(result_of(run_info(request, so_far, started=started, began=began), so_far, world))

    try:
        for name in names:
            runs.append(run_device(name, len(runs), request, world, keep=keep))
            if runs[-1].interrupted:
                break
    except KeyboardInterrupt:  # between the passes of two devices: what the first ones gave is kept
        if not runs:
            raise
        interrupted = True
    info = run_info(request, runs, started=started, began=began)
    commit = commit_of(LiveMachine())
    info = replace(info, interrupted=interrupted or runs[-1].interrupted, commit=commit.name, dirty=commit.dirty)
    return result_of(info, runs, world)


def run_info(request: Request, runs: list[DeviceRun], *, started: datetime.datetime, began: float) -> RunInfo:
    """What is known of a run before its end: as if it had been interrupted here."""
    on_processor = all(run.gpu is None for run in runs)
    return RunInfo(
        id=f"{started:%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}",
        started=f"{started:%Y-%m-%dT%H:%M:%SZ}",
        profile=request.choice.effort.value,
        argv=request.argv,
        passes=request.patience.passes,
        gpu_seconds=None if on_processor else round(sum(run.timing_s for run in runs), 2),
        wall_seconds=round(time.perf_counter() - began, 2),
        interrupted=True,
    )


def result_of(info: RunInfo, runs: list[DeviceRun], world: BenchSetting) -> RunResult:
    """What the devices gave, as one document."""
    cases = tuple(case for run in runs for case in run.cases)
    health = [run.health for run in runs]
    return RunResult(
        tool=f"firstlight {__version__}",
        run=info,
        host=host_of(world.facts),
        gpus=tuple(run.gpu for run in runs if run.gpu is not None),
        software=software_of(world.facts, import_torch()),
        health=Health(
            contention=tuple(sentence for each in health for sentence in each.contention),
            throttle_pct=health[0].throttle_pct,
            findings=(*(finding for each in health for finding in each.findings), *outliers(cases)),
            soak=health[0].soak,
            soak_steady=health[0].soak_steady,
        ),
        cases=cases,
    )


def run_device(
    name: str, gpu_place: int, request: Request, world: BenchSetting, *, keep: Callable[[DeviceRun], None] = unheard
) -> DeviceRun:
    """All cases on one device; the gate looks before our own context exists."""
    device = describe(name)
    contention = _passed_gate(device, request, world)
    with _watching(device) as gauge, _quiet_collector():
        place, timer = _started(device)
        wear, before = gauge.wear(), gauge.counters()
        soaked = _soaked(device, place, timer, gauge, request=request, world=world)
        gpu = gpu_of(with_link_under_load(device), world.facts)
        scene = _Scene(
            gauge=gauge,
            contention=contention,
            before=before,
            wear=wear,
            soaked=soaked,
            setting=Setting(
                gpu=gpu,
                gpu_place=-1 if gpu is None else gpu_place,
                peaks=NO_PEAKS if gpu is None else peaks_of(gpu, world.tables),
                patience=request.patience,
                missing=gauge.missing,
            ),
        )
        kept_at = float("-inf")

        def keep_attempts(attempts: tuple[Attempt, ...]) -> None:
            nonlocal kept_at
            if world.keep is not unheard and time.monotonic() - kept_at >= KEEP_EVERY_S:
                keep(_device_run(scene, Attempts(attempts, interrupted=True, timing_s=0.0)))
                kept_at = time.monotonic()

        first = processor.moment()
        outcome = _run_cases(place, timer, gauge, request=request, world=world, keep=keep_attempts)
        meanwhile = processor.during_sentence(processor.load_between(first, processor.moment()))
        return _device_run(replace(scene, contention=(*contention, *meanwhile)), outcome)


@dataclass(frozen=True, slots=True)
class _Scene:
    """What is known of a device before its cases run."""

    gauge: Gauge
    contention: tuple[str, ...]
    before: Counters
    wear: Counters
    soaked: Soak
    setting: Setting


def _device_run(scene: _Scene, outcome: Attempts) -> DeviceRun:
    setting, gauge = scene.setting, scene.gauge
    whole = Watch(scene.before, gauge.counters(), ())
    worn = wear_findings(scene.wear, gauge.wear())
    findings = (*scene.soaked.findings, *worn, *power_findings(setting.gpu))
    return DeviceRun(
        gpu=None if setting.gpu is None else replace(setting.gpu, peaks=setting.peaks.source),
        cases=case_results(outcome.attempts, setting),
        health=Health(
            contention=scene.contention,
            throttle_pct=reasons_pct((whole,)),
            findings=tuple(replace(finding, gpu=setting.gpu_place) for finding in findings),
            soak=scene.soaked.points,
            soak_steady=scene.soaked.steady,
        ),
        timing_s=outcome.timing_s + scene.soaked.seconds,
        interrupted=outcome.interrupted,
    )


def _passed_gate(device: Device, request: Request, world: BenchSetting) -> tuple[str, ...]:
    """What speaks against quiet numbers, said before anything is timed; refused where --strict wants that.

    A busy processor spoils what is timed on it, and of a GPU's cases those that wait for launches.
    """
    if request.round is Round.AGAIN:
        return ()
    load = processor.look()
    found = processor.before_sentence(load)
    if device.gpu is None:
        world.say("no GPU is timed: small cases on the processor, to see the whole flow; there are no limits for it")
        if request.refuses_contention:
            gate.refuse(found, "processor")
    else:
        world.say(f"{device.name} is {device.gpu.name}; looking whether it is idle")
        shared = gate.contention(gate.look(device.card, mps=world.facts.gpus.mps_control))
        if request.refuses_contention:
            gate.refuse(shared)
        found = (*shared, *found)
    for sentence in found:
        world.say(f"{device.name}: {sentence}")
    return found


def _started(device: Device) -> tuple[Place, Timer]:
    """The place with its free memory and a timer for it; a GPU that cannot run work ends here."""
    if device.gpu is None:
        return place_of(device), CpuTimer()
    try:
        place = place_of(device)
        return place, CudaTimer(device.name, l2_bytes=place.l2_bytes)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:200]
        raise CouldNotLook(f"{device.name} runs no work: {said}. `firstlight doctor` says why.") from None


def _soaked(device: Device, place: Place, timer: Timer, gauge: Gauge, *, request: Request, world: BenchSetting) -> Soak:
    if device.gpu is None or request.round is Round.AGAIN:
        return NO_SOAK
    most_s = request.patience.soak_s
    world.say(f"{device.name}: warming up to a steady clock, at most {most_s:.0f} s")
    return soak(product_load(place, timer), timer, gauge, most_s=most_s)


def _run_cases(
    place: Place,
    timer: Timer,
    gauge: Gauge,
    *,
    request: Request,
    world: BenchSetting,
    keep: Callable[[tuple[Attempt, ...]], None],
) -> Attempts:
    cases = chosen(world.suite(place), request.choice)
    attempts = [first_attempt(case, place) for case in cases]
    memory = CpuMemory() if place.device == CPU else CudaMemory(place.device)
    tools = Tools(place, Stopwatch(timer, gauge, patience=request.patience), memory, request.patience)
    return run_passes(attempts, tools, tell=world.tell, keep=keep)


@contextmanager
def _watching(device: Device) -> Iterator[Gauge]:
    gauge: Gauge = NvmlGauge(device.card) if isinstance(device.card, NvmlCard) else device.card
    try:
        yield gauge
    finally:
        gauge.close()


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """No garbage collection inside a timed call; what is imported by now is left out of the collections between."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()

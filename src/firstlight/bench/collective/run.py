"""One run of collectives: ranks are started, and what they measured becomes a result like that of any other case."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from dataclasses import replace

from firstlight.bench import gate, processor
from firstlight.bench.attempts import Attempt, Turn, first_attempt
from firstlight.bench.case import Case, Effort, Place
from firstlight.bench.choice import chosen
from firstlight.bench.collective.cases import CPU, CUDA, Ranks, collective_cases
from firstlight.bench.collective.folder import Measured, Told
from firstlight.bench.collective.order import Order
from firstlight.bench.collective.start import Ended, Meeting, run_ranks
from firstlight.bench.figures import Setting, case_results
from firstlight.bench.patience import PATIENCE
from firstlight.bench.peaks import NO_PEAKS, peaks_of
from firstlight.bench.place import Device, describe, device_names
from firstlight.bench.results import CaseResult, GpuResult, Health, RunResult, Verdict
from firstlight.bench.runner import BenchSetting, DeviceRun, Request, Round, result_of, run_info
from firstlight.errors import BadInput, CouldNotLook
from firstlight.frozen import dataclass

PROCESSES = 4  # of gloo, where there is no GPU
STEP_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Together:
    """What is asked of collectives beside what is asked of every case."""

    most_bytes: int
    limit_s: float = STEP_LIMIT_S
    processes: int = PROCESSES
    nodes: int = 1
    rendezvous: str = ""
    name: str = "firstlight"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """This node took part, and rank 0, which has the figures, is on another; `trouble` is '' where all went well."""

    trouble: str


def cases_here(device: str, together: Together) -> tuple[Case, ...]:
    """The cases that would run, named only."""
    return collective_cases(_ranks(devices_of(device), together), most_bytes=together.most_bytes)


def run_collective(request: Request, world: BenchSetting, together: Together) -> RunResult | Elsewhere:
    """The result of a run of collectives; Elsewhere on a node that has no figures."""
    began = time.perf_counter()
    started = datetime.datetime.now(datetime.timezone.utc)
    devices = devices_of(request.device)
    ranks = _ranks(devices, together)
    cases = chosen(collective_cases(ranks, most_bytes=together.most_bytes), request.choice)
    contention = _contention(devices, ranks, request, world)

    def result(ended: Ended) -> RunResult:
        run = _device_run(devices[0].gpu, cases, ended, contention)
        info = replace(run_info(request, [run], started=started, began=began), interrupted=ended.interrupted)
        made = result_of(info, [run], world)
        found = (device.gpu for device in devices if device.gpu is not None)
        return replace(made, gpus=tuple(replace(gpu, peaks=peaks_of(gpu, world.tables).source) for gpu in found))

    if ranks.count < 2:
        return _closed(result(Ended(None, "", "")))
    ended = run_ranks(
        _order(request, ranks, together),
        Meeting(_per_node(devices, together), together.nodes, together.rendezvous, together.name),
        listen=_listener(world),
        keep=lambda so_far: world.keep(result(Ended(so_far, "", ""))),
    )
    if ended.measured is None and together.nodes > 1 and not ended.interrupted:
        return Elsewhere(ended.trouble)
    return _closed(result(ended))


def _closed(run: RunResult) -> RunResult:
    from firstlight.bench.about import commit_of
    from firstlight.machine.live import LiveMachine

    commit = commit_of(LiveMachine())
    return replace(run, run=replace(run.run, commit=commit.name, dirty=commit.dirty))


def devices_of(wanted: str) -> tuple[Device, ...]:
    """Every GPU, or the processor; another device is refused, and one that is not there is said."""
    if wanted not in (CPU, "all"):
        raise BadInput(
            f"--device {wanted!a}: a collective is between devices; accepted: all (every GPU that torch sees; "
            "CUDA_VISIBLE_DEVICES chooses), or cpu (processes with gloo)"
        )
    try:
        return tuple(describe(name) for name in device_names(wanted))
    except CouldNotLook as error:
        first = str(error).partition(". ")[0]
        raise CouldNotLook(
            f"{first}. `firstlight doctor` says why; `firstlight bench --only collective --device cpu` measures "
            f"{PROCESSES} processes with gloo."
        ) from None


def _per_node(devices: tuple[Device, ...], together: Together) -> int:
    return together.processes if devices[0].gpu is None else len(devices)


def _ranks(devices: tuple[Device, ...], together: Together) -> Ranks:
    device = CPU if devices[0].gpu is None else CUDA
    return Ranks(device, _per_node(devices, together) * together.nodes, together.nodes)


def _order(request: Request, ranks: Ranks, together: Together) -> Order:
    return Order(
        device=ranks.device,
        nodes=together.nodes,
        effort=request.choice.effort,
        only=request.choice.only,
        most_bytes=together.most_bytes,
        limit_s=together.limit_s,
        again=request.round is Round.AGAIN,
    )


def _listener(world: BenchSetting) -> Callable[[Told], None]:
    def listen(told: Told) -> None:
        world.tell(Turn(told.case_id, told.number, told.cases, told.pass_number, told.passes))

    return listen


def _contention(devices: tuple[Device, ...], ranks: Ranks, request: Request, world: BenchSetting) -> tuple[str, ...]:
    """What speaks against quiet numbers; refused where --strict wants that."""
    if request.round is Round.AGAIN or ranks.count < 2:
        return ()
    load = processor.look()
    found = processor.before_sentence(load)
    if ranks.device == CPU:
        cores = len(os.sched_getaffinity(0))
        world.say(f"{ranks.count} processes with gloo on {cores} cores; no limit is known for the way between them")
        if request.refuses_contention:
            gate.refuse(found, "processor")
        if ranks.count > cores:
            found = (*found, f"{ranks.count} processes share {cores} cores: the times are the scheduler's too")
    else:
        world.say(f"{ranks.count} GPUs with NCCL; looking whether they are idle")
        shared = [
            f"{device.name}: {sentence}"
            for device in devices
            for sentence in gate.contention(gate.look(device.card, mps=world.facts.gpus.mps_control))
        ]
        if request.refuses_contention:
            gate.refuse(tuple(shared))
        found = (*shared, *found)
    for sentence in found:
        world.say(sentence)
    return found


def _device_run(gpu: GpuResult | None, cases: tuple[Case, ...], ended: Ended, contention: tuple[str, ...]) -> DeviceRun:
    """What came of every case: measured, the one at which the ranks stopped, and those that were not reached."""
    found = {} if ended.measured is None else {case.id: case for case in ended.measured.cases}
    results = tuple(found.get(case.id) or _without(case, ended, gpu) for case in cases)
    if ended.trouble:
        results = tuple(_stopped(each, ended) if each.id == ended.case_id else each for each in results)
        if not any(each.verdict is Verdict.FAILED for each in results):
            results = (_stopped(results[0], ended), *results[1:])
    measured = ended.measured or Measured(0, (), 0.0)
    return DeviceRun(
        gpu=gpu,
        cases=results,
        health=Health(contention=contention, throttle_pct=measured.throttle_pct),
        timing_s=measured.timing_s,
        interrupted=ended.interrupted,
    )


def _without(case: Case, ended: Ended, gpu: GpuResult | None) -> CaseResult:
    """A case that no rank measured, with the reason."""
    attempt: Attempt = first_attempt(case, Place(case.devices[0], 0, 0, (0, 0)))
    if attempt.verdict is Verdict.OK:
        reason = "interrupted before it ran" if ended.interrupted else "not run: the ranks had stopped"
        attempt = replace(attempt, verdict=Verdict.SKIPPED, reason=reason)
    place = -1 if gpu is None else 0
    [result] = case_results([attempt], Setting(gpu, place, NO_PEAKS, PATIENCE[Effort.QUICK], ()))
    return result


def _stopped(result: CaseResult, ended: Ended) -> CaseResult:
    return replace(result, verdict=Verdict.FAILED, reason=ended.trouble, figures=(), headline=None)

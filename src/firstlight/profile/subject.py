"""What is profiled: a case by name with its work and the unit that sets its pace, and what the stopwatch says of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firstlight.bench.case import Case, Effort, Place
from firstlight.bench.peaks import NO_PEAKS, Peaks, canonical
from firstlight.bench.results import RunResult, read_run
from firstlight.errors import BadInput, CouldNotLook
from firstlight.frozen import dataclass
from firstlight.machine.spawn import run_bounded
from firstlight.profile.result import Limit, Pace, Value

BENCH_LIMIT_S = 240.0
_VECTOR = ("fp32", "fp64")
_NAMED = 6
_SMALL_GPU = Place("cuda:0", l2_bytes=4 << 20, free_bytes=12 << 30, capability=(7, 5))


@dataclass(frozen=True, slots=True)
class Subject:
    """A case on a device: cuda:0, 'NVIDIA H200' (or 'processor'), with its peaks."""

    case: Case
    device: str  # cuda:0, cpu
    device_name: str
    peaks: Peaks


def find_subject(name: str, device: str) -> Subject:
    """The one case of that id, or the only one that a start or a pattern means; no context is made on the GPU."""
    from firstlight.bench.cases.suite import ALL_CASES
    from firstlight.bench.peaks import peaks_of
    from firstlight.bench.place import describe, processor_memory
    from firstlight.tables import load

    names = _device_names(device, name)
    if len(names) > 1:
        raise BadInput(f"--device {device}: a profile covers one device; accepted: {', '.join(names)}")
    described = describe(names[0])
    gpu = described.gpu
    memory = processor_memory() if gpu is None else gpu.mem_bytes or 0
    place = Place(described.name, 0 if gpu is None else gpu.l2_bytes or 0, memory, described.capability)
    found = _one_case(name, ALL_CASES(place))
    if found.needs:
        raise BadInput(f"{found.id} cannot run here: {found.needs}")
    if gpu is None:
        return Subject(found, names[0], "processor", NO_PEAKS)
    return Subject(found, names[0], gpu.name, peaks_of(gpu, load()))


def _device_names(device: str, case_name: str) -> tuple[str, ...]:
    """The devices; where there is no torch or no GPU, a name that is no case on any is the fault to tell first."""
    from firstlight.bench.cases.suite import ALL_CASES
    from firstlight.bench.place import ASSUMED, device_names, import_torch

    try:
        import_torch()
        return device_names(device)
    except CouldNotLook:
        # Two GPUs, because sizes follow the card: fp64 products are halved, models are cut to fit.
        cases = {case.id: case for place in (ASSUMED, _SMALL_GPU) for case in ALL_CASES(place)}
        _one_case(case_name, tuple(cases.values()))
        raise


def _one_case(name: str, cases: tuple[Case, ...]) -> Case:
    """The case that a name means; BadInput with what is accepted where it means none or several."""
    from firstlight.bench.choice import Choice, chosen

    try:
        found = chosen(cases, Choice(Effort.RIGOROUS, (name,)))
    except BadInput as error:
        raise BadInput(str(error).replace("--only ", "", 1)) from None
    if len(found) > 1:
        some = ", ".join(case.id for case in found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
        raise BadInput(f"{name!a} means {len(found)} cases; a profile covers one. Name it: {some}")
    return found[0]


def kind_of_case(case: Case, peaks: Peaks) -> tuple[Pace, str]:
    """Which unit sets the pace by the counts: the one that needs longest for the least work; and how we know."""
    if case.peak == "bandwidth":
        return Pace.MEMORY, "the case moves bytes and computes next to nothing"
    tflops, gbps = peaks.spec_tflops(case.peak) or peaks.max_tflops(case.peak), peaks.bandwidth_gbps
    if case.peak in ("link", "none") or not tflops or not gbps:
        return Pace.UNKNOWN, "no limit of this case is known on this device"
    compute_us, memory_us = case.work.flops / tflops / 1e6, case.work.bytes / gbps / 1e3
    told = f"at the datasheet's peaks {compute_us:.4g} us to compute, {memory_us:.4g} us to move"
    if memory_us > compute_us:
        return Pace.MEMORY, told
    return (Pace.VECTOR if canonical(case.peak) in _VECTOR else Pace.TENSOR), told


def kind_by_counters(values: tuple[Value, ...]) -> tuple[Pace, str]:
    """Which unit was the busiest, for a command that says nothing of its work."""
    found = {each.key: each.value for each in values}
    dram, tensor, rest = found.get("dram_pct"), found.get("tensor_pct"), found.get("sm_pct")
    if dram is None or rest is None:
        return Pace.UNKNOWN, "not counted"
    if dram >= max(rest, tensor or 0.0):
        return Pace.MEMORY, f"the memory was the busiest ({dram:.3g} %)"
    if tensor is not None and tensor >= rest / 2:
        return Pace.TENSOR, f"the tensor cores were the busiest ({tensor:.3g} %)"
    return Pace.VECTOR, f"the SMs were the busiest ({rest:.3g} %), not their tensor cores"


def limit_from_file(path: str, case_id: str) -> Limit:
    """What an earlier run says of the case; BadInput where it does not hold it."""
    run = read_run(path)
    limit = _limit(run, case_id, path)
    if limit is None:
        raise BadInput(
            f"--bench {path}: {case_id} was not measured there; accepted: a run that holds it, or no --bench"
        )
    return limit


def limit_by_stopwatch(case_id: str, device: str, work: Path) -> Limit:
    """What `firstlight bench` says of the case now, in a process of its own and without a profiler."""
    out = work / "bench.json"
    argv = (
        sys.executable, "-m", "firstlight", "bench", "--only", case_id, "--effort", "quick", "--device", device,
        "--out", str(out),
    )  # fmt: skip
    done = run_bounded(argv, timeout_s=BENCH_LIMIT_S, env=os.environ)
    try:
        limit = _limit(read_run(str(out)), case_id, "firstlight bench --effort quick, just now")
    except BadInput:
        limit = None
    return limit or Limit(None, None, None, f"the stopwatch gave nothing: {done.complaint}")


def _limit(run: RunResult, case_id: str, seen_in: str) -> Limit | None:
    for case in run.cases:
        if case.id == case_id:
            figure = case.shown
            if figure is None:
                return Limit(None, None, None, f"{seen_in}: {case.verdict.value}, {case.reason}")
            share = None if figure.limit is None else figure.limit.pct_clock
            return Limit(figure.tier, share, figure.time_s.median, f"{seen_in}, {figure.regime.value}")
    return None

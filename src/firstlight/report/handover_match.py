"""Whether the documents that are handed over are of one machine, and whether what was done is what was proved."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from firstlight.apply.journal import Record
from firstlight.apply.runs import runs_of
from firstlight.bench.results import RunResult
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.report.facts_lines import text
from firstlight.report.handover import Change, Proof
from firstlight.report.summary import gpu_words
from firstlight.ways.step import CheckKind, Step


@dataclass(frozen=True, slots=True)
class Named:
    """What a document says of the machine it is of; "" or () where it says nothing."""

    gpus: tuple[str, ...] = ()
    machine: str = ""  # the first line of a document of `verify`
    processor: str = ""
    arch: str = ""


def named_by_run(run: RunResult) -> Named:
    """What a run of `bench` says of its machine."""
    gpus = tuple(gpu.name for gpu in run.gpus)
    return Named(gpus=gpus, processor=run.host.cpu or "", arch=run.host.machine or "")


def other_machine(facts: Facts, named: Named) -> str:
    """'it has NVIDIA A100; the facts have NVIDIA H200' where a document is of another machine, else ""."""
    if named.machine and not named.machine.startswith(gpu_words(facts)):
        return _two(named.machine, gpu_words(facts))
    here = _gpu_names(facts)
    if strangers := [name for name in dict.fromkeys(named.gpus) if name not in here]:
        return _two(", ".join(strangers), gpu_words(facts))
    return _other_processor(facts, named)


def other_before(facts: Facts, before: Facts) -> str:
    """The same of an earlier look: a card may have come or gone since, and a driver that failed named none."""
    here, there = _gpu_names(facts), _gpu_names(before)
    if here and there and not here & there:
        return _two(gpu_words(before), gpu_words(facts))
    return _other_processor(facts, Named(processor=text(before.resources.processor_model), arch=before.place.arch))


def _other_processor(facts: Facts, named: Named) -> str:
    pairs = ((named.arch, facts.place.arch), (named.processor, text(facts.resources.processor_model)))
    return next((_two(there, here) for there, here in pairs if there and here and there != here), "")


def _two(there: str, here: str) -> str:
    return f"it has {there}; the facts have {here}"


def _gpu_names(facts: Facts) -> set[str]:
    names = {gpu.name.value for gpu in facts.gpus.devices if isinstance(gpu.name, Known)}
    return names | {device.name for device in facts.libcuda.devices}


def done_elsewhere(records: Sequence[Record], proofs: Sequence[Proof]) -> Iterator[Change]:
    """The torch that the last run installed, where the proof was made with another Python."""
    installed = [
        (run, step.title, python)
        for run in runs_of(records)
        if run.done and not run.undone
        for step in run.steps
        if step.id not in run.taken_back
        for python in _torch_into(step)
    ]
    for run, title, python in installed[-1:]:
        for proof in proofs:
            if proof.interpreter and _place(proof.interpreter) != _place(python):
                now = f"proved is {proof.interpreter}"
                yield Change("the Python with torch", f"{python}: {title}", now, f"run {run.number}, {run.at}")


def _torch_into(step: Step) -> Iterator[str]:
    """The interpreter that a step gives torch."""
    for condition in step.done_when:
        names = [line.partition("==")[0] for line in condition.expected.splitlines()]
        if condition.kind is CheckKind.DISTRIBUTIONS and "torch" in names:
            yield condition.target


def _place(interpreter: str) -> tuple[str, ...]:
    """The folder of an interpreter; whose home it is in does not count, for one of the two may be a pseudonym."""
    parts = posixpath.dirname(interpreter).split("/")
    return tuple(parts[3:] if parts[:2] == ["", "home"] else parts)

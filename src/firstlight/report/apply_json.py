"""What `apply` and `undo` did, as JSON documents (schemas firstlight.apply/1 and firstlight.undo/1)."""

from __future__ import annotations

from firstlight.apply.account import Taken
from firstlight.apply.outcome import Applied, Failure, Undone
from firstlight.apply.runs import Run
from firstlight.diagnosis.explain import explain_text
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.report.documents.acting import (
    ApplyDocument,
    CauseSeen,
    FailureSeen,
    PersonsStep,
    RunSeen,
    StepDone,
    StepToDo,
    UndoDocument,
)
from firstlight.report.documents.making import headed, shown
from firstlight.report.explain_text import printable
from firstlight.report.undo_text import state_of
from firstlight.report.verify_json import verify_document
from firstlight.verify.check import Report
from firstlight.ways.step import Step

APPLY, UNDO = "firstlight.apply/1", "firstlight.undo/1"


def apply_document(outcome: Applied, proofs: tuple[Report, ...]) -> ApplyDocument:
    """The document, schema first; `verify` is null where it was not run."""
    return headed(
        ApplyDocument,
        APPLY,
        outcome,
        run=outcome.run or None,
        steps=[_taken(taken, outcome.rate) for taken in outcome.taken],
        to_do=[] if outcome.taken else [_to_do(step, outcome) for step in outcome.parts.ours],
        left_out=[step.id for step in outcome.parts.left_out],
        by_a_person=[shown(PersonsStep, step) for step in outcome.parts.persons],
        waiting=[step.id for step in outcome.parts.waiting],
        failure=next((_failure(failure) for failure in outcome.failure), None),
        verify=next((dict(verify_document(report)) for report in proofs), None),
    )


def _taken(taken: Taken, rate: Fact[float]) -> StepDone:
    step = taken.step
    return shown(
        StepDone,
        step,
        state=taken.state,
        saw=taken.saw,
        seconds={"expected": value_or(step.seconds, None), "actual": round(taken.seconds, 3)},
        download_bytes={"expected": value_or(step.bytes, None)},
        disk_bytes={"actual": value_or(taken.disk_bytes, None)},
        money={"expected": _money(step.seconds, rate), "actual": _money(Known(taken.seconds, ""), rate)},
    )


def _to_do(step: Step, outcome: Applied) -> StepToDo:
    return shown(
        StepToDo,
        step,
        holds_already=step.id in outcome.held if outcome.journal else None,
        files=[change.path for change in step.files],
        seconds={"expected": value_or(step.seconds, None)},
        download_bytes={"expected": value_or(step.bytes, None)},
    )


def _money(seconds: Fact[float], rate: Fact[float]) -> float | None:
    if isinstance(seconds, Unknown) or isinstance(rate, Unknown):
        return None
    return round(seconds.value / 3600 * rate.value, 4)


def _failure(failure: Failure) -> FailureSeen:
    return shown(
        FailureSeen,
        failure,
        message=printable(failure.message),
        tail=[printable(line) for line in failure.tail],
        explained=[shown(CauseSeen, each.signature) for each in explain_text("\n".join(failure.tail)).explanations],
    )


def undo_document(undone: Undone, runs: tuple[Run, ...]) -> UndoDocument:
    """The document of `undo` and of `undo --list`; `run` is null where there is nothing to take back."""
    return headed(
        UndoDocument,
        UNDO,
        undone,
        run=next((_run(run) for run in undone.run), None),
        runs=[_run(run) for run in reversed(runs)],
        failure=next((_failure(failure) for failure in undone.failure), None),
    )


def _run(run: Run) -> RunSeen:
    steps = [{"id": step.id, "title": step.title, "changed": step.id in run.begun} for step in run.steps]
    return shown(RunSeen, run, state=state_of(run), steps=steps)

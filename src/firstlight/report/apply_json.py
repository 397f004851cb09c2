"""What `apply` and `undo` did, as JSON documents (schemas firstlight.apply/1 and firstlight.undo/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.apply.account import Taken
from firstlight.apply.outcome import Applied, Failure, Undone
from firstlight.apply.runs import Run
from firstlight.diagnosis.explain import Explained, explain_text
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.report.explain_text import printable
from firstlight.report.undo_text import state_of
from firstlight.report.verify_json import verify_document
from firstlight.verify.check import Report
from firstlight.ways.step import Step

if TYPE_CHECKING:
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

APPLY, UNDO = "firstlight.apply/1", "firstlight.undo/1"


def apply_document(outcome: Applied, proofs: tuple[Report, ...]) -> ApplyDocument:
    """The document, schema first; `verify` is null where it was not run."""
    return {
        "schema": APPLY,
        "made_by": f"firstlight {__version__}",
        "ending": outcome.ending.value,
        "option": outcome.option,
        "title": outcome.title,
        "digest": outcome.digest,
        "run": outcome.run or None,
        "resumed": list(outcome.resumed),
        "journal": outcome.journal,
        "steps": [_taken(taken, outcome.rate) for taken in outcome.taken],
        "to_do": [] if outcome.taken else [_to_do(step, outcome) for step in outcome.parts.ours],
        "left_out": [step.id for step in outcome.parts.left_out],
        "by_a_person": [_person(step) for step in outcome.parts.persons],
        "waiting": [step.id for step in outcome.parts.waiting],
        "failure": next((_failure(failure) for failure in outcome.failure), None),
        "verify": next((dict(verify_document(report)) for report in proofs), None),
    }


def _taken(taken: Taken, rate: Fact[float]) -> StepDone:
    step = taken.step
    expected: Fact[float] = step.seconds
    return {
        "id": step.id,
        "title": step.title,
        "kind": step.kind.value,
        "state": taken.state.value,
        "saw": taken.saw,
        "seconds": {"expected": value_or(expected, None), "actual": round(taken.seconds, 3)},
        "download_bytes": {"expected": value_or(step.bytes, None)},
        "disk_bytes": {"actual": value_or(taken.disk_bytes, None)},
        "money": {"expected": _money(expected, rate), "actual": _money(Known(taken.seconds, ""), rate)},
    }


def _to_do(step: Step, outcome: Applied) -> StepToDo:
    return {
        "id": step.id,
        "title": step.title,
        "kind": step.kind.value,
        "holds_already": step.id in outcome.held if outcome.journal else None,
        "needs_root": step.needs_root,
        "commands": [list(argv) for argv in step.commands],
        "files": [change.path for change in step.files],
        "undo": [list(argv) for argv in step.undo],
        "seconds": {"expected": value_or(step.seconds, None)},
        "download_bytes": {"expected": value_or(step.bytes, None)},
    }


def _money(seconds: Fact[float], rate: Fact[float]) -> float | None:
    if isinstance(seconds, Unknown) or isinstance(rate, Unknown):
        return None
    return round(seconds.value / 3600 * rate.value, 4)


def _person(step: Step) -> PersonsStep:
    return {
        "id": step.id,
        "title": step.title,
        "commands": [list(argv) for argv in step.commands],
        "lines": list(step.lines),
        "note": step.note,
    }


def _failure(failure: Failure) -> FailureSeen:
    return {
        "message": printable(failure.message),
        "argv": list(failure.argv),
        "tail": [printable(line) for line in failure.tail],
        "log": failure.log,
        "explained": _explained(explain_text("\n".join(failure.tail))),
    }


def _explained(explained: Explained) -> list[CauseSeen]:
    return [
        {"code": each.signature.code, "title": each.signature.title, "cause": each.signature.cause}
        for each in explained.explanations
    ]


def undo_document(undone: Undone, runs: tuple[Run, ...]) -> UndoDocument:
    """The document of `undo` and of `undo --list`; `run` is null where there is nothing to take back."""
    return {
        "schema": UNDO,
        "made_by": f"firstlight {__version__}",
        "ending": undone.ending.value,
        "run": next((_run(run) for run in undone.run), None),
        "left": undone.left,
        "journal": undone.journal,
        "runs": [_run(run) for run in reversed(runs)],
        "failure": next((_failure(failure) for failure in undone.failure), None),
    }


def _run(run: Run) -> RunSeen:
    return {
        "number": run.number,
        "at": run.at,
        "state": state_of(run),
        "option": run.option,
        "title": run.title,
        "digest": run.digest,
        "steps": [{"id": step.id, "title": step.title, "changed": step.id in run.begun} for step in run.steps],
    }

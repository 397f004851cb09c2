"""What the journal tells of each run: what was planned, how far it got, whether it was taken back."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from firstlight.apply.journal import Journal, Record
from firstlight.facts.codec import from_json, to_json
from firstlight.frozen import dataclass
from firstlight.plan.step import Step

RUN_BEGUN, RUN_DONE, UNDO_BEGUN, RUN_UNDONE = "run-begun", "run-done", "undo-begun", "run-undone"
STEP_BEGUN, STEP_DONE, STEP_SKIPPED, STEP_FAILED, STEP_UNDONE = (
    "step-begun", "step-done", "step-skipped", "step-failed", "step-undone",
)  # fmt: skip
COMMAND_STARTED, COMMAND_ENDED = "command-started", "command-ended"
SET_SAVED, SET_SETTLED = "set-saved", "set-settled"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of `apply`, read back from the journal."""

    number: int
    at: str
    digest: str  # of the plan
    option: str
    title: str
    steps: tuple[Step, ...]
    done: bool
    undoing: bool  # an undo was begun and has not ended
    undone: bool
    begun: frozenset[str]  # steps that changed something, or may have
    finished: frozenset[str]  # steps that were proved done
    taken_back: frozenset[str]

    @property
    def unfinished(self) -> bool:
        """Begun, and neither ended nor being taken back: the next apply goes on with it."""
        return not (self.done or self.undoing or self.undone)


def runs_of(records: Iterable[Record]) -> tuple[Run, ...]:
    """All runs in the journal, oldest first."""
    by_run: dict[int, list[Record]] = {}
    for record in records:
        by_run.setdefault(record.about["run"], []).append(record)
    return tuple(_run(number, mine) for number, mine in sorted(by_run.items()))


def _run(number: int, records: list[Record]) -> Run:
    first = records[0]
    events = {record.event for record in records}

    def steps_with(*wanted: str) -> frozenset[str]:
        return frozenset(record.about["step"] for record in records if record.event in wanted)

    return Run(
        number=number,
        at=first.at,
        digest=first.about["digest"],
        option=first.about["option"],
        title=first.about["title"],
        steps=steps_from_json(first.about["steps"]),
        done=RUN_DONE in events,
        undoing=UNDO_BEGUN in events and RUN_UNDONE not in events,
        undone=RUN_UNDONE in events,
        begun=steps_with(STEP_BEGUN),
        finished=steps_with(STEP_DONE, STEP_SKIPPED),
        taken_back=steps_with(STEP_UNDONE),
    )


def about_step(journal: Journal, event: str, *, run: int, step: str) -> tuple[Record, ...]:
    """The records of one kind about one step of one run, oldest first."""
    return tuple(
        record
        for record in journal.records
        if record.event == event and record.about["run"] == run and record.about.get("step") == step
    )


def steps_to_json(steps: tuple[Step, ...]) -> list[Any]:
    """Steps for the journal; texts of files travel as base64, so that any byte and any length comes back as it was."""
    documents = []
    for step in steps:
        document = to_json(step)
        for owner, name in _texts(document):
            owner[name] = base64.b64encode(owner[name].encode("utf-8", "surrogateescape")).decode()
        documents.append(document)
    return documents


def steps_from_json(documents: list[Any]) -> tuple[Step, ...]:
    """The steps back from the journal."""
    return tuple(_step(document) for document in documents)


def _step(document: Any) -> Step:
    from copy import deepcopy
    from dataclasses import replace

    empty = deepcopy(document)
    for owner, name in _texts(empty):
        owner[name] = ""  # read below: the reader of facts takes neither control characters nor long texts
    for change in empty["files"]:
        change.setdefault("links_to", "")  # a journal of before there were links
        change.setdefault("takes_out", [])  # and of before edits were tried
    step = from_json(Step, empty, "step")
    files = tuple(
        replace(change, before=_text(said["before"]), after=_text(said["after"]))
        for change, said in zip(step.files, document["files"], strict=True)
    )
    conditions = tuple(
        replace(condition, expected=_text(said["expected"]))
        for condition, said in zip(step.done_when, document["done_when"], strict=True)
    )
    return replace(step, files=files, done_when=conditions)


def _texts(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    """Where a step's document holds the text of a file, or a line of one."""
    for change in document["files"]:
        yield change, "before"
        yield change, "after"
    for condition in document["done_when"]:
        yield condition, "expected"


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode("utf-8", "surrogateescape")

"""What the journal tells of each run: what was planned, how far it got, whether it was taken back."""

from __future__ import annotations

from collections.abc import Iterable

from firstlight.apply.journal import Journal, Record
from firstlight.apply.stored_steps import TEXT_COMMANDS, steps_from_json, steps_to_json
from firstlight.frozen import dataclass
from firstlight.ways.back import Argv, BackKind
from firstlight.ways.step import Step, StepKind

__all__ = ["Run", "about_step", "runs_of", "steps_from_json", "steps_to_json"]

# What these change is known package by package, which is more than the plan's own way back can know.
BY_SETS_ALONE = (StepKind.PIP, StepKind.UV, StepKind.APT, StepKind.BUILD)

RUN_BEGUN, RUN_DONE, UNDO_BEGUN, RUN_UNDONE = "run-begun", "run-done", "undo-begun", "run-undone"
STEP_BEGUN, STEP_DONE, STEP_SKIPPED, STEP_FAILED, STEP_UNDONE = (
    "step-begun", "step-done", "step-skipped", "step-failed", "step-undone",
)  # fmt: skip
COMMAND_STARTED, COMMAND_ENDED = "command-started", "command-ended"
RECOVERY_STARTED, RECOVERY_ENDED = "recovery-started", "recovery-ended"
SET_SAVED, SET_SETTLED = "set-saved", "set-settled"
MOVED_ASIDE = "folder-moved-aside"


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
    by_sets: frozenset[str]  # steps whose packages come back one by one, without their own commands
    written_in: int = TEXT_COMMANDS + 1  # the journal's format when it was begun

    @property
    def stored_commands(self) -> tuple[Argv, ...]:
        """The command lines of a journal of 0.1 that taking it back runs."""
        if self.written_in != TEXT_COMMANDS:
            return ()
        left = [step for step in self.steps if step.id in self.begun and step.id not in self.taken_back]
        return tuple(
            back.words
            for step in reversed(left)
            if step.id not in self.by_sets
            for back in step.back
            if back.kind is BackKind.STORED
        )

    @property
    def stored_steps(self) -> tuple[Argv, ...]:
        """The commands of the steps that are left to do, where a journal of 0.1 holds them."""
        if self.written_in != TEXT_COMMANDS:
            return ()
        return tuple(argv for step in self.steps if step.id not in self.finished for argv in step.commands)

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

    steps = steps_from_json(first.about["steps"], written_in=first.format)
    return Run(
        number=number,
        at=first.at,
        digest=first.about["digest"],
        option=first.about["option"],
        title=first.about["title"],
        steps=steps,
        done=RUN_DONE in events,
        undoing=UNDO_BEGUN in events and RUN_UNDONE not in events,
        undone=RUN_UNDONE in events,
        begun=steps_with(STEP_BEGUN),
        finished=steps_with(STEP_DONE, STEP_SKIPPED),
        taken_back=steps_with(STEP_UNDONE),
        by_sets=frozenset(step.id for step in steps if step.kind in BY_SETS_ALONE) & steps_with(SET_SAVED),
        written_in=first.format,
    )


def about_step(journal: Journal, event: str, *, run: int, step: str) -> tuple[Record, ...]:
    """The records of one kind about one step of one run, oldest first."""
    return tuple(
        record
        for record in journal.records
        if record.event == event and record.about["run"] == run and record.about.get("step") == step
    )

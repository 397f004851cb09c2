"""Carries out the steps of a plan: looks, keeps what it will change, changes, proves, writes each down."""

from __future__ import annotations

import enum
import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import Protocol

from firstlight.apply.apt_recovery import Recovering, finish_interrupted, uses_dpkg
from firstlight.apply.commands import Ended, process_start, run_logged, wait_for_orphan
from firstlight.apply.conditions import all_met, proved
from firstlight.apply.debris import clear, has_halves, places_of, take_up
from firstlight.apply.disk import Disk
from firstlight.apply.edit_proof import refuse_untried
from firstlight.apply.footprints import (
    folders_above,
    lock_is_held,
    project_files,
    require_free_names,
    require_own_start_files,
    there_before,
)
from firstlight.apply.journal import Journal, Record, ours_alone
from firstlight.apply.named_copy import has_nothing_to_take, refuse_other_copies
from firstlight.apply.runs import (
    COMMAND_ENDED,
    COMMAND_STARTED,
    RECOVERY_ENDED,
    RECOVERY_STARTED,
    RUN_BEGUN,
    RUN_DONE,
    STEP_BEGUN,
    STEP_DONE,
    STEP_FAILED,
    STEP_SKIPPED,
    Run,
    about_step,
    runs_of,
    steps_from_json,
    steps_to_json,
)  # fmt: skip
from firstlight.apply.saved_files import SavedFiles
from firstlight.apply.second_try import clear_half_made, is_copied, is_moved, stands, was_cut_off
from firstlight.apply.sessions import wait_for_session
from firstlight.apply.set_records import commands_of, save_sets, settle_sets
from firstlight.errors import BadInput, CouldNotAct
from firstlight.frozen import dataclass
from firstlight.owned import our_folder
from firstlight.ways.step import Step, StepKind

LOCK_LIMIT_S, LOCK_PAUSE_S = 1800.0, 2.0
# How long a command that a killed firstlight left running is waited for: compiling goes on for hours by itself.
ORPHAN_S, COMPILING_S, BUILD_STAGE = 1800.0, 7 * 86400.0, "firstlight.build.stage"
OURSELVES = "firstlight"


class StepFailed(CouldNotAct):
    """A command of a step failed, or the step ran and its condition still does not hold."""

    def __init__(self, message: str, *, step: Step, argv: tuple[str, ...], tail: tuple[str, ...], log: str) -> None:
        super().__init__(message)
        self.step, self.argv, self.tail, self.log = step, argv, tail, log


class Watcher(Protocol):
    """Whoever watches a run: the command line, or a test."""

    def step_begins(self, step: Step, *, number: int, total: int) -> None: ...

    def step_skipped(self, step: Step, *, saw: str) -> None: ...

    def step_ended(self, step: Step, *, seconds: float, saw: str) -> None: ...

    def line(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def asks(self, question: str) -> bool:
        """A person's yes; False where nobody is there to give it, --yes included."""

    def somebody_answers(self) -> bool:
        """Whether a no is a person's."""


@dataclass(frozen=True, slots=True)
class Acting:
    """What acting needs: where the journal and the originals are, and who watches."""

    folder: str  # this machine's state folder
    journal: Journal
    disk: Disk
    watcher: Watcher
    env: Mapping[str, str]

    @property
    def saved(self) -> SavedFiles:
        return SavedFiles(f"{self.folder}/originals", disk=self.disk, journal=self.journal)


def is_done(steps: tuple[Step, ...]) -> bool:
    """Whether every step already holds; then nothing is written, not even the journal."""
    return all(all_met(step.done_when).holds for step in steps)


def held_already(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The ids of the steps that hold already."""
    return tuple(step.id for step in steps if is_done((step,)))


def begin(acting: Acting, steps: tuple[Step, ...], *, digest: str, option: str, title: str) -> Run:
    """Write the whole plan into the journal, so that the next call can go on with it whatever happens."""
    number = len(runs_of(acting.journal.records)) + 1
    documents = steps_to_json(steps)
    try:
        same = steps_from_json(documents) == steps
    except BadInput as error:  # e.g. a folder with a control character in its name
        raise CouldNotAct(f"this plan cannot be written down to be resumed: {error}. Nothing was changed.") from error
    assert same, digest
    acting.journal.add(RUN_BEGUN, run=number, digest=digest, option=option, title=title, steps=documents)
    return runs_of(acting.journal.records)[-1]


def carry_out(acting: Acting, run: Run) -> None:
    """Do every step of a run that does not hold yet; the first failure stops it and the next call goes on there."""
    wait_for_what_still_runs(acting, run.number)
    for number, step in enumerate(run.steps, 1):
        acting.disk.passing(f"step {number}: look")
        met = (proved if step.id in run.finished else all_met)(step.done_when)
        if met.holds and not _must_run_again(acting, run, step):
            if step.id not in run.finished:
                if step.id in run.begun:
                    _recover(acting, run.number, step)  # killed at its very end, apt would refuse what comes next
                _settle(acting, run.number, step)
                event = STEP_DONE if step.id in run.begun else STEP_SKIPPED
                acting.journal.add(event, run=run.number, step=step.id, seconds=0.0, saw=met.saw)
            acting.watcher.step_skipped(step, saw=met.saw)
            continue
        acting.watcher.step_begins(step, number=number, total=len(run.steps))
        _do(acting, run.number, step)
    acting.journal.add(RUN_DONE, run=run.number)


def _must_run_again(acting: Acting, run: Run, step: Step) -> bool:
    """Whether a condition that holds proves nothing: the attempt was cut off, and nobody made it whole since.

    uv writes packages side by side: what was asked for can be whole, and what that needs is not.
    """
    unfinished = step.id in run.begun - run.finished
    if unfinished and any(has_halves(place) for place in places_of(acting, run.number, step)):
        return True
    return was_cut_off(acting.journal, run.number, step) and not stands(acting.journal, run.number, step)


def _do(acting: Acting, run: int, step: Step) -> None:
    journal, begun = acting.journal, time.monotonic()
    if step.kind in (StepKind.MANUAL, StepKind.LIBRARIES):
        raise CouldNotAct(f"{step.title}: you have to do this yourself. {step.note} Then run the same command again.")
    if lacks_rights(step):
        raise CouldNotAct(f"{step.title}: this needs root. Run the same command with sudo, or choose another option.")
    if was_cut_off(journal, run, step):
        for said in clear_half_made(acting.disk, journal, run, step):
            acting.watcher.say(said)
    _recover(acting, run, step)  # before the set is saved: what others had begun to install stays when ours goes
    save_sets(acting.journal, run, step)  # first: a step whose undo cannot be prepared does not begin
    if not about_step(journal, STEP_BEGUN, run=run, step=step.id):
        refuse_untried(step)
        refuse_other_copies(step, acting.env)
        require_free_names(step)
        journal.add(STEP_BEGUN, run=run, step=step.id, there=there_before(step), folders=folders_above(step))
    require_own_start_files(step)
    for place in places_of(acting, run, step):
        take_up(place)
    for path in project_files(step):
        acting.saved.keep(path, run=run, step=step.id)
    for change in step.files:
        acting.saved.change(change, run=run, step=step.id)
    commands = commands_of(step)
    for number, argv in enumerate(commands, 1):
        if is_copied(acting.disk, journal, run, step, argv) or is_moved(journal, run, step, argv):
            continue
        if has_nothing_to_take(step, argv, acting.env):
            continue
        ended = run_command(acting, argv, run=run, step=step.id)
        if ended.status != 0:
            settle_sets(acting.journal, run, step)
            journal.add(STEP_FAILED, run=run, step=step.id, argv=list(argv), status=ended.status, tail=list(ended.tail))
            said = f"{step.title}: command {number} of {len(commands)} ended with status {ended.status}: "
            raise StepFailed(said + shlex.join(argv), step=step, argv=argv, tail=ended.tail, log=ended.log)
    _settle(acting, run, step)
    for path in project_files(step):
        acting.saved.settle(path, run=run, step=step.id)
    acting.disk.passing(f"{step.id}: prove")
    met = proved(step.done_when)
    if not met.holds:
        journal.add(STEP_FAILED, run=run, step=step.id, argv=[], status=0, tail=[met.saw])
        raise StepFailed(
            f"{step.title}: every command ended well, and yet {met.saw}.", step=step, argv=(), tail=(), log=""
        )
    seconds = time.monotonic() - begun
    journal.add(STEP_DONE, run=run, step=step.id, seconds=round(seconds, 3), saw=met.saw)
    acting.watcher.step_ended(step, seconds=seconds, saw=met.saw)


def _settle(acting: Acting, run: int, step: Step) -> None:
    """After the commands: keep what they left, and take away what a killed one did."""
    for place in places_of(acting, run, step):
        clear(place)
    settle_sets(acting.journal, run, step)


def lacks_rights(step: Step) -> bool:
    """Whether the step needs root, we are not, and its commands do not go through sudo.

    Files of root are written, and put back by undo, without sudo: also those that a tool writes by itself.
    """
    elevates = not (step.files or project_files(step)) and any(argv[0] == "sudo" for argv in step.commands)
    return step.needs_root and os.geteuid() != 0 and not elevates


class Purpose(enum.Enum):
    """Why a command runs: as the names under which its start and its end are written down."""

    STEP = (COMMAND_STARTED, COMMAND_ENDED)
    RECOVERY = (RECOVERY_STARTED, RECOVERY_ENDED)  # of what a killed package manager left: undo does not answer for it


def recovering(acting: Acting, *, run: int, step: Step) -> Recovering:
    """How to put dpkg right before a step, or before its undo."""
    sudo = ("sudo",) if os.geteuid() != 0 and any(argv[:1] == ("sudo",) for argv in step.commands) else ()

    def act(argv: tuple[str, ...]) -> Ended:
        return run_command(acting, argv, run=run, step=step.id, purpose=Purpose.RECOVERY)

    return Recovering(act, acting.watcher.say, sudo)


def _recover(acting: Acting, run: int, step: Step) -> None:
    if uses_dpkg(step):
        finish_interrupted(recovering(acting, run=run, step=step), step)


def run_command(
    acting: Acting, argv: tuple[str, ...], *, run: int, step: str, purpose: Purpose = Purpose.STEP
) -> Ended:
    """Run one command with its start and end in the journal; where another apt is at work, wait and try again."""
    begun, told = time.monotonic(), ""
    while True:
        ended = _run_once(acting, argv, run=run, step=step, purpose=purpose)
        held = lock_is_held(ended.tail) if ended.status != 0 else ""
        if not held or time.monotonic() - begun > LOCK_LIMIT_S:
            return ended
        if held != told:
            acting.watcher.say(f"waiting for another package manager: {held}")
            told = held
        time.sleep(LOCK_PAUSE_S)


def _run_once(acting: Acting, argv: tuple[str, ...], *, run: int, step: str, purpose: Purpose) -> Ended:
    logs = f"{acting.folder}/logs"
    acting.disk.make_folders(logs, mode=0o700)
    with ours_alone(), our_folder(logs):
        pass  # nobody else can put another folder in its place from here on
    at_start, at_end = purpose.value

    def started(process: int) -> None:
        acting.journal.add(at_start, run=run, step=step, argv=list(argv), process=process, start=process_start(process))

    def killed() -> None:  # what it had started goes on without it
        _wait_for_rest(acting, acting.journal.records[-1])

    ended = run_logged(
        _by_this_firstlight(argv), log=f"{logs}/run-{run:04d}-{step}.log", env=acting.env, started=started,
        watch=acting.watcher.line, killed=killed,
    )  # fmt: skip
    acting.disk.passing(f"{step}: command ended")
    acting.journal.add(at_end, run=run, step=step, argv=list(argv), status=ended.status)
    return ended


def wait_for_what_still_runs(acting: Acting, run: int) -> None:
    """A killed firstlight may have left pip or apt running; wait for it rather than start it beside itself."""
    for record in reversed(acting.journal.records):
        if record.about["run"] != run or record.event in (COMMAND_ENDED, RECOVERY_ENDED):
            return
        if record.event in (COMMAND_STARTED, RECOVERY_STARTED):
            limit_s = COMPILING_S if _compiles(record.about["argv"]) else ORPHAN_S
            wait_for_orphan(
                record.about["process"], start=record.about["start"], say=acting.watcher.say, limit_s=limit_s
            )
            _wait_for_rest(acting, record)
            return


def _compiles(argv: list[str]) -> bool:
    """Whether a command compiles for hours, of which nobody takes the end for a hang."""
    at = _place_of_ours(tuple(argv))
    return BUILD_STAGE in argv or list(argv[at : at + 2]) == [OURSELVES, "build"]


def _by_this_firstlight(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`firstlight build ...` of a plan, run by the firstlight that carries the plan out, on PATH or not."""
    at = _place_of_ours(argv)
    return (*argv[:at], sys.executable, "-m", OURSELVES, *argv[at + 1 :]) if argv[at : at + 1] == (OURSELVES,) else argv


def _place_of_ours(argv: tuple[str, ...]) -> int:
    """Where the program stands: behind `env` and what that sets, else at the front."""
    if argv[:1] != ("env",):
        return 0
    return next((at for at, word in enumerate(argv[1:], 1) if "=" not in word), 0)


def _wait_for_rest(acting: Acting, started: Record) -> None:
    wait_for_session(started.about["process"], start=started.about["start"], say=acting.watcher.say)

"""Takes a run back, newest step first: packages to the set of before, files to their bytes of before."""

from __future__ import annotations

import os
from itertools import pairwise

from firstlight.apply.executor import Acting, wait_for_what_still_runs
from firstlight.apply.footprints import removed_by
from firstlight.apply.new_folders import remove_new_folders
from firstlight.apply.runs import (
    COMMAND_STARTED,
    RUN_UNDONE,
    SET_SAVED,
    STEP_BEGUN,
    STEP_UNDONE,
    UNDO_BEGUN,
    Run,
    about_step,
)
from firstlight.apply.saved_files import SAVED
from firstlight.apply.undo_sets import command_back, restore_set
from firstlight.plan.step import Step, StepKind

# The manifest has to be back before the tool that reads it runs, and a file of the loader before ldconfig does.
FILES_FIRST = (StepKind.FILE, StepKind.PROJECT)
# What these change is known package by package, which is more than the plan's own undo commands can know.
BY_SETS_ALONE = (StepKind.PIP, StepKind.UV, StepKind.APT)


def undo(acting: Acting, run: Run) -> None:
    """Take back every step that was begun; killed half-way, the next call goes on with the rest."""
    wait_for_what_still_runs(acting, run.number)
    if not run.undoing:
        acting.journal.add(UNDO_BEGUN, run=run.number)
    for number, step in reversed(tuple(enumerate(run.steps, 1))):
        if step.id not in run.begun or step.id in run.taken_back:
            continue
        acting.watcher.step_begins(step, number=number, total=len(run.steps))
        _undo_step(acting, run, step)
        acting.journal.add(STEP_UNDONE, run=run.number, step=step.id)
    acting.journal.add(RUN_UNDONE, run=run.number)


def _undo_step(acting: Acting, run: Run, step: Step) -> None:
    saved = about_step(acting.journal, SAVED, run=run.number, step=step.id)[::-1]
    sets = about_step(acting.journal, SET_SAVED, run=run.number, step=step.id)[::-1]
    if step.kind in FILES_FIRST:
        for record in saved:
            acting.saved.restore(record)
    if not sets or step.kind not in BY_SETS_ALONE:
        _run_back(acting, run, step)
    for record in sets:
        restore_set(acting, run, step, record)
    if sets:
        remove_new_folders(acting.disk, step, there=_there_before(acting, run, step))
    if step.kind not in FILES_FIRST:
        for record in saved:
            acting.saved.restore(record)


def _there_before(acting: Acting, run: Run, step: Step) -> frozenset[str]:
    """What was there before the step and is not ours to remove."""
    begun = about_step(acting.journal, STEP_BEGUN, run=run.number, step=step.id)
    return frozenset(path for each in begun for path in each.about.get("there", ()))


def _run_back(acting: Acting, run: Run, step: Step) -> None:
    """The step's own commands back, less what was there before it; none where it has commands and none of them ran."""
    if step.commands and not about_step(acting.journal, COMMAND_STARTED, run=run.number, step=step.id):
        return
    there = _there_before(acting, run, step)
    for argv in step.undo:
        kept = [path for path in removed_by(argv) if path in there]
        if kept:
            acting.watcher.say(f"{', '.join(kept)} was there before firstlight: it is left as it is")
        words = tuple(word for word in argv if word not in kept)
        if kept and not removed_by(words):
            continue
        if _is_back_already(words):
            continue
        command_back(acting, run, step, words)


def _is_back_already(argv: tuple[str, ...]) -> bool:
    """Whether an undo that was killed did this: the saved copy is gone, or the lock file to sync by never was."""
    if argv[:1] == ("mv",):
        return not os.path.lexists(argv[-2])
    if "--frozen" not in argv:
        return False
    places = dict(pairwise(argv))
    lock = f"{places['--project']}/uv.lock" if "--project" in places else ""
    lock = lock or f"{os.path.dirname(places.get('--manifest-path', ''))}/pixi.lock"
    return not os.path.exists(lock)

"""Takes a run back, newest step first: packages to the set of before, files to their bytes of before."""

from __future__ import annotations

import os
from dataclasses import replace

from firstlight.apply.executor import BUILD_STAGE, Acting, wait_for_what_still_runs
from firstlight.apply.new_folders import remove_new_folders
from firstlight.apply.runs import (
    COMMAND_STARTED,
    MOVED_ASIDE,
    RUN_UNDONE,
    SET_SAVED,
    STEP_BEGUN,
    STEP_UNDONE,
    UNDO_BEGUN,
    Run,
    about_step,
)
from firstlight.apply.saved_files import SAVED
from firstlight.apply.undo_checks import check_step, require_agreed
from firstlight.apply.undo_sets import command_back, restore_set
from firstlight.errors import CouldNotAct
from firstlight.owned import way_to
from firstlight.ways.back import Argv, Back, BackKind, argv_of, copy_of, lock_of, removes
from firstlight.ways.step import Step, StepKind

# The manifest has to be back before the tool that reads it runs, and a file of the loader before ldconfig does.
FILES_FIRST = (StepKind.FILE, StepKind.PROJECT)


def undo(acting: Acting, run: Run, *, agreed: tuple[Argv, ...] = ()) -> None:
    """Take back every step that was begun; killed half-way, the next call goes on with the rest.

    `agreed` are the command lines of a journal of 0.1 that somebody read and agreed to; no other is run.
    """
    require_agreed(run, run.stored_commands, agreed)
    left = [(number, step) for number, step in enumerate(run.steps, 1) if _is_left(run, step)]
    for _, step in left:
        check_step(acting, run, step)
    wait_for_what_still_runs(acting, run.number)
    if not run.undoing:
        acting.journal.add(UNDO_BEGUN, run=run.number)
    for number, step in reversed(left):
        if step.back or not _keeps_what_it_made(step):
            taking = replace(step, title=f"taking back: {step.title}")
            acting.watcher.step_begins(taking, number=number, total=len(run.steps))
        _undo_step(acting, run, step)
        acting.journal.add(STEP_UNDONE, run=run.number, step=step.id)
    acting.journal.add(RUN_UNDONE, run=run.number)


def _keeps_what_it_made(step: Step) -> bool:
    """Whether a step is a stage of a build: tree and objects stay, and nobody shall read that they are taken back."""
    return any(BUILD_STAGE in argv for argv in step.commands)


def _is_left(run: Run, step: Step) -> bool:
    return step.id in run.begun and step.id not in run.taken_back


def _undo_step(acting: Acting, run: Run, step: Step) -> None:
    saved = about_step(acting.journal, SAVED, run=run.number, step=step.id)[::-1]
    sets = about_step(acting.journal, SET_SAVED, run=run.number, step=step.id)[::-1]
    if step.kind in FILES_FIRST:
        for record in saved:
            acting.saved.restore(record)
    if step.id not in run.by_sets:
        _run_back(acting, run, step)
    for record in sets:
        restore_set(acting, run, step, record)
    if sets:
        remove_new_folders(acting.disk, step, there=_there_before(acting, run, step))
    if step.kind not in FILES_FIRST:
        for record in saved:
            acting.saved.restore(record)
    _remove_folders_above(acting, run, step)


def _remove_folders_above(acting: Acting, run: Run, step: Step) -> None:
    """The folders that the step's commands made on the way to what they brought, where they are empty now."""
    brought = [path for back in step.back for path in back.words]
    for record in about_step(acting.journal, STEP_BEGUN, run=run.number, step=step.id):
        for folder in reversed(record.about.get("folders", ())):
            if _ran(acting, run, step) and any(path.startswith(f"{folder}/") for path in brought):
                acting.disk.remove_folder(folder)


def _ran(acting: Acting, run: Run, step: Step) -> bool:
    return bool(about_step(acting.journal, COMMAND_STARTED, run=run.number, step=step.id))


def _there_before(acting: Acting, run: Run, step: Step) -> frozenset[str]:
    """What was there before the step and is not ours to remove."""
    begun = about_step(acting.journal, STEP_BEGUN, run=run.number, step=step.id)
    return frozenset(path for each in begun for path in each.about.get("there", ()))


def _run_back(acting: Acting, run: Run, step: Step) -> None:
    """The step's own way back, less what was there before it; none where it has commands and none of them ran."""
    if step.commands and not _ran(acting, run, step):
        return
    there = _there_before(acting, run, step)
    for record in about_step(acting.journal, MOVED_ASIDE, run=run.number, step=step.id):
        acting.watcher.say(f"{record.about['to']} holds files of yours: it is left as it is")
    for back in step.back:
        kept = [path for path in (*removes(back), *copy_of(back)) if path in there]
        so = [word for word in back.words if f"{back.kind.value} {word}" in there]  # loaded, running, held before
        if kept or so:
            acting.watcher.say(f"{', '.join((*kept, *so))} was there before firstlight: it is left as it is")
        left = Back(back.kind, tuple(word for word in back.words if word not in (*kept, *so)), back.sudo)
        if (kept and not removes(left)) or (so and not left.words) or _is_back_already(left):
            continue
        _take_back(acting, run, step, left)


def _take_back(acting: Acting, run: Run, step: Step, back: Back) -> None:
    if back.kind is BackKind.SHOWN:
        return
    if back.kind is BackKind.REMOVE_FILE and not back.sudo:
        for path in back.words:
            acting.disk.remove(path)
        return
    if back.kind is BackKind.MOVE_BACK:
        copy, path = back.words
        if _was_put_back(acting, run, step, path):
            acting.disk.remove(copy)  # the command that made it may have been killed: it can be short
            return
        if os.path.lexists(path):
            raise CouldNotAct(
                f"{path} is there again, and {copy} would take its place; undo would lose what is there now. Move it "
                f"away (mv {path} {path}.mine) and run undo again."
            )
        if not back.sudo:
            acting.disk.move(copy, path)
            return
    if back.kind is BackKind.REMOVE_FOLDER:
        with way_to(os.path.dirname(back.words[0])):
            pass  # a link of another user on the way would lead rm elsewhere
    command_back(acting, run, step, argv_of(back))


def _was_put_back(acting: Acting, run: Run, step: Step, path: str) -> bool:
    """Whether the journal's own copy of a file took its place already, before the commands of the way back."""
    saved = about_step(acting.journal, SAVED, run=run.number, step=step.id)
    return step.kind in FILES_FIRST and any(record.about["path"] == os.path.realpath(path) for record in saved)


def _is_back_already(back: Back) -> bool:
    """Whether there is nothing to do: an undo that was killed moved the copy, or no lock file is there to sync by."""
    if back.kind is BackKind.STORED:
        return back.words[:1] == ("mv",) and not os.path.lexists(back.words[-2:][0])
    if back.kind is BackKind.MOVE_BACK:
        return not os.path.lexists(back.words[0])
    if back.kind is BackKind.REMOVE_FOLDER:
        return not os.path.lexists(back.words[0])
    return bool(lock := lock_of(back)) and not os.path.exists(lock)

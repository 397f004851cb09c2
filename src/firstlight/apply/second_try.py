"""What the killed attempt of a step left is taken away before the next one: half a checkout looks like a whole one."""

from __future__ import annotations

import os
import shutil
from itertools import count

from firstlight.apply.conditions import all_met
from firstlight.apply.disk import Disk, named
from firstlight.apply.half_made import foreign_in, is_whole_checkout
from firstlight.apply.journal import Journal, Record
from firstlight.apply.runs import COMMAND_ENDED, COMMAND_STARTED, MOVED_ASIDE, STEP_BEGUN, STEP_DONE, about_step
from firstlight.ways.back import Argv, copy_of, removes
from firstlight.ways.step import Step, StepKind

# A folder of their own: git refuses to clone into half of one and to work beside its own locks, venv and tar leave
# files that look whole. pip, uv and apt know what they have half done, and their steps are proved package by package.
MADE_ANEW = (StepKind.GIT, StepKind.VENV, StepKind.ARCHIVE)
# Killed between two commands, e.g. before the lists of a new repository were fetched, the condition may hold already;
# so it does once a file is written, and GRUB's menu, the early boot image or the loader's cache is still the old one.
RUN_AGAIN = (*MADE_ANEW, StepKind.APT, StepKind.PROJECT, StepKind.FILE)
_BY_SIGNAL = 128  # a shell or sudo adds the signal's number to it
_NAMED = 3


def was_cut_off(journal: Journal, run: int, step: Step) -> bool:
    """Whether an attempt began and not all of its commands ended well: the step's condition proves nothing then."""
    if step.kind not in RUN_AGAIN or about_step(journal, STEP_DONE, run=run, step=step.id):
        return False
    started = about_step(journal, COMMAND_STARTED, run=run, step=step.id)
    ended = about_step(journal, COMMAND_ENDED, run=run, step=step.id)
    if not started:
        return bool(step.commands and step.files and about_step(journal, STEP_BEGUN, run=run, step=step.id))
    return len(started) > len(ended) or not _ended_well(ended).issuperset(step.commands)


def _ended_well(ended: tuple[Record, ...]) -> set[Argv]:
    return {tuple(record.about["argv"]) for record in ended if record.about["status"] == 0}


def is_moved(journal: Journal, run: int, step: Step, argv: Argv) -> bool:
    """Whether a first attempt moved this file aside: there is nothing left to move, and what follows is still to do."""
    if "mv" not in argv[:2] or not was_cut_off(journal, run, step):
        return False
    ended = about_step(journal, COMMAND_ENDED, run=run, step=step.id)
    return argv in _ended_well(ended) or (os.path.lexists(argv[-1]) and not os.path.lexists(argv[-2]))


def stands(journal: Journal, run: int, step: Step) -> bool:
    """Whether what a cut-off attempt left has become whole since, by somebody's hand; its condition holds."""
    if step.kind is StepKind.GIT:
        return is_whole_checkout(step)
    return step.kind is StepKind.VENV and not _was_killed(journal, run, step)


def is_copied(disk: Disk, journal: Journal, run: int, step: Step, argv: tuple[str, ...]) -> bool:
    """Whether a first attempt made this copy of a file whole: made again it would be of what the step changed since.

    A copy that was cut off is taken away.
    """
    copies = [path for back in step.back for path in copy_of(back)]
    if argv[:1] != ("cp",) or argv[-1] not in copies or not was_cut_off(journal, run, step):
        return False
    of_this = [
        record
        for record in about_step(journal, COMMAND_ENDED, run=run, step=step.id)
        if tuple(record.about["argv"]) == argv
    ]
    if any(record.about["status"] == 0 for record in of_this):
        return True
    begun = about_step(journal, STEP_BEGUN, run=run, step=step.id)
    if not any(argv[-1] in record.about.get("there", ()) for record in begun):
        disk.remove(argv[-1])
    return False


def clear_half_made(disk: Disk, journal: Journal, run: int, step: Step) -> tuple[str, ...]:
    """Take away what the step's undo would, less what was there before it; gives a sentence for each path.

    A folder that holds what the step did not make is moved aside whole.
    """
    if step.kind not in MADE_ANEW or _was_completed(journal, run, step):
        return ()
    begun = about_step(journal, STEP_BEGUN, run=run, step=step.id)
    there = {path for record in begun for path in record.about.get("there", ())}
    ours = [path for back in step.back for path in removes(back) if path not in there and os.path.lexists(path)]
    # All are looked at before the first goes: what is in a folder is known by the archive beside it.
    foreign = {path: foreign_in(step, path) for path in ours if os.path.isdir(path) and not os.path.islink(path)}
    said = []
    for path in ours:
        if foreign.get(path):
            said.append(_move_aside(disk, journal, run, step, path) + f" It holds {_some(foreign[path])}.")
            continue
        disk.passing(f"{path}: clear")
        with named(path):
            if path in foreign:
                shutil.rmtree(path)
            else:
                os.unlink(path)
        said.append(f"{path} was left half-made by the interrupted attempt: it is made again")
    return tuple(said)


def _was_killed(journal: Journal, run: int, step: Step) -> bool:
    """Whether the last command of the step did not end by itself: what it was writing may look whole."""
    started = about_step(journal, COMMAND_STARTED, run=run, step=step.id)
    ended = about_step(journal, COMMAND_ENDED, run=run, step=step.id)
    return len(started) > len(ended) or not 0 <= ended[-1].about["status"] < _BY_SIGNAL


def _was_completed(journal: Journal, run: int, step: Step) -> bool:
    """Whether an archive that was cut off by a failure is unpacked all the same; its commands run over it then."""
    return step.kind is StepKind.ARCHIVE and not _was_killed(journal, run, step) and all_met(step.done_when).holds


def _move_aside(disk: Disk, journal: Journal, run: int, step: Step, path: str) -> str:
    numbered = (f"{path}.before-firstlight-{number}" for number in count(1))
    aside = next(each for each in numbered if not os.path.lexists(each))
    journal.add(MOVED_ASIDE, run=run, step=step.id, path=path, to=aside)
    disk.move(path, aside)
    return f"{path} was left half-made by the interrupted attempt, with files of yours: it was moved to {aside}."


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    shown = (name if name.isprintable() else ascii(name) for name in names[:_NAMED])
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")

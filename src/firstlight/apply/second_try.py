"""What the killed attempt of a step left is taken away before the next one: half a checkout looks like a whole one."""

from __future__ import annotations

import os
import shutil

from firstlight.apply.disk import Disk, named
from firstlight.apply.journal import Journal
from firstlight.apply.runs import COMMAND_ENDED, COMMAND_STARTED, STEP_BEGUN, STEP_DONE, about_step
from firstlight.plan.back import removes
from firstlight.plan.step import Step, StepKind

# A folder of their own: git refuses to clone into half of one and to work beside its own locks, venv and tar leave
# files that look whole. pip, uv and apt know what they have half done, and their steps are proved package by package.
MADE_ANEW = (StepKind.GIT, StepKind.VENV, StepKind.ARCHIVE)
# Killed between two commands, e.g. before the lists of a new repository were fetched, the condition may hold already.
RUN_AGAIN = (*MADE_ANEW, StepKind.APT, StepKind.PROJECT)


def was_cut_off(journal: Journal, run: int, step: Step) -> bool:
    """Whether an attempt began and not all of its commands ended well: the step's condition proves nothing then."""
    if step.kind not in RUN_AGAIN or about_step(journal, STEP_DONE, run=run, step=step.id):
        return False
    started = about_step(journal, COMMAND_STARTED, run=run, step=step.id)
    ended = about_step(journal, COMMAND_ENDED, run=run, step=step.id)
    if not started:
        return False
    well = {tuple(record.about["argv"]) for record in ended if record.about["status"] == 0}
    return len(started) > len(ended) or not well.issuperset(step.commands)


def clear_half_made(disk: Disk, journal: Journal, run: int, step: Step) -> tuple[str, ...]:
    """Take away what the step's undo would, less what was there before it; gives the paths that went."""
    if step.kind not in MADE_ANEW:
        return ()
    begun = about_step(journal, STEP_BEGUN, run=run, step=step.id)
    there = {path for record in begun for path in record.about.get("there", ())}
    ours = [path for back in step.back for path in removes(back) if path not in there and os.path.lexists(path)]
    for path in ours:
        disk.passing(f"{path}: clear")
        with named(path):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    return tuple(ours)

"""Takes a run back, newest step first: packages to the set of before, files to their bytes of before."""

from __future__ import annotations

import os
import shlex
from itertools import pairwise

from firstlight.apply.executor import Acting, run_command, wait_for_what_still_runs
from firstlight.apply.footprints import removed_by
from firstlight.apply.journal import Record
from firstlight.apply.package_sets import (
    Difference,
    commands_for_distributions,
    commands_for_packages,
    difference,
    distributions,
    manual_packages,
    packages,
)  # fmt: skip
from firstlight.apply.runs import (
    COMMAND_STARTED,
    RUN_UNDONE,
    SET_SAVED,
    SET_SETTLED,
    STEP_BEGUN,
    STEP_UNDONE,
    UNDO_BEGUN,
    Run,
    about_step,
)
from firstlight.apply.saved_files import SAVED
from firstlight.errors import CouldNotAct
from firstlight.plan.step import Step, StepKind

# The manifest has to be back before the tool that reads it runs, and a file of the loader before ldconfig does.
FILES_FIRST = (StepKind.FILE, StepKind.PROJECT)
# What these change is known package by package, which is more than the plan's own undo commands can know.
BY_SETS_ALONE = (StepKind.PIP, StepKind.UV, StepKind.APT)
PYTORCH_INDEX = "https://download.pytorch.org/whl/"


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
        _restore_set(acting, run, step, record)
    if step.kind not in FILES_FIRST:
        for record in saved:
            acting.saved.restore(record)


def _run_back(acting: Acting, run: Run, step: Step) -> None:
    """The step's own commands back, less what was there before it; none where it has commands and none of them ran."""
    if step.commands and not about_step(acting.journal, COMMAND_STARTED, run=run.number, step=step.id):
        return
    there = {path for each in about_step(acting.journal, STEP_BEGUN, run=run.number, step=step.id)
             for path in each.about.get("there", ())}  # fmt: skip
    for argv in step.undo:
        kept = [path for path in removed_by(argv) if path in there]
        if kept:
            acting.watcher.say(f"{', '.join(kept)} was there before firstlight: it is left as it is")
        words = tuple(word for word in argv if word not in kept)
        if kept and not removed_by(words):
            continue
        if _is_back_already(words):
            continue
        _command(acting, run, step, words)


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


def _restore_set(acting: Acting, run: Run, step: Step, record: Record) -> None:
    target = record.about["target"]
    if record.about["of"] == "distributions" and not os.path.exists(target):
        acting.watcher.say(f"{target} is gone: there is no environment to bring packages back to")
        return
    gap = _gap(acting, run, step, record)
    if record.about["of"] == "packages":
        commands = commands_for_packages(gap, root=_root(step))
    else:
        commands = commands_for_distributions(gap, interpreter=target, uv=_uv_of(step), sources=sources_of(step, gap))
    for argv in commands:
        _command(acting, run, step, argv)
    if record.about["of"] == "packages":
        _restore_marks(acting, run, step, record)
    left = _gap(acting, run, step, record)
    if left.added or left.back:
        differs = ", ".join(
            (*(f"{name} is still there" for name in left.added), *(f"{each} is missing" for each in left.back))
        )
        raise CouldNotAct(
            f"undo of {step.title!r} did not bring every package back: {differs}. Run undo again to retry."
        )


def _gap(acting: Acting, run: Run, step: Step, record: Record) -> Difference:
    """What differs now and was changed by the step: what somebody installed since is theirs and stays."""
    before = list(record.about["before"])
    gap = difference(before, _now(record))
    after = _settled(acting, run, step, record)
    if not after:  # killed while a command ran: all that differs may be ours
        return gap
    ours = difference(before, list(after[-1].about["after"]))
    touched = {each.partition("==")[0] for each in (*ours.added, *ours.back)}
    return Difference(
        tuple(name for name in gap.added if name in touched),
        tuple(each for each in gap.back if each.partition("==")[0] in touched),
    )


def _settled(acting: Acting, run: Run, step: Step, record: Record) -> tuple[Record, ...]:
    """What the same set was when the step's commands had ended, once for each attempt."""
    found = about_step(acting.journal, SET_SETTLED, run=run.number, step=step.id)
    return tuple(each for each in found if each.about["target"] == record.about["target"])


def _root(step: Step) -> tuple[str, ...]:
    """sudo where the step itself went through it."""
    return ("sudo",) if os.geteuid() != 0 and any(argv[:1] == ("sudo",) for argv in step.commands) else ()


def _uv_of(step: Step) -> str:
    """The uv that the step ran; "" where it ran pip."""
    return next((argv[0] for argv in step.commands if os.path.basename(argv[0]) == "uv"), "")


def _now(record: Record) -> list[str]:
    return packages() if record.about["of"] == "packages" else distributions(record.about["target"])


def _restore_marks(acting: Acting, run: Run, step: Step, record: Record) -> None:
    """apt also remembers which packages were asked for by hand; installing an old version marks it so."""
    then, now = set(record.about["manual"]), set(manual_packages())
    extra, lost = now - then, then - now
    for after in _settled(acting, run, step, record)[-1:]:
        changed = difference(list(record.about["before"]), list(after.about["after"]))
        ours = {each.partition("==")[0].partition(":")[0] for each in (*changed.added, *changed.back)}
        ours |= then ^ set(after.about["manual"])
        extra, lost = extra & ours, lost & ours
    if extra:
        _command(acting, run, step, (*_root(step), "apt-mark", "auto", *sorted(extra)))
    if lost:
        _command(acting, run, step, (*_root(step), "apt-mark", "manual", *sorted(lost)))


def sources_of(step: Step, gap: Difference) -> tuple[str, ...]:
    """Where versions of before can be had: the indexes the step used, and PyTorch's for its local versions."""
    offline = any("--no-index" in argv for argv in step.commands)
    found: list[tuple[str, ...]] = [("--no-index",)] if offline else []
    for argv in step.commands:
        for option, value in pairwise(argv):
            if option in ("--find-links", "--extra-index-url"):
                found.append((option, value))
            if option == "--index-url":
                found.append(("--extra-index-url", value))
    for each in gap.back:
        public, _, local = each.partition("+")
        if local.startswith(("cu", "cpu")) and not offline:
            nightly = "nightly/" if ".dev" in public else ""
            found.append(("--extra-index-url", f"{PYTORCH_INDEX}{nightly}{local}"))
    return tuple(word for pair in dict.fromkeys(found) for word in pair)


def _command(acting: Acting, run: Run, step: Step, argv: tuple[str, ...]) -> None:
    ended = run_command(acting, argv, run=run.number, step=step.id)
    if ended.status != 0:
        last = ended.tail[-1] if ended.tail else "it printed nothing"
        raise CouldNotAct(
            f"undo of {step.title!r} stopped: {shlex.join(argv)} ended with status {ended.status} ({last}); "
            f"the whole output is in {ended.log}. Put that right and run undo again."
        )

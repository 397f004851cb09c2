"""Brings the packages of before back: exactly those that a step changed, proved by looking again."""

from __future__ import annotations

import os
import shlex
from itertools import pairwise

from firstlight.apply.executor import Acting, run_command
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
from firstlight.apply.runs import SET_SETTLED, Run, about_step
from firstlight.apply.undo_list import sources_from_list, was_from_list
from firstlight.errors import CouldNotAct
from firstlight.plan.step import Step

PYTORCH_INDEX = "https://download.pytorch.org/whl/"


def restore_set(acting: Acting, run: Run, step: Step, record: Record) -> None:
    target = record.about["target"]
    if record.about["of"] == "distributions" and not os.path.exists(target):
        acting.watcher.say(f"{target} is gone: there is no environment to bring packages back to")
        return
    gap = _gap(acting, run, step, record)
    if record.about["of"] == "packages":
        commands = commands_for_packages(gap, root=_root(step))
    else:
        sources = sources_from_list(acting, step, gap) if was_from_list(step) else sources_of(step, gap)
        commands = commands_for_distributions(gap, interpreter=target, uv=_uv_of(step), sources=sources)
    for argv in commands:
        command_back(acting, run, step, argv)
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
        command_back(acting, run, step, (*_root(step), "apt-mark", "auto", *sorted(extra)))
    if lost:
        command_back(acting, run, step, (*_root(step), "apt-mark", "manual", *sorted(lost)))


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


def command_back(acting: Acting, run: Run, step: Step, argv: tuple[str, ...]) -> None:
    ended = run_command(acting, argv, run=run.number, step=step.id)
    if ended.status != 0:
        last = ended.tail[-1] if ended.tail else "it printed nothing"
        raise CouldNotAct(
            f"undo of {step.title!r} stopped: {shlex.join(argv)} ended with status {ended.status} ({last}); "
            f"the whole output is in {ended.log}. Put that right and run undo again."
        )

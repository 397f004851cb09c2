"""Which packages were there before a step and after it, written into the journal; what could not be seen is said so."""

from __future__ import annotations

from fnmatch import fnmatchcase

from firstlight.apply.apt_recovery import uses_dpkg
from firstlight.apply.environments import Environment, Installed, look_at
from firstlight.apply.journal import Journal, Record
from firstlight.apply.package_sets import (
    Difference,
    commands_for_distributions,
    commands_for_project,
    manual_packages,
    packages,
    project_synced_by,
    sources_of,
    uv_of,
)
from firstlight.apply.runs import COMMAND_STARTED, SET_SAVED, SET_SETTLED, UNDO_BEGUN, about_step
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from firstlight.ways.step import CheckKind, Step, StepKind

SET_UNKNOWN = "set-unknown"  # the commands ended, and what they left could not be looked at
PACKAGES, DISTRIBUTIONS = "packages", "distributions"
LOOKED = "files"  # how a set was seen: records without it may hold [] for "gave no answer"
ENVIRONMENT_STEPS = (StepKind.PIP, StepKind.UV, StepKind.PROJECT, StepKind.BUILD)


def save_sets(journal: Journal, run: int, step: Step) -> None:
    """Keep which packages are there, once a step and place; where one gives no answer, the step does not begin."""
    saved = {each.about["target"] for each in about_step(journal, SET_SAVED, run=run, step=step.id)}
    if "" not in saved and uses_dpkg(step):
        journal.add(
            SET_SAVED, run=run, step=step.id, of=PACKAGES, target="", before=packages(), manual=manual_packages(),
            with_states=True,
        )  # fmt: skip
    for interpreter, folder in zip(environments_of(step), folders_of(step), strict=True):
        if interpreter in saved:
            continue
        seen = look_at(interpreter, folder)
        if isinstance(seen, Unknown):
            raise CouldNotAct(
                f"{step.title}: what is installed there could not be seen, so it could not be brought back: "
                f"{seen.reason}. The step was not begun. Fix that, or name another interpreter with --python."
            )
        journal.add(
            SET_SAVED, run=run, step=step.id, of=DISTRIBUTIONS, target=interpreter, before=list(seen.value.pins),
            folder=folder, **_beside(seen.value),
        )  # fmt: skip


def _beside(seen: Environment) -> dict[str, str | list[str]]:
    return {
        "looked": LOOKED,
        "torn": list(seen.torn),
        "direct": sorted({each.name for each in seen.distributions if each.direct}),
        "requested": sorted({each.name for each in seen.distributions if each.requested}),
        "debris": [each.path for each in seen.debris],
        "unowned": list(seen.unowned),
    }


def settle_sets(journal: Journal, run: int, step: Step) -> None:
    """Keep which packages are there now: what comes or goes later is somebody else's."""
    for record in about_step(journal, SET_SAVED, run=run, step=step.id):
        target = record.about["target"]
        if target:
            seen = look_at(target, folder_of(record))
            if isinstance(seen, Unknown):
                journal.add(SET_UNKNOWN, run=run, step=step.id, target=target, reason=seen.reason)
            else:
                journal.add(
                    SET_SETTLED, run=run, step=step.id, target=target, after=list(seen.value.pins), manual=[],
                    **_beside(seen.value),
                )  # fmt: skip
            continue
        try:
            after, manual = packages(), manual_packages()
        except CouldNotAct as error:
            journal.add(SET_UNKNOWN, run=run, step=step.id, target=target, reason=str(error))
        else:
            journal.add(SET_SETTLED, run=run, step=step.id, target=target, after=after, manual=manual)


def settled(journal: Journal, run: int, record: Record) -> tuple[Record, ...]:
    """The same set when the step's commands had last ended, or that it was not seen; () where one was killed."""
    step, target = record.about["step"], record.about["target"]
    found = [
        each
        for event in (SET_SETTLED, SET_UNKNOWN)
        for each in about_step(journal, event, run=run, step=step)
        if each.about["target"] == target
    ]
    last = max(found, key=lambda each: each.number, default=None)
    killed = last is not None and any(each.number > last.number for each in starts(journal, run, step))
    return () if last is None or killed else (last,)


def starts(journal: Journal, run: int, step: str) -> tuple[Record, ...]:
    """Where the step's commands were started, before any undo."""
    undo = min((each.number for each in journal.records if each.event == UNDO_BEGUN and each.about["run"] == run),
               default=len(journal.records) + 1)  # fmt: skip
    return tuple(each for each in about_step(journal, COMMAND_STARTED, run=run, step=step) if each.number < undo)


def environments_of(step: Step) -> tuple[str, ...]:
    """The interpreters whose environments a pip, uv or project step changes, by its conditions."""
    return tuple(_changed_by(step))


def folders_of(step: Step) -> tuple[str, ...]:
    """Beside each of these the folder that alone is changed, e.g. of a user's own packages; "" for the environment."""
    return tuple(_changed_by(step).values())


def folder_of(saved: Record) -> str:
    """The folder that a set was looked at in; "" for a whole environment."""
    return str(saved.about.get("folder", ""))


def _changed_by(step: Step) -> dict[str, str]:
    if step.kind not in ENVIRONMENT_STEPS:
        return {}
    kinds = (CheckKind.DISTRIBUTIONS, CheckKind.DISTRIBUTIONS_ABSENT)
    return {each.target: each.folder for each in step.done_when if each.kind in kinds}


def commands_of(step: Step) -> tuple[tuple[str, ...], ...]:
    """The step's commands and those that make whole what it wants and a killed one left in part."""
    again = _repairs(step)
    # a project's lock file, which says where its packages come from, is written by the step itself
    return (*step.commands, *again) if project_synced_by(step) else (*again, *step.commands)


def _repairs(step: Step) -> tuple[tuple[str, ...], ...]:
    """Commands for what is there in part: pip and uv take it for installed."""
    found: list[tuple[str, ...]] = []
    for condition in step.done_when if step.kind in ENVIRONMENT_STEPS else ():
        if condition.kind is not CheckKind.DISTRIBUTIONS:
            continue
        seen = look_at(condition.target)
        if isinstance(seen, Unknown):
            raise CouldNotAct(
                f"{step.title}: whether all that is installed there is whole could not be seen: {seen.reason}. No "
                "command was run. Fix that and run the same command again."
            )
        wanted = dict(each.partition("==")[::2] for each in condition.expected.split())
        torn = [each for name in seen.value.torn for each in seen.value.named(name) if name in wanted]
        for each in torn:
            if each.version and fnmatchcase(each.version, wanted[each.name] or "*"):
                found += _anew(step, each, condition.target)
    return tuple(found)


def _anew(step: Step, torn: Installed, interpreter: str) -> tuple[tuple[str, ...], ...]:
    gap = Difference((), (torn.pin,))
    if project := project_synced_by(step):
        return commands_for_project(project, uv_of(step), gap)
    commands = commands_for_distributions(gap, interpreter=interpreter, uv=uv_of(step), sources=sources_of(step, gap))
    if torn.recorded:
        return commands
    # pip refuses to remove what has no RECORD, and the wheel's own knows no programs; it can write over both.
    return tuple(tuple(word.replace("--force-reinstall", "--ignore-installed") for word in argv) for argv in commands)

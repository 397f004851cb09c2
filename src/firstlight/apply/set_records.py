"""Which packages were there before a step and after it, written into the journal."""

from __future__ import annotations

from firstlight.apply.apt_recovery import uses_dpkg
from firstlight.apply.journal import Journal
from firstlight.apply.package_sets import distributions, manual_packages, packages
from firstlight.apply.runs import SET_SAVED, SET_SETTLED, about_step
from firstlight.plan.step import CheckKind, Step, StepKind

ENVIRONMENT_STEPS = (StepKind.PIP, StepKind.UV, StepKind.PROJECT)


def save_sets(journal: Journal, run: int, step: Step) -> None:
    """Keep which packages were there, once a step: a second attempt finds a half-done state."""
    if about_step(journal, SET_SAVED, run=run, step=step.id):
        return
    if uses_dpkg(step):
        journal.add(
            SET_SAVED, run=run, step=step.id, of="packages", target="", before=packages(), manual=manual_packages(),
            with_states=True,
        )  # fmt: skip
    for interpreter in environments_of(step):
        journal.add(
            SET_SAVED, run=run, step=step.id, of="distributions", target=interpreter, before=distributions(interpreter)
        )


def settle_sets(journal: Journal, run: int, step: Step) -> None:
    """Keep which packages are there now: what comes or goes later is somebody else's."""
    for record in about_step(journal, SET_SAVED, run=run, step=step.id):
        target = record.about["target"]
        after, manual = (packages(), manual_packages()) if not target else (distributions(target), [])
        journal.add(SET_SETTLED, run=run, step=step.id, target=target, after=after, manual=manual)


def environments_of(step: Step) -> tuple[str, ...]:
    """The interpreters whose environments a pip, uv or project step changes, by its conditions."""
    if step.kind not in ENVIRONMENT_STEPS:
        return ()
    found = [each.target for each in step.done_when if each.kind is CheckKind.DISTRIBUTIONS]
    return tuple(dict.fromkeys(found))

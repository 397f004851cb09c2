"""One option as ordered steps, each with its commands, diffs, condition and way back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.plan.checkouts import checkout_steps
from firstlight.plan.compat_steps import compat_steps
from firstlight.plan.extras import Extras
from firstlight.plan.offline import offline
from firstlight.plan.option import Kind, Option
from firstlight.plan.other_steps import container_steps, driver_steps, machine_steps, source_steps
from firstlight.plan.remove_steps import removal_beside, remove_steps, repair_steps, unbaked
from firstlight.plan.step import Step
from firstlight.plan.toolkit_steps import toolkit_steps
from firstlight.plan.tuning import tuning_steps
from firstlight.plan.wheel_steps import wheel_steps

Maker = Callable[[Question, Option, Extras], Iterator[Step]]


def _nothing(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Nothing is to be done: no step."""
    del question, option, extras
    return iter(())


# Compat and a removed obstacle may come with wheels in the same option: the packages go in first.
_MAKERS: dict[Kind, tuple[Maker, ...]] = {
    Kind.NOTHING: (_nothing,),
    Kind.REMOVE: (wheel_steps, remove_steps),
    Kind.REPAIR: (wheel_steps, repair_steps),
    Kind.COMPAT: (wheel_steps, compat_steps, unbaked, removal_beside),
    Kind.WHEEL: (wheel_steps, removal_beside),
    Kind.TOOLKIT: (toolkit_steps,),
    Kind.DRIVER: (driver_steps, wheel_steps),
    Kind.MACHINE: (machine_steps,),
    Kind.CONTAINER: (container_steps,),
    Kind.SOURCE: (source_steps,),
}
_ALWAYS: tuple[Maker, ...] = (checkout_steps, tuning_steps)


def steps_for(question: Question, option: Option, extras: Extras) -> tuple[Step, ...]:
    """The steps of an option in order, then the checkouts and settings that were asked for; ids are numbered."""
    made = [step for maker in (*_MAKERS[option.kind], *_ALWAYS) for step in maker(question, option, extras)]
    numbered = (replace(step, id=f"{number:02d}-{step.id}") for number, step in enumerate(made, 1))
    return tuple(offline(step, extras.shelf) for step in numbered)

"""apply does what a machine can do: how much of the first options is left to a person."""

from __future__ import annotations

from functools import cache

from firstlight.ways.step import StepKind
from tests.plan.planning import NAMES
from tools.machines import (
    beside_machines,
    evidence_machines,
    fabric_machines,
    platform_machines,
    server_machines,
)
from tools.make_by_person import FirstOption, first_option

_MOST_ALONE = 12


# Machines whose fault lies with a host, a hypervisor, an image or a card: apply has little to do there by their nature.
_ELSEWHERE = {
    make().name
    for module in (platform_machines, evidence_machines, server_machines, fabric_machines, beside_machines)
    for make in module.MACHINES
} | {"blackwell-and-pascal"}


@cache
def _first_options() -> tuple[FirstOption, ...]:
    return tuple(each for name in NAMES if (each := first_option(name)).steps)


def _of_one_machine() -> tuple[FirstOption, ...]:
    """Those of machines where everything that is wrong lies on the machine itself."""
    return tuple(each for each in _first_options() if each.machine not in _ELSEWHERE)


def test_few_machines_have_nothing_for_apply_to_do() -> None:
    alone = [each.machine for each in _of_one_machine() if each.has_nothing_for_apply]
    assert len(alone) <= _MOST_ALONE, alone


def test_every_step_by_a_person_says_why() -> None:
    for each in _first_options():
        for step in each.by_person:
            assert step.note, f"{each.machine}: {step.title}"


def test_most_steps_are_done_by_apply() -> None:
    steps = [step for each in _of_one_machine() for step in each.steps if not step.optional]
    by_person = [step for step in steps if step.kind is StepKind.MANUAL]
    assert len(by_person) * 4 < len(steps)

"""Into a system that comes as an image nothing is installed step by step: no option of any such machine does it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.plan.steps import steps_for
from firstlight.ways.extras import Extras
from firstlight.ways.image_based import OF_THE_IMAGE
from firstlight.ways.kinds import AskPerson
from firstlight.ways.platform import platform_of
from firstlight.ways.step import Step
from tests.platforms.cases import TABLES, Case, Judged, all_cases, judged

# What changes an image or its configuration in the way of that system, what asks, and what lasts until the next start.
_ALLOWED = {"rpm-ostree", "nixos-rebuild", "transactional-update", "cos-extensions", "ujust", "systemctl", "modprobe"}
_ALLOWED |= {"nvidia-modprobe", "nvidia-smi", "env", "ls", "cat", "dmesg", "nvidia-bug-report.sh", "modinfo"}
_CASES = [case for case in all_cases() if platform_of(judged(case.make).facts).is_image_based]


def _on_the_system(question: Question, seen: Judged) -> Iterator[str]:
    """Ways and commands that would change the system beside its image."""
    for option in seen.ranked.options:
        for way in option.ways:
            if isinstance(way, OF_THE_IMAGE) or (isinstance(way, AskPerson) and way.fetches):
                yield f"{option.id}: {way}"
        yield from (f"{option.id}: {word}" for word in _programs(steps_for(question, option, Extras())))


def _programs(steps: tuple[Step, ...]) -> Iterator[str]:
    for argv in (argv for step in steps for argv in step.commands):
        program = argv[1] if argv[0] == "sudo" else argv[0]
        if program not in _ALLOWED and not program.startswith(("/home/", "/root/")):
            yield " ".join(argv)


def test_there_are_machines_of_several_such_systems() -> None:
    assert len({platform_of(judged(case.make).facts).image_based for case in _CASES}) >= 5


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_no_step_on_the_system_is_offered(case: Case) -> None:
    seen = judged(case.make)
    assert not [*_on_the_system(Question(seen.facts, TABLES, Goal.INFER), seen)]

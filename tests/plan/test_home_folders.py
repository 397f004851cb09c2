"""No program expands a tilde that no shell has read: every path of a step is whole."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Goal
from firstlight.plan.steps import steps_for
from firstlight.ways.extras import Extras
from tests.plan.planning import NAMES, question_of, ranked_of


@pytest.mark.parametrize("name", NAMES)
def test_no_step_names_the_home_folder_by_a_tilde(name: str) -> None:
    for goal in (Goal.INFER, Goal.BUILD_EXTENSIONS):
        for option in ranked_of(name, goal).options:
            for step in steps_for(question_of(name, goal), option, Extras()):
                words = [word for argv in (*step.commands, *step.undo) for word in argv]
                paths = [change.path for change in step.files]
                assert not [each for each in (*words, *paths) if each.startswith("~")], (option.id, step.id)

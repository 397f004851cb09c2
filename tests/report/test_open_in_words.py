"""What only running can tell is said in words: no path of a fact reaches a screen."""

from __future__ import annotations

import pytest

from firstlight.report.options_text import reservations
from tests.plan.planning import NAMES, ranked_of
from tests.platforms.cases import all_cases, judged


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_fact_is_shown_of_a_recorded_machine(name: str) -> None:
    assert not [said for option in ranked_of(name).options for said in reservations(option) if ".devices" in said]


def test_no_path_of_a_fact_is_shown_of_a_machine_of_any_platform() -> None:
    for case in all_cases():
        for option in judged(case.make).ranked.options:
            assert not [path for path in option.unsure if path in " ".join(reservations(option))], (case, option.id)

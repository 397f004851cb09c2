"""What is generated is current: rebuilt machines, the README's parts, the facts schema, the rule pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.machines.__main__ import EXAMPLES, MACHINES
from tools.make_readme import README, filled

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)
def test_a_rebuilt_machine_is_what_its_recipe_gives(make: object) -> None:
    assert callable(make)
    machine = make()
    stored = json.loads((ROOT / "tests" / "machines" / machine.name / "machine.json").read_text())
    assert machine.document() == stored, f"run: python -m tools.machines {machine.name}"


def test_the_bundled_examples_are_what_their_recipes_give() -> None:
    for make in EXAMPLES:
        machine = make()
        path = ROOT / "src" / "firstlight" / "examples" / f"{machine.name}.json"
        assert machine.document() == json.loads(path.read_text())


def test_the_readme_is_current() -> None:
    assert filled(README.read_text()) == README.read_text(), "run: python -m tools.make_readme"

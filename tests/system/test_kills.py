"""40 kills at random moments, of every kind of step, in apply and in undo: finished and taken back to the byte."""

from __future__ import annotations

import shutil

import pytest

from tests.apply.stand_ins import can_have_its_own_mounts
from tests.system.apt_room import in_a_room
from tests.system.kills.__main__ import document, run
from tests.system.kills.cases import UV

SEED, COUNT = 20261116, 40
_TOOLS = ("apt-get", "gpg", "git", "curl", "xz", "gcc", UV)
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own"),
    pytest.mark.skipif(not all(map(shutil.which, _TOOLS)), reason=f"needs {', '.join(_TOOLS)}"),
]


def test_kills_of_every_kind_of_step_lose_nothing() -> None:
    """The seed is in the message: python -m tests.system.kills --seed SEED --count COUNT does the same again."""

    def work() -> None:
        made = document(run(SEED, COUNT), seed=SEED, seconds=0.0)
        wrong = [row for row in made["kills"] if row["wrong"]]
        assert not wrong, f"seed {SEED}: {wrong}"
        assert made["at_work"] == COUNT, f"seed {SEED}: only {made['at_work']} kills came while it was at work"
        assert len(made["by_kind"]) == 10
        assert len(made["by_target"]) == 3
        assert len(made["by_phase"]) == 2

    in_a_room(work)

"""pip killed at points of its own code, in apply and in undo: the next call goes on, and nothing is lost or left."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from firstlight.apply.environments import look_at
from firstlight.apply.executor import StepFailed
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from tests.apply.pip_environments import Pip
from tests.apply.wheels import make_wheel

pytestmark = pytest.mark.system
NOBODY = 65534


@pytest.mark.parametrize("point", ["moving 1", "writing 4", "removing 1"])
def test_a_pip_that_is_killed_in_apply_leaves_nothing_behind(tmp_path: Path, point: str) -> None:
    env = Pip(tmp_path)
    before = env.files()
    env.kill_at(point)
    with pytest.raises(StepFailed, match="status -9"):
        env.apply("demo==2.0")
    env.go_on()
    assert env.debris == []
    assert {"demo==2.0", "part==2.0", "extra==0.1"} <= set(installed_distributions(env.python))
    env.undo()
    assert (env.debris, env.files()) == ([], before)


@pytest.mark.parametrize("point", ["moving 2", "writing 3"])
def test_a_pip_that_is_killed_in_undo_is_gone_on_with(tmp_path: Path, point: str) -> None:
    env = Pip(tmp_path)
    before = env.files()
    env.apply("demo==2.0")
    env.kill_at(point)
    with pytest.raises(CouldNotAct, match="status -9"):
        env.undo()
    env.undo()
    assert (env.debris, env.files()) == ([], before)


@pytest.mark.parametrize(("point", "killed_in"), [("writing 7", "apply"), ("writing 7", "undo")])
def test_files_of_a_person_stay_and_half_written_ones_go(tmp_path: Path, point: str, killed_in: str) -> None:
    env = Pip(tmp_path)
    make_wheel(env.wheels, "tool", "1.0", more=("tool/deep/a.py", "nvidia/tool/a.so", "entry_points.txt"))
    make_wheel(env.wheels, "tool", "2.0", more=("tool/new/b.py", "tool/deep/a.py", "tool/c.py", "entry_points.txt"))
    env.install("tool==1.0")
    (env.site / "tool/mine.txt").write_text("mine")
    program = env.folder / "venv/bin/tool"
    before = env.files()
    for each in ("apply", "undo"):
        if each == killed_in:
            env.kill_at(point)
        with pytest.raises(CouldNotAct, match="status -9") if each == killed_in else nullcontext():
            env.apply("tool==2.0") if each == "apply" else env.undo()
    env.undo()
    assert (env.debris, env.files(), program.exists()) == ([], before, True)


def test_an_environment_in_a_folder_that_is_closed_to_us_is_not_an_empty_one(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.seteuid(NOBODY)
    try:
        seen = look_at(f"{closed}/venv/bin/python")
    finally:
        os.seteuid(0)
    assert isinstance(seen, Unknown)
    assert "Permission denied" in seen.reason

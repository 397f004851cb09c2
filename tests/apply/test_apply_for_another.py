"""`apply --dry-run --facts`: what it would do on a machine that is only known from a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRSTLIGHT = (sys.executable, "-m", "firstlight", "apply")


def _apply(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(home), "FIRSTLIGHT_STATE_DIR": str(home / "state")}
    return subprocess.run([*FIRSTLIGHT, *words], env=env, capture_output=True, text=True, check=False)


def test_what_would_be_done_there_is_shown_and_nothing_is_written_here(tmp_path: Path) -> None:
    ended = _apply(tmp_path, "--dry-run", "--facts", "example:h100-driver-570")
    assert ended.returncode == 0, ended.stderr
    assert "2 steps to be done by firstlight; by you: 03-start-programs-through-it" in ended.stdout
    assert "firstlight plan --facts example:h100-driver-570 --diff" in ended.stdout
    assert "--dry-run: nothing was changed; which of the steps are done there already is not known here" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_it_means_the_plan_of_that_machine(tmp_path: Path) -> None:
    chosen = ("--facts", "example:h100-driver-570", "--option", "4", "--json")
    document = json.loads(_apply(tmp_path, "--dry-run", *chosen).stdout)
    planned = subprocess.run([*FIRSTLIGHT[:-1], "plan", *chosen], capture_output=True, text=True, check=True)
    assert document["digest"] == json.loads(planned.stdout)["digest"]
    assert (document["ending"], document["journal"], document["run"]) == ("shown", "", None)
    assert {step["holds_already"] for step in document["to_do"]} == {None}


def test_what_only_a_person_can_do_there_ends_as_it_would_there(tmp_path: Path) -> None:
    ended = _apply(tmp_path, "--dry-run", "--facts", "tests/machines/gpu-fell-off")
    assert ended.returncode == 1
    assert "firstlight can do none of this: it is left to you" in ended.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Add --dry-run to see what it would do on that one."),
        (("--yes",), "Add --dry-run"),
        (("--dry-run", "--offline", "/tmp"), "a folder is installed from here alone"),
        (("--dry-run", "--python", "/usr/bin/python3"), "cannot be combined with --facts"),
    ],
)
def test_another_machine_is_never_changed(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ended = _apply(tmp_path, "--facts", "example:h100-driver-570", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert list(tmp_path.iterdir()) == []

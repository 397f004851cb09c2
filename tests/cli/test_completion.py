"""Completion as the README sets it up, asked of the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
_ASK_BASH = """
eval "$(_FIRSTLIGHT_COMPLETE=bash_source firstlight)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_firstlight_completion firstlight
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_bash(words: str) -> list[str]:
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", _ASK_BASH.format(words=words)], capture_output=True, text=True, env=env)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_a_verb() -> None:
    assert in_bash("firstlight doc") == ["doctor"]


def test_bash_completes_the_code_of_a_rule() -> None:
    assert in_bash("firstlight rules driver-too-old-for-t") == ["driver-too-old-for-toolkit"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("firstlight doctor --facts exa", "example:h100-driver-570"),
        ("firstlight doctor --facts example ':'", "h100-driver-570"),  # bash parts words at a colon
        ("firstlight doctor --facts example ':' h10", "h100-driver-570"),
    ],
)
def test_bash_completes_the_machines_that_come_along(words: str, wanted: str) -> None:
    assert wanted in in_bash(words)


def test_bash_is_offered_files_where_no_example_fits() -> None:
    asked = {
        "COMP_WORDS": "firstlight doctor --facts pyproj",
        "COMP_CWORD": "3",
        "_FIRSTLIGHT_COMPLETE": "bash_complete",
    }
    done = subprocess.run([BIN / "firstlight"], capture_output=True, text=True, env={**os.environ, **asked})
    assert (done.stdout, done.stderr) == ("file,pyproj\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_text_for_another_shell_is_one_it_can_read(shell: str, tmp_path: Path) -> None:
    made = subprocess.run(
        [BIN / "firstlight"],
        capture_output=True,
        text=True,
        env={**os.environ, "_FIRSTLIGHT_COMPLETE": f"{shell}_source"},
    )
    assert made.returncode == 0
    assert "_FIRSTLIGHT_COMPLETE" in made.stdout
    if (found := shutil.which(shell)) is not None:
        script = tmp_path / "completion"
        script.write_text(made.stdout)
        assert subprocess.run([found, "-n", script], capture_output=True, text=True).stderr == ""

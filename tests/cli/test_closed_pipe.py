"""A reader that goes away (`| head -1`) changes nothing: not the exit code, and not what is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRSTLIGHT = [sys.executable, "-m", "firstlight"]
EXAMPLE = ("--facts", "example:h100-driver-570")


def _ended(words: tuple[str, ...], **more: str) -> tuple[int, int]:
    """The exit code with a reader, and with one that was gone before the first word."""
    environ = {**os.environ, **more}
    read = subprocess.run([*FIRSTLIGHT, *words], env=environ, capture_output=True, check=False, timeout=60)
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        unread = subprocess.run(
            [*FIRSTLIGHT, *words], env=environ, stdout=theirs, stderr=theirs, check=False, timeout=60
        )
    finally:
        os.close(theirs)
    return read.returncode, unread.returncode


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("doctor", *EXAMPLE), 1),
        (("facts", "--all", *EXAMPLE), 0),
        (("plan", *EXAMPLE), 0),
        (("--help",), 0),
        (("nonsense",), 2),
        (("libs", "/etc/passwd"), 2),
    ],
)
def test_a_reader_that_is_gone_does_not_change_how_it_ends(words: tuple[str, ...], code: int) -> None:
    assert _ended(words) == (code, code)


def test_in_a_pipe_to_head_every_run_ends_the_same(tmp_path: Path) -> None:
    """Who is faster must not matter; the reader goes away before, while and after it is written to."""
    line = f'{" ".join(FIRSTLIGHT)} doctor {" ".join(EXAMPLE)} 2>&1 | %s > /dev/null; echo "${{PIPESTATUS[0]}}"'
    for reader in ("true", "head -1", "head -8", "sleep 0.05"):
        done = subprocess.run(["bash", "-c", line % reader], capture_output=True, text=True, check=False, timeout=60)
        assert (done.stdout, done.stderr) == ("1\n", ""), reader


def test_where_there_is_nothing_to_do_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run([*FIRSTLIGHT, "apply", "--dry-run"], env=environ, capture_output=True, text=True, check=False)
    said = done.stdout.count("nothing to do")
    assert said == (1 if "leave it as it is" in done.stdout else 0)  # a machine with a GPU may have something to do

"""A journal of firstlight 0.1 is read and goes on; the commands it holds as text need a person who reads them."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firstlight.apply.place import machine_identity
from firstlight.apply.session import Asked, act, interrupted
from firstlight.errors import BadInput
from firstlight.machine.live import LiveMachine
from tests.apply.acting import NEW_RC, OLD_RC, acting, home_with_files, plan_for, tree, undo_in
from tests.apply.commanding import ANOTHER_IS_ACTING

KEPT = Path(__file__).parent / "data/journal-0.1.jsonl"  # written by 0.1 for the small plan of acting.py


def _rechained(records: list[Any]) -> bytes:
    last, out = "", b""
    for record in records:
        line = json.dumps({**record, "before": last}, sort_keys=True).encode() + b"\n"
        last, out = hashlib.sha256(line).hexdigest()[:16], out + line
    return out


def _as_0_1_left_it(folder: Path, state: Path, *, records: slice = slice(None)) -> dict[str, tuple[int, bytes]]:
    """The home and the state folder after the run; gives the home of before."""
    home = home_with_files(folder)
    (home / ".bashrc").write_text(OLD_RC)
    (home / ".bashrc").chmod(0o600)
    before = tree(home)
    text = KEPT.read_text().replace("@PLACE@", str(folder))
    mine = json.dumps([os.geteuid(), os.getegid()])
    documents = [json.loads(line.replace('"owner": [0, 0]', f'"owner": {mine}')) for line in text.splitlines()]
    (state / "originals").mkdir(parents=True)
    for name, data in (
        ("0001-aed0a07a2668", OLD_RC.encode()),
        ("0001-12b2b0d48a85", (home / "stale.conf").read_bytes()),
    ):
        [saved] = [each["about"] for each in documents if each["about"].get("backup") == name]
        if hashlib.sha256(data).hexdigest() != saved["digest"]:
            data = (home / "stale.conf").read_bytes() if data == OLD_RC.encode() else OLD_RC.encode()
        (state / "originals" / name).write_bytes(data)
    (home / ".bashrc").write_text(NEW_RC)
    (home / "a/b").mkdir(parents=True)
    (home / "a/b/hook.sh").write_text("echo hello\n")
    (home / "a/b/hook.sh").chmod(0o755)
    (home / "stale.conf").unlink()
    (home / "marker").write_text("done\n")
    (state / "journal.jsonl").write_bytes(_rechained(documents[records]))
    return before


def _firstlight(folder: Path, *words: str, answers: str = "") -> subprocess.CompletedProcess[str]:
    """The command line in that folder; with answers it has a terminal."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "FIRSTLIGHT_STATE_DIR": str(folder / "state")}
    for _ in range(100):
        leader, follower = pty.openpty()
        os.write(leader, answers.encode())
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", *words], stdin=follower if answers else subprocess.DEVNULL,
            capture_output=True, text=True, env=environ, cwd="/", timeout=120,
        )  # fmt: skip
        os.close(leader)
        os.close(follower)
        if done.returncode != ANOTHER_IS_ACTING:
            break
        time.sleep(1)
    return done


@pytest.fixture
def machine_state(tmp_path: Path) -> Path:
    return tmp_path / "state/machines" / machine_identity(LiveMachine())


def test_yes_is_not_enough_for_commands_that_0_1_stored(tmp_path: Path, machine_state: Path) -> None:
    _as_0_1_left_it(tmp_path, machine_state)
    after = tree(tmp_path / "home")
    done = _firstlight(tmp_path, "undo", "--yes")
    assert done.returncode == 2, done.stderr
    assert "its journal holds 1 command as text. --yes is not enough" in done.stderr
    assert "run `firstlight undo` in a terminal" in done.stderr
    assert f"             rm -f {tmp_path}/home/marker" in done.stdout, "it is shown"
    assert tree(tmp_path / "home") == after


def test_a_person_on_a_terminal_reads_them_and_decides(tmp_path: Path, machine_state: Path) -> None:
    before = _as_0_1_left_it(tmp_path, machine_state)
    after = tree(tmp_path / "home")
    declined = _firstlight(tmp_path, "undo", "--yes", answers="n\n")
    assert declined.returncode == 1, declined.stderr
    assert f"\n    rm -f {tmp_path}/home/marker\n" in declined.stderr, "alone on its line"
    assert tree(tmp_path / "home") == after
    done = _firstlight(tmp_path, "undo", "--yes", answers="y\n")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "home") == before


def test_an_unfinished_run_of_0_1_is_not_gone_on_with_by_yes_alone(tmp_path: Path, machine_state: Path) -> None:
    _as_0_1_left_it(tmp_path, machine_state, records=slice(0, -4))  # killed before the command of the last step
    (tmp_path / "home/marker").unlink()
    done = _firstlight(tmp_path, "apply", "--yes", "--no-verify", "--python", sys.executable)
    assert done.returncode == 2, done.stderr
    assert "--yes is not enough for these: run `firstlight apply` in a terminal" in done.stderr
    assert not (tmp_path / "home/marker").exists()


def test_a_run_of_0_1_without_such_commands_is_taken_back_as_any_other(tmp_path: Path) -> None:
    before = _as_0_1_left_it(tmp_path, tmp_path / "state", records=slice(0, -5))
    (tmp_path / "home/marker").unlink()
    undo_in(tmp_path)
    assert tree(tmp_path / "home") == before


def test_nothing_that_was_not_agreed_to_runs_whoever_calls(tmp_path: Path) -> None:
    _as_0_1_left_it(tmp_path, tmp_path / "state")
    with pytest.raises(BadInput, match=r"nobody agreed to this one: rm -f .*/home/marker"):
        undo_in(tmp_path)
    assert (tmp_path / "home/marker").exists()


def test_the_journal_of_0_1_goes_on_in_the_format_of_today(tmp_path: Path) -> None:
    _as_0_1_left_it(tmp_path, tmp_path / "state")
    (tmp_path / "home/marker").unlink()
    doing = acting(tmp_path)
    assert not interrupted(doing)
    act(doing, Asked(plan_for(tmp_path / "home"), "e" * 16, "o", "t"))
    doing.journal.close()
    formats = [json.loads(line)["format"] for line in (tmp_path / "state/journal.jsonl").read_text().splitlines()]
    assert formats == sorted(formats)
    assert set(formats) == {1, 2}
    undo_in(tmp_path)
    assert not (tmp_path / "home/marker").exists(), "the newer run is taken back without asking"

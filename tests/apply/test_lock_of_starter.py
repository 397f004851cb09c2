"""A firstlight that apply started finds the lock in the hands of its starter, and of nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from firstlight.apply.lock import is_held_by_starter, machine_lock

ASK = "import sys; from firstlight.apply import lock; sys.exit(not lock.is_held_by_starter((sys.argv[1],)))"


def _asked_by_a_child(folder: Path) -> bool:
    through_a_shell = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", ASK, str(folder)]
    return subprocess.run(through_a_shell, check=False).returncode == 0


def test_only_what_the_holder_started_is_inside(tmp_path: Path) -> None:
    assert not is_held_by_starter((str(tmp_path),)), "nobody holds it"
    assert not _asked_by_a_child(tmp_path)
    with machine_lock((str(tmp_path),)):
        assert _asked_by_a_child(tmp_path)
        assert not is_held_by_starter((str(tmp_path),)), "the holder is not its own starter"
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys, time; from firstlight.apply.lock import machine_lock\n"
         "with machine_lock((sys.argv[1],)): print('held', flush=True); time.sleep(60)", str(tmp_path)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert not _asked_by_a_child(tmp_path), "another firstlight's"
    finally:
        other.kill()
        other.wait()

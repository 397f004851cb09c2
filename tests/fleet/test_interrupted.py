"""Ctrl-C in the middle of looking: no ssh is left, also where the far side ignores that nobody waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_ssh_is_left(tmp_path: Path, number: signal.Signals) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\ncase " $* " in *" -G "*) exec /usr/bin/ssh "$@";; esac\n'
        'echo $$ >> "$0.pids"\nexec sleep 300 >/dev/null 2>&1\n'  # deaf to the end of its input
    )
    ssh.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = (sys.executable, "-m", "firstlight", "fleet", "doctor", "--hosts", "a,b")
    ours = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = tmp_path / "ssh.pids"
    _until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    ours.send_signal(number)
    assert ours.wait(timeout=20) == (130 if number is signal.SIGINT else -signal.SIGKILL)
    _until(lambda: not any(_runs(pid) for pid in pids.read_text().split()))


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

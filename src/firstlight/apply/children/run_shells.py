"""Runs commands one after the other, each with a time limit, and leaves no process of theirs behind.

Jobs come as JSON on stdin, answers go as JSON to stdout. A start-up file may start an agent that takes itself out of
the shell's session: this process is made the one that orphans are given to, so that it can find and end them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, BinaryIO

PR_SET_CHILD_SUBREAPER = 36
SHOWN = 4000


def run(job: dict[str, Any]) -> dict[str, Any]:
    """How one job ended: its status, None past its limit, and what it printed."""
    with open(job["base"] + "/printed", "wb+") as printed, open(job["base"] + "/complained", "wb+") as complained:
        try:
            process = subprocess.Popen(
                job["argv"],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=complained,
                env=job["env"],
                cwd=job["folder"],
                start_new_session=True,
            )
        except OSError as error:
            return {"status": 127, "printed": "", "complained": str(error)}
        try:
            status: int | None = process.wait(job["limit_s"])
        except subprocess.TimeoutExpired:
            status = None
        end_all(process)
        return {"status": status, "printed": start_of(printed), "complained": start_of(complained)}


def start_of(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(SHOWN).decode("utf-8", "surrogateescape")


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End the shell's session, then whatever was given to us since, until nothing is."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    until = time.monotonic() + 2
    while time.monotonic() < until:
        for child in children():
            os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def children() -> list[int]:
    """The processes whose parent is this one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == os.getpid():
                found.append(int(name))
    return found


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers: list[dict[str, Any]] = []
    for job in json.load(sys.stdin):
        hung = answers and answers[-1]["status"] is None  # the others would hang as long
        answers.append({"status": None, "printed": "", "complained": ""} if hung else run(job))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

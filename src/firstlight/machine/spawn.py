"""Run a command bounded in time and output: it ends, whatever it does."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

from firstlight.machine.interface import ChildAnswer, ChildScript, Completed, Outcome

OUTPUT_LIMIT = 1 << 20  # of stdout and of stderr each
AFTER_KILL_S = 2.0


def run_bounded(
    argv: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str], keep: str = "", limit: int = OUTPUT_LIMIT
) -> Completed:
    """Run argv in a process group of its own; the whole group is killed at the time or output limit."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError):
        return Completed(argv, Outcome.NOT_FOUND, -1, "", "")
    except (OSError, ValueError) as error:  # not executable, wrong format, a NUL in an argument
        return Completed(argv, Outcome.NOT_ALLOWED, -1, "", str(error))
    deadline = time.monotonic() + timeout_s
    try:
        outputs, outcome = _collect(process, deadline, limit)
        if outcome is Outcome.EXITED:
            try:
                process.wait(timeout=max(0.05, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                outcome = Outcome.TIMED_OUT
    finally:
        _kill_group(process)
    try:
        status = process.wait(timeout=AFTER_KILL_S)
    except subprocess.TimeoutExpired:  # asleep in the kernel, as under a hung driver: it is left behind
        outcome, status = Outcome.TIMED_OUT, -signal.SIGKILL
    if outcome is Outcome.EXITED and status < 0:
        outcome = Outcome.KILLED
    stdout, stderr = (data.decode("utf-8", "replace") for data in outputs)
    if keep:
        wanted = re.compile(keep)
        stdout = "".join(line for line in stdout.splitlines(keepends=True) if wanted.search(line))
    return Completed(argv, outcome, status, stdout, stderr)


def _collect(process: subprocess.Popen[bytes], deadline: float, limit: int) -> tuple[list[bytes], Outcome]:
    """Both outputs until both close, the deadline passes or one goes over the limit."""
    assert process.stdout is not None
    assert process.stderr is not None
    parts: list[list[bytes]] = [[], []]
    sizes = [0, 0]
    outcome = Outcome.EXITED
    with selectors.DefaultSelector() as selector:
        for index, stream in enumerate((process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ, index)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                outcome = Outcome.TIMED_OUT
                break
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                parts[key.data].append(data)
                sizes[key.data] += len(data)
            if max(sizes) > limit:
                outcome = Outcome.TOO_MUCH_OUTPUT
                break
    process.stdout.close()
    process.stderr.close()
    return [b"".join(part)[:limit] for part in parts], outcome


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the group, grandchildren that kept a pipe open included."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_child(script: ChildScript, args: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str]) -> ChildAnswer:
    """Run a Python script in a bare interpreter of our own kind and parse the JSON object it prints."""
    import json

    argv = (sys.executable or "python3", "-I", "-S", "-c", script.source, *args)
    done = run_bounded(argv, timeout_s=timeout_s, env=env)
    if done.outcome is Outcome.TIMED_OUT:
        return ChildAnswer({}, f"the {script.name} child gave no answer within {timeout_s:g} s")
    if not done.ok:
        said = done.stderr.strip().rpartition("\n")[2].strip()[:200]
        how = f"exit status {done.status}" if done.outcome is Outcome.EXITED else done.outcome.value
        return ChildAnswer({}, f"the {script.name} child ended early ({how})" + (f": {said}" if said else ""))
    try:
        answer = json.loads(done.stdout)
    except (ValueError, RecursionError):
        return ChildAnswer({}, f"the {script.name} child printed something that is not JSON")
    if not isinstance(answer, dict):
        return ChildAnswer({}, f"the {script.name} child printed JSON that is not an object")
    return ChildAnswer(answer, "")

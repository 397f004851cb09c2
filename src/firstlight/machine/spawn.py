"""Run a command bounded in time and output: it ends, whatever it does."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from firstlight import ahead
from firstlight.machine.interface import ChildAnswer, ChildScript, Completed, Outcome

OUTPUT_LIMIT = 1 << 20  # of stdout and of stderr each
ANSWER_LIMIT = 16 << 20  # of a child's answer, and of what is printed beside it
AFTER_KILL_S = 2.0


def run_bounded(
    argv: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str], keep: str = "", limit: int = OUTPUT_LIMIT
) -> Completed:
    """Run argv in a process group of its own; the whole group is killed at the time or output limit."""
    try:
        process = ahead.start(argv, env)
    except (OSError, ValueError) as error:
        return _not_started(argv, error)
    _, done = _run_out(process, argv, _outputs(process), timeout_s=timeout_s, limit=limit)
    if keep:
        wanted = re.compile(keep)
        kept = "".join(line for line in done.stdout.splitlines(keepends=True) if wanted.search(line))
        return Completed(argv, done.outcome, done.status, kept, done.stderr)
    return done


def _not_started(argv: tuple[str, ...], error: OSError | ValueError) -> Completed:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Completed(argv, Outcome.NOT_FOUND, -1, "", "")
    return Completed(
        argv, Outcome.NOT_ALLOWED, -1, "", str(error)
    )  # not executable, wrong format, a NUL in an argument


def _outputs(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout, process.stderr


def _run_out(
    process: subprocess.Popen[bytes],
    argv: tuple[str, ...],
    streams: tuple[IO[bytes], ...],
    *,
    timeout_s: float,
    limit: int,
    is_whole: Callable[[bytes], bool] | None = None,
) -> tuple[list[str], Completed]:
    """Wait for the end of a process, or make one; what came through each stream, and how it ended.

    `is_whole` says whether the last stream holds all that is asked for once it is closed, or the time is up: the end
    of a process that had a driver library loaded takes a while, and nobody waits for it then.
    """
    deadline = time.monotonic() + timeout_s
    try:
        outputs, outcome = _collect(streams, deadline, limit, is_whole)
        if is_whole is not None and outcome is not Outcome.TOO_MUCH_OUTPUT and is_whole(outputs[-1]):
            _reap(process)
            texts = [data.decode("utf-8", "replace") for data in outputs]
            return texts, Completed(argv, Outcome.EXITED, 0, texts[0], texts[1])
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
    texts = [data.decode("utf-8", "replace") for data in outputs]
    return texts, Completed(argv, outcome, status, texts[0], texts[1])


def _collect(
    streams: tuple[IO[bytes], ...], deadline: float, limit: int, is_whole: Callable[[bytes], bool] | None
) -> tuple[list[bytes], Outcome]:
    """All streams until all close or the last one is whole, the deadline passes or one goes over the limit."""
    parts: list[list[bytes]] = [[] for _ in streams]
    sizes = [0 for _ in streams]
    outcome = Outcome.EXITED
    with selectors.DefaultSelector() as selector:
        for index, stream in enumerate(streams):
            selector.register(stream, selectors.EVENT_READ, index)
        while selector.get_map():  # None once it is closed
            left = deadline - time.monotonic()
            if left <= 0:
                outcome = Outcome.TIMED_OUT
                break
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                    if is_whole is not None and key.data == len(streams) - 1 and is_whole(b"".join(parts[-1])):
                        selector.close()
                        break
                    continue
                parts[key.data].append(data)
                sizes[key.data] += len(data)
            if max(sizes) > limit:
                outcome = Outcome.TOO_MUCH_OUTPUT
                break
    for stream in streams:
        stream.close()
    return [b"".join(part)[:limit] for part in parts], outcome


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Take the end of a process, whenever that comes, without waiting for it."""
    try:
        threading.Thread(target=process.wait, daemon=True).start()
    except RuntimeError:  # no more threads allowed here: the next process that is started takes it
        return


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the group, grandchildren that kept a pipe open included."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_child(script: ChildScript, args: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str]) -> ChildAnswer:
    """Run a Python script in a bare interpreter of our own kind and parse the JSON object it prints."""
    said, _ = _asked(ahead.interpreter(), script, args, timeout_s=timeout_s, env=env)  # a crash is an answer too
    return said


def ask_python(
    python: tuple[str, ...], script: ChildScript, args: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str]
) -> ChildAnswer:
    """Run a script that only looks in any interpreter; one that a signal killed is asked once more."""
    said, ended = _asked(python, script, args, timeout_s=timeout_s, env=env)
    if ended is Outcome.KILLED:  # by somebody, or by the kernel for want of memory: it says nothing of what is there
        said, _ = _asked(python, script, args, timeout_s=timeout_s, env=env)
    return said


def _asked(
    python: tuple[str, ...], script: ChildScript, args: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str]
) -> tuple[ChildAnswer, Outcome]:
    """The answer of a script and how it ended; it comes through a pipe, apart from what else is printed."""
    argv = (*python, script.name)
    try:
        begun = ahead.child(python, script.source, args, env)
    except (OSError, ValueError) as error:
        done = _not_started(argv, error)
        return _read(script, done, "", timeout_s=timeout_s), done.outcome
    with open(begun.answers, "rb", buffering=0) as answers:
        streams = (*_outputs(begun.process), answers)
        outputs, done = _run_out(
            begun.process, argv, streams, timeout_s=timeout_s, limit=ANSWER_LIMIT, is_whole=_is_object
        )
    return _read(script, done, outputs[2], timeout_s=timeout_s), done.outcome


def _is_object(said: bytes) -> bool:
    import json

    try:
        return isinstance(json.loads(said), dict)
    except (ValueError, RecursionError):
        return False


def _read(script: ChildScript, done: Completed, said: str, *, timeout_s: float) -> ChildAnswer:
    import json

    if done.outcome is Outcome.TIMED_OUT:
        return ChildAnswer({}, f"the {script.name} child gave no answer within {timeout_s:g} s")
    if not done.ok:
        last = done.stderr.strip().rpartition("\n")[2].strip()[:200]
        how = f"exit status {done.status}" if done.outcome is Outcome.EXITED else done.outcome.value
        return ChildAnswer({}, f"the {script.name} child ended early ({how})" + (f": {last}" if last else ""))
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return ChildAnswer({}, f"the {script.name} child printed something that is not JSON")
    if not isinstance(answer, dict):
        return ChildAnswer({}, f"the {script.name} child printed JSON that is not an object")
    return ChildAnswer(answer, "")

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
from typing import IO

from firstlight.machine.interface import ChildAnswer, ChildScript, Completed, Outcome

OUTPUT_LIMIT = 1 << 20  # of stdout and of stderr each
ANSWER_LIMIT = 16 << 20  # of a child's answer, and of what is printed beside it
AFTER_KILL_S = 2.0


def run_bounded(
    argv: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str], keep: str = "", limit: int = OUTPUT_LIMIT
) -> Completed:
    """Run argv in a process group of its own; the whole group is killed at the time or output limit."""
    process = _start(argv, env)
    if isinstance(process, Completed):
        return process
    _, done = _run_out(process, argv, _outputs(process), timeout_s=timeout_s, limit=limit)
    if keep:
        wanted = re.compile(keep)
        kept = "".join(line for line in done.stdout.splitlines(keepends=True) if wanted.search(line))
        return Completed(argv, done.outcome, done.status, kept, done.stderr)
    return done


def _start(argv: tuple[str, ...], env: Mapping[str, str], *passed: int) -> subprocess.Popen[bytes] | Completed:
    """The process, or why there is none."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            pass_fds=passed,
        )
    except (FileNotFoundError, NotADirectoryError):
        return Completed(argv, Outcome.NOT_FOUND, -1, "", "")
    except (OSError, ValueError) as error:  # not executable, wrong format, a NUL in an argument
        return Completed(argv, Outcome.NOT_ALLOWED, -1, "", str(error))


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
) -> tuple[list[str], Completed]:
    """Wait for the end of a process, or make one; what came through each stream, and how it ended."""
    deadline = time.monotonic() + timeout_s
    try:
        outputs, outcome = _collect(streams, deadline, limit)
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


def _collect(streams: tuple[IO[bytes], ...], deadline: float, limit: int) -> tuple[list[bytes], Outcome]:
    """All streams until all close, the deadline passes or one goes over the limit."""
    parts: list[list[bytes]] = [[] for _ in streams]
    sizes = [0 for _ in streams]
    outcome = Outcome.EXITED
    with selectors.DefaultSelector() as selector:
        for index, stream in enumerate(streams):
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
    for stream in streams:
        stream.close()
    return [b"".join(part)[:limit] for part in parts], outcome


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the group, grandchildren that kept a pipe open included."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


# What is printed at start (sitecustomize, a .pth, a preloaded library) goes to fd 1; `print` of the script does not.
_ON_ITS_OWN_PIPE = (
    "import os, sys; sys.stdout = os.fdopen(int(sys.argv.pop(1)), 'w', encoding='utf-8'); "
    "os.set_inheritable(sys.stdout.fileno(), False); "
    "exec(compile(sys.argv.pop(1), 'child', 'exec')); sys.stdout.flush()"
)


def run_child(script: ChildScript, args: tuple[str, ...], *, timeout_s: float, env: Mapping[str, str]) -> ChildAnswer:
    """Run a Python script in a bare interpreter of our own kind and parse the JSON object it prints."""
    python = (sys.executable or "python3", "-I", "-S", "-B")  # -B: looking leaves no compiled files behind
    return _asked(python, script, args, timeout_s=timeout_s, env=env)[0]  # a crash is an answer too: asked once


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
    try:
        end, given = os.pipe()
    except OSError as error:
        complaint = f"the {script.name} child could not be started: {error.strerror}"
        return ChildAnswer({}, complaint), Outcome.NOT_ALLOWED
    argv = (*python, "-c", _ON_ITS_OWN_PIPE, str(given), script.source, *args)
    done, said = _run_answering(argv, (end, given), timeout_s=timeout_s, env=env)
    return _read(script, done, said, timeout_s=timeout_s), done.outcome


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


def _run_answering(
    argv: tuple[str, ...], pipe: tuple[int, int], *, timeout_s: float, env: Mapping[str, str]
) -> tuple[Completed, str]:
    """Run argv with the writing end of a pipe passed on; the pipe's ends are closed here whatever happens."""
    end, given = pipe
    with open(end, "rb", buffering=0) as answers:
        try:
            process = _start(argv, env, given)
        finally:
            os.close(given)
        if isinstance(process, Completed):
            return process, ""
        streams = (*_outputs(process), answers)
        outputs, done = _run_out(process, argv, streams, timeout_s=timeout_s, limit=ANSWER_LIMIT)
    return done, outputs[2]

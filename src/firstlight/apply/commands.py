"""Runs the commands of a step: output goes to a log and, line by line, to whoever watches."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from firstlight.apply.disk import named
from firstlight.apply.log_masking import mask_log
from firstlight.apply.surroundings import folder_for, variables_for
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass
from firstlight.secrets import masked

TAIL = 30
LOOK_EVERY_S = 0.05
# The command waits in its own process until it was written down that it runs: killed before that, it never ran.
GATE = 'read -r go || exit 125; exec "$@" < /dev/null'


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, with its last lines, e.g. status 1 after 3.2 s."""

    status: int
    seconds: float
    tail: tuple[str, ...]
    log: str


def run_logged(
    argv: tuple[str, ...],
    *,
    log: str,
    env: Mapping[str, str],
    started: Callable[[int], None],
    watch: Callable[[str], None],
    killed: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a command to its end; `started` learns its process before it runs, `watch` every line it prints.

    `killed` waits for what a killed command had started: it writes to the log too, which is cleaned after it.

    It writes to the log itself, not to us: apt whose reader was killed would die of it half-way through a package. An
    interrupt is passed on to the command, which then gets the time it needs to end.
    """
    begun = time.monotonic()
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        return Ended(127, 0.0, (f"{argv[0]}: no such program",), log)
    with named(log), open(log, "ab", buffering=0, opener=_private) as sink:
        sink.write(masked(f"$ {shlex.join(argv)}\n").encode("utf-8", "surrogateescape"))
        said = _Said(log, sink.tell(), watch)
        try:
            process = subprocess.Popen(
                ("/bin/sh", "-c", GATE, "sh", *argv), stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT,
                env=variables_for(argv, env), cwd=folder_for(argv), start_new_session=True,
            )  # fmt: skip
        except OSError as error:  # too many processes, too long a command
            return Ended(127, 0.0, (f"{argv[0]}: {error.strerror}",), log)
        begins_at = sink.tell()
    try:
        _let_go(process, started)
        while not _has_ended(process):
            said.read()
        if process.returncode < 0:
            killed()
    except BaseException:
        _interrupt(process)
        mask_log(log, begins_at)
        raise
    said.read()
    mask_log(log, begins_at)
    return Ended(process.returncode, time.monotonic() - begun, said.tail(), log)


def _private(path: str, flags: int) -> int:
    """A log that its owner alone reads: programs print addresses with passwords."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _let_go(process: subprocess.Popen[bytes], started: Callable[[int], None]) -> None:
    """Open the gate once the process is written down; where that fails, the command ends before it has begun."""
    assert process.stdin is not None
    try:
        started(process.pid)
        process.stdin.write(b"go\n")
    finally:
        with suppress(OSError):
            process.stdin.close()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=LOOK_EVERY_S)
    except subprocess.TimeoutExpired:
        return False
    return True


class _Said:
    """Follows what a command adds to its log."""

    def __init__(self, log: str, offset: int, watch: Callable[[str], None]) -> None:
        self._log, self._offset, self._watch = log, offset, watch
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._open_line = b""

    def read(self) -> None:
        """Hand on the lines that came since; a log that cannot be read costs lines, not the command."""
        with suppress(OSError), open(self._log, "rb") as file:
            file.seek(self._offset)
            while piece := file.read(1 << 16):
                self._offset += len(piece)
                *lines, self._open_line = (self._open_line + piece).split(b"\n")
                for line in lines:
                    self._hear(line)

    def _hear(self, line: bytes) -> None:
        text = masked(line.decode("utf-8", "replace").rstrip("\r"))
        self._tail.append(text)
        self._watch(text)

    def tail(self) -> tuple[str, ...]:
        if self._open_line:
            self._hear(self._open_line)
            self._open_line = b""
        return tuple(self._tail)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGINT)
    except ProcessLookupError:
        return
    process.wait()


def wait_for_orphan(process: int, *, start: str, say: Callable[[str], None], limit_s: float = 1800.0) -> None:
    """Wait for a command that a killed firstlight left running, so that it is not run a second time beside itself."""
    begun, told = time.monotonic(), False
    while start and process_start(process) == start:
        if not told:
            say(f"waiting for process {process}, which the interrupted run had started")
            told = True
        if time.monotonic() - begun > limit_s:
            raise CouldNotAct(
                f"process {process} of the interrupted run is still running after {limit_s / 60:.0f} minutes."
            )
        time.sleep(0.1)


def process_start(process: int) -> str:
    """When a process began, in clock ticks since boot; "" when it is gone. A number and its start name one process."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError as error:  # a process that nobody could look at is not one that has ended
        raise CouldNotAct(
            f"process {process} could not be looked at: {error.strerror}. Nothing was started."
        ) from error
    return "" if fields[0] == "Z" else fields[19]

"""Runs one engine inside a stage: its lines go to the stage's log, progress and memory are watched meanwhile."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
import time

from firstlight.build.engines import Engine, environment_for
from firstlight.build.ninja_output import progress_of
from firstlight.build.progress import STILL_S, Progress
from firstlight.build.spec import BuildSpec
from firstlight.frozen import dataclass
from firstlight.secrets import masked

WAKE_EVERY_S, LOOK_EVERY_S, WRITE_EVERY_S = 0.25, 0.5, 2.0
_KEPT = 200_000  # lines


@dataclass(frozen=True, slots=True)
class EngineEnded:
    """How an engine ended: its status, its lines, whether it was stopped because its time was over."""

    status: int
    lines: tuple[str, ...]
    out_of_time: bool = False


def say(text: str) -> None:
    """A line into the log of the stage, which is where our own output goes."""
    sys.stdout.write(masked(text) + "\n")
    sys.stdout.flush()


def run_engine(spec: BuildSpec, engine: Engine, progress: Progress, *, until: float = 0.0) -> EngineEnded:
    """Run a command to its end; `until` is the time at which it is told to stop, 0 = never."""
    say(f"$ {shlex.join(engine.argv)}")
    environment = environment_for(spec, engine, os.environ)
    try:
        process = subprocess.Popen(
            engine.argv, cwd=engine.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        say(f"{engine.argv[0]}: {error.strerror}")
        return EngineEnded(127, (f"{engine.argv[0]}: {error.strerror}",))
    with _passing_on(process):
        lines, late = _followed(process, progress, until)
    progress.watch.look(os.getpid())
    progress.write()
    return EngineEnded(process.wait(), tuple(lines), late)


class _passing_on:
    """While an engine runs, Ctrl-C and SIGTERM are its; ninja then ends its units in order and keeps its log."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> None:
        self._before = {each: signal.signal(each, self._tell) for each in (signal.SIGINT, signal.SIGTERM)}

    def _tell(self, number: int, frame: object) -> None:
        self._process.send_signal(signal.SIGINT)
        raise KeyboardInterrupt

    def __exit__(self, *about: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _followed(process: subprocess.Popen[bytes], progress: Progress, until: float) -> tuple[list[str], bool]:
    assert process.stdout is not None
    lines: list[str] = []
    rest, late, told = b"", False, False
    looked = written = 0.0
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while True:
            if waiting.select(WAKE_EVERY_S):
                piece = process.stdout.read(1 << 16)
                if piece == b"":
                    break
                *whole, rest = (rest + (piece or b"")).split(b"\n")
                for line in whole:
                    _hear(line, lines, progress)
            now = time.time()
            if now - looked >= LOOK_EVERY_S:
                progress.watch.look(os.getpid())
                looked = now
            if now - written >= WRITE_EVERY_S:
                progress.write()
                written = now
            if progress.still_for_s(now) > STILL_S and not told:
                told = True
                running = ", ".join(progress.watch.running) or "no unit that can be named"
                say(f"firstlight: no unit ended for {STILL_S // 60} minutes; running: {running}")
            if until and now > until and not late:
                late = True
                process.send_signal(signal.SIGINT)
    if rest:
        _hear(rest, lines, progress)
    return lines, late


def _hear(line: bytes, lines: list[str], progress: Progress) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    say(text)
    if len(lines) < _KEPT:
        lines.append(text)
    if found := progress_of(text):
        progress.heard(*found)

"""What `apply` and `undo` share: who watches, who is asked, the lock, the journal and the signals."""

from __future__ import annotations

import enum
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from firstlight.apply.account import Account
from firstlight.apply.disk import Disk
from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.journal import Journal, read_journal
from firstlight.apply.lock import machine_lock
from firstlight.apply.outcome import Failure
from firstlight.apply.place import machine_folder, machine_part, ready_place
from firstlight.apply.runs import Run, runs_of
from firstlight.apply.surroundings import logins_for
from firstlight.cli.printing import raw, shown
from firstlight.errors import BadInput, CouldNotAct
from firstlight.machine.live import LiveMachine
from firstlight.visible import one_line
from firstlight.ways.back import Argv
from firstlight.ways.step import Step

if TYPE_CHECKING:
    from rich.status import Status

# Programs must not wait for an answer that nobody can give, and must say in English what `explain` knows in English.
# Indexes and proxies (PIP_INDEX_URL, UV_INDEX_URL, pip.conf, https_proxy) are the user's and stay as they are.
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LANGUAGE": "en",
}
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Answers(enum.Enum):
    """Who decides what --yes cannot: the loss of what may be somebody's own."""

    PERSON = "person"
    NOBODY = "nobody"  # --yes was given, or there is no terminal

    @classmethod
    def here(cls, *, yes: bool) -> Answers:
        return cls.NOBODY if yes or not sys.stdin.isatty() else cls.PERSON


class Watching:
    """Tells on stderr what happens: a spinner with the last line on a terminal, plain lines elsewhere."""

    def __init__(self, answers: Answers = Answers.NOBODY) -> None:
        self.account = Account()
        self._answers = answers
        self._status: Status | None = None
        self._console: Any = None
        self._title = ""
        if sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb":
            from rich.console import Console

            self._console = Console(file=raw(sys.stderr), highlight=False)

    def step_begins(self, step: Step, *, number: int, total: int) -> None:
        self.account.begins(step)
        self._title = f"[{number}/{total}] {one_line(step.title)}"
        self._print(self._title)
        if self._console is not None:
            self._stop()
            self._status = self._console.status("")
            self._status.start()

    def step_skipped(self, step: Step, *, saw: str) -> None:
        self.account.held(step, saw)
        self._print(f"done already: {one_line(step.title)}")

    def step_ended(self, step: Step, *, seconds: float, saw: str) -> None:
        self.account.ended(step, saw)
        self._stop()

    def line(self, text: str) -> None:
        if self._status is not None:
            from rich.text import Text

            with suppress(OSError):
                self._status.update(Text(one_line(shown(text))[: self._console.width - 4]))
        elif "lock" in text.lower() and "wait" in text.lower():  # apt's own "Waiting for cache lock"
            self._print(text)

    def say(self, text: str) -> None:
        self._print(text)

    def asks(self, question: str) -> bool:
        if self._answers is Answers.NOBODY:
            return False
        self._stop()
        return click.confirm(question, default=False, err=True)

    def somebody_answers(self) -> bool:
        return self._answers is Answers.PERSON

    def close(self) -> None:
        """Give the terminal back."""
        self._stop()

    def _stop(self) -> None:
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
            self._status = None

    def _print(self, text: str) -> None:
        """A terminal that went away must not stop a step half-way."""
        with suppress(OSError):
            if self._console is not None:
                from rich.text import Text

                self._console.print(Text(shown(text)))
            else:
                click.echo(text, err=True)


def past_runs(machine: LiveMachine) -> tuple[Run, ...]:
    """Every run in this machine's journal, which is not opened for writing; () where there is none."""
    return runs_of(read_journal(journal_path(machine)))


def journal_path(machine: LiveMachine) -> str:
    return f"{machine_folder(machine)}/journal.jsonl"


@contextmanager
def acting_on(machine: LiveMachine, watcher: Watching, *, logins: tuple[str, ...] = ()) -> Iterator[Acting]:
    """The machine's lock, its journal open for appending, and signals that end in order.

    logins: addresses with a user and password, which the commands get in their environment and nowhere else.
    """
    with in_order(), machine_lock():
        place = ready_place(machine)
        if place.note:
            watcher.say(place.note)
        disk = Disk()
        journal = Journal(f"{machine_part(machine, place)}/journal.jsonl", disk=disk, now=_now)
        journal.open()
        try:
            env = {**os.environ, **QUIET, **logins_for(logins, os.environ)}
            yield Acting(journal.folder, journal, disk, watcher, env)
        finally:
            watcher.close()
            journal.close()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextmanager
def in_order() -> Iterator[None]:
    """Ctrl-C, a service manager's SIGTERM and a lost connection all end as Ctrl-C does: the command is told first."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    heard = [each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN]  # nohup's stays
    before = {each: signal.signal(each, stop) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def agreed(what: str, *, yes: bool) -> bool:
    """Whether it shall be done: --yes, or the answer of a person on a terminal; without either it is refused."""
    sys.stdout.flush()  # in a log the plan stands above what is done by it
    if yes:
        return True
    if not sys.stdin.isatty():
        raise BadInput(
            f"standard input is not a terminal, so nothing can be asked. Give --yes to {what} without asking."
        )
    return click.confirm("Do this?", default=False, err=True)


def agreed_to_stored(run: Run, commands: tuple[Argv, ...], *, verb: str) -> bool:
    """Whether a person read the command lines that a journal of 0.1 holds and wants them run; --yes cannot say so."""
    if not commands:
        return True
    count = "1 command" if len(commands) == 1 else f"{len(commands)} commands"
    if not sys.stdin.isatty():
        raise BadInput(
            f"run {run.number} was written by firstlight 0.1, and its journal holds {count} as text. --yes is not "
            f"enough for these: run `firstlight {verb}` in a terminal, which shows them and asks. Nothing was changed."
        )
    click.echo(f"\nThe journal was written by firstlight 0.1 and holds {count} as text:\n", err=True)
    for argv in commands:
        click.echo(f"    {ascii(shlex.join(argv))[1:-1]}", err=True)
    return click.confirm("\nRun these?", default=False, err=True)


def failure_of(error: CouldNotAct) -> Failure:
    """What a report needs of an error."""
    if isinstance(error, StepFailed):
        return Failure(str(error), error.argv, error.tail, error.log)
    return Failure(str(error), (), (), "")

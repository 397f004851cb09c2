"""Facts of hosts: one over one connection, many side by side."""

from __future__ import annotations

import enum
import os
import secrets
import threading
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Union

from firstlight.errors import BadInput, CouldNotLook, FirstlightError, HostNotReached
from firstlight.facts.by_sh import NO_PYTHON, collected
from firstlight.facts.collect import Facts
from firstlight.fleet.questions import asked, refuse_odd_python
from firstlight.fleet.refused import why_not
from firstlight.fleet.reply import LOOK_S, between_marks, read_evidence
from firstlight.fleet.sh_probe import is_sh_answer, read_sh_answer, sh_script
from firstlight.fleet.ssh import converse, ssh_argv
from firstlight.fleet.target import Target
from firstlight.frozen import dataclass
from firstlight.machine.evidence import Evidence, marks
from firstlight.machine.recorded import NOT_RECORDED, RecordedMachine

FORKS = 16
# What code of ours raises at content that nobody foresaw; a host that sends such is no reason to lose the others.
UNFORESEEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BadInput,
    CouldNotLook,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Asking:
    """How hosts are asked: the facts as a zipapp, a config of ssh instead of the user's, whose torch is meant."""

    zipapp: bytes
    config: str = ""
    python: str = ""
    limit_s: float = LOOK_S


class AskedBy(enum.Enum):
    """How a host was asked, which says what was looked for there."""

    PYTHON = "python"  # by its Python, also for the names of all packages
    SH = "sh"  # by its sh: fewer facts
    RECORDED = "recorded"  # earlier, by `facts --record`: packages of interest alone


@dataclass(frozen=True, slots=True)
class Looked:
    """A host that answered, with everything that it said."""

    name: str
    evidence: Evidence
    asked_by: AskedBy
    python: str = ""

    def facts(self) -> Facts:
        """Under the names that it has: commands that are pasted there must work there."""
        return collected(self.machine(), python=self.python)

    def machine(self) -> RecordedMachine:
        """It, as it answers any question that was asked there."""
        return RecordedMachine(self.evidence, not_asked=NO_PYTHON if self.asked_by is AskedBy.SH else NOT_RECORDED)


@dataclass(frozen=True, slots=True)
class NotLooked:
    """A host that could not be looked at, why, and the one command that helps ("" where none does)."""

    name: str
    reason: str
    do: str = ""


HostLook = Union[Looked, NotLooked]


def not_judged(name: str, error: Exception) -> NotLooked:
    """A host of whose answer we cannot make anything: what it holds was not foreseen, by us or by its schema."""
    if isinstance(error, FirstlightError):
        return NotLooked(name, f"its answer could not be judged: {error}")
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(os.path.dirname(last.filename))}/{os.path.basename(last.filename)}:{last.lineno}"
    return NotLooked(name, f"its answer could not be judged: it holds what firstlight cannot read ({where})")


def look_over_ssh(target: Target, asking: Asking) -> Looked:
    """The evidence of one host; CouldNotLook with the reason where there is none."""
    token = secrets.token_hex(8)
    question = asked(asking.zipapp, sh_script(token), token=token, python=asking.python)
    argv = (*ssh_argv(target, config=asking.config), question.command)
    said = converse(argv, question.stdin, ends_with=f"\n{marks(token)[1]}\n".encode(), limit_s=asking.limit_s)
    answer = between_marks(said.printed, token)
    if answer is None:
        raise why_not(said, target, config=asking.config)
    if is_sh_answer(answer):
        return Looked(target.name, read_sh_answer(answer), AskedBy.SH, asking.python)
    return Looked(target.name, read_evidence(answer, target.name), AskedBy.PYTHON, asking.python)


def look_at_all(
    targets: tuple[Target, ...],
    asking: Asking,
    *,
    forks: int = FORKS,
    told: Callable[[HostLook], None] = lambda _: None,
) -> tuple[HostLook, ...]:
    """Every host, at most `forks` at a time, in the order given; `told` hears of each as it comes."""
    refuse_odd_python(asking.python)  # here: in a thread nobody would hear of it
    waiting: SimpleQueue[tuple[int, Target]] = SimpleQueue()
    for numbered in enumerate(targets):
        waiting.put(numbered)
    found: dict[int, HostLook] = {}

    def work() -> None:
        while True:
            try:
                number, target = waiting.get_nowait()
            except Empty:
                return
            found[number] = _look(target, asking)
            told(found[number])

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(forks, len(targets)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(found[number] for number in range(len(targets)))


def _look(target: Target, asking: Asking) -> HostLook:
    try:
        return look_over_ssh(target, asking)
    except HostNotReached as error:
        return NotLooked(target.name, error.reason, error.do)
    except CouldNotLook as error:
        return NotLooked(target.name, str(error))
    except UNFORESEEN as error:
        return not_judged(target.name, error)

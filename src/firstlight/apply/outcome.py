"""What came of one call of `apply` or `undo`: text and JSON are made of this."""

from __future__ import annotations

import enum

from firstlight.apply.account import Taken
from firstlight.apply.parts import Parts
from firstlight.apply.runs import Run
from firstlight.facts.known import Fact
from firstlight.frozen import dataclass


class Ending(enum.Enum):
    """How a call ended."""

    DONE = "done"
    NOTHING = "nothing to do"
    SHOWN = "shown"  # --dry-run: nothing was changed
    DECLINED = "declined"
    BY_A_PERSON = "by a person"  # nothing of it can be done from here
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Failure:
    """Where it stopped, e.g. pip ended with status 1; argv, tail and log are empty where no command failed."""

    message: str
    argv: tuple[str, ...]
    tail: tuple[str, ...]
    log: str


@dataclass(frozen=True, slots=True)
class Applied:
    """One call of `apply`."""

    ending: Ending
    option: str  # id of the option
    title: str
    digest: str  # of the steps that firstlight does
    run: int  # its number in the journal, 0 where nothing was written
    resumed: tuple[int, ...]  # interrupted runs that were finished first
    taken: tuple[Taken, ...]
    parts: Parts
    rate: Fact[float]  # money an hour
    failure: tuple[Failure, ...] = ()
    journal: str = ""  # "" of another machine, for which this is only shown
    held: tuple[str, ...] = ()  # ids of our steps that hold already, looked at where none was taken


@dataclass(frozen=True, slots=True)
class Undone:
    """One call of `undo`: the run it was about, if there is one, and how many can still be taken back."""

    ending: Ending
    run: tuple[Run, ...]
    left: int
    failure: tuple[Failure, ...] = ()
    journal: str = ""

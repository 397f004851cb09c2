"""What is handed over with a machine, as one document (schema firstlight.handover/1)."""

from __future__ import annotations

import enum
from typing import Any

from firstlight import __version__
from firstlight.frozen import dataclass
from firstlight.records import encode

SCHEMA = "firstlight.handover/1"


class Colour(enum.Enum):
    """How the machine as a whole is handed over."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Said:
    """One line under a name, e.g. driver: 570.133.20."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that is not there, why, and the command that makes it."""

    part: str
    why: str
    make: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding: what it is called, how bad it is, what was seen of it."""

    code: str
    title: str
    severity: str
    saw: tuple[str, ...]
    means: str


@dataclass(frozen=True, slots=True)
class StepToTake:
    """One step that is to be done: which files it writes, what is typed after that, and whether it is left to you."""

    title: str
    marks: tuple[str, ...]  # optional, you do this
    files: tuple[str, ...]  # /root/.local/state/firstlight/compat/run, 9 lines, new
    commands: str
    note: str  # what to do where there is no command


@dataclass(frozen=True, slots=True)
class WayOut:
    """The first option for what is wrong now: its title and its steps."""

    title: str
    steps: tuple[StepToTake, ...]


@dataclass(frozen=True, slots=True)
class StepTaken:
    """One step of a run of `apply`, with what was typed and what takes it back."""

    title: str
    state: str  # done, held already, failed, not begun, taken back
    at: str  # 2026-11-15T02:38:25Z, "" where it was not begun
    seconds: float
    because: str  # what it was done for: the title of a finding, or what was wanted
    saw: str  # how it was known to be done, or what the failed command said last
    commands: str  # one a line, as a shell takes them
    files: tuple[str, ...]
    undo: tuple[str, ...]  # what taking it back does, in words
    undo_commands: str


@dataclass(frozen=True, slots=True)
class RunTaken:
    """One run of `apply`: number 3, when, done or taken back, its steps."""

    number: int
    at: str
    state: str
    title: str
    seconds: float
    steps: tuple[StepTaken, ...]


@dataclass(frozen=True, slots=True)
class CheckRead:
    """One check of a document of `verify`."""

    check: str
    title: str
    outcome: str  # ok, failed, skipped, not here
    says: str
    do: tuple[str, ...]
    command: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What `verify` said, and of which machine."""

    started_at: str
    seconds: float
    machine: str
    place: str
    interpreter: str
    has_gpu: bool
    exit_code: int
    summary: tuple[str, ...]
    results: tuple[CheckRead, ...]

    def of_outcome(self, outcome: str) -> tuple[CheckRead, ...]:
        """The checks that ended so: ok, failed, skipped, not here."""
        return tuple(each for each in self.results if each.outcome == outcome)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a run of `bench` says first; `compared` where an earlier run was handed over too."""

    run: str
    started: str
    verdict: str
    tone: str
    look_at: tuple[Said, ...]
    compared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What is not as it was: torch was 2.9.0+cu130 when it was proved and is 2.10.0+cu130 now."""

    what: str
    then: str
    now: str
    since: str


@dataclass(frozen=True, slots=True)
class Handover:
    """The whole of it, in the order in which it is read."""

    verdict: str
    tone: Colour
    machine: str
    place: str
    collected_at: str
    what_it_is: tuple[Said, ...]
    missing: tuple[Missing, ...]
    was_wrong: tuple[Fault, ...]  # before the work: the findings of the earlier look, else what the steps were done for
    is_wrong: tuple[Fault, ...]
    way_out: tuple[WayOut, ...]  # one, or none
    done: tuple[RunTaken, ...]
    cost: str  # what the steps cost, "" where nobody said what an hour costs
    proved: tuple[Proof, ...]  # one, or none
    speed: tuple[Speed, ...]
    changed: tuple[Change, ...]
    again: str  # the command that made it; files by their last name


def handover_document(handover: Handover, *, file: str) -> dict[str, Any]:
    """The document, schema first; `file` is the page that was written."""
    said: dict[str, Any] = encode(handover)
    return {"schema": SCHEMA, "made_by": f"firstlight {__version__}", "file": file, **said}

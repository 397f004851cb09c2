"""What each step took: seconds, room on the disk, and how it ended."""

from __future__ import annotations

import enum
import os
import time

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.ways.step import CheckKind, Step


class State(enum.Enum):
    """How a step of a run ended."""

    DONE = "done"
    HELD = "held already"  # nothing was run
    FAILED = "failed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Taken:
    """What one step took, e.g. done in 41.2 s, 5.1 GB of disk."""

    step: Step
    state: State
    seconds: float
    disk_bytes: Fact[int]  # less free room than before, whoever used it
    saw: str
    received_bytes: Fact[int] = Unknown("nothing was run")  # by the network meanwhile, whoever asked for it


class Account:
    """Keeps what each step took: fills up as steps end, which is what it is for."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._begun: dict[str, tuple[float, Fact[int], dict[str, int]]] = {}

    def begins(self, step: Step) -> None:
        self._begun[step.id] = (time.monotonic(), free_bytes(step), _received())

    def held(self, step: Step, saw: str) -> Taken:
        return self._add(Taken(step, State.HELD, 0.0, Known(0, "nothing was run"), saw))

    def ended(self, step: Step, saw: str, state: State = State.DONE) -> Taken:
        begun, free, had = self._begun.get(step.id, (time.monotonic(), Unknown("it never began"), {}))
        seconds, came = time.monotonic() - begun, _came_since(had)
        return self._add(Taken(step, state, seconds, _less(free, free_bytes(step)), saw, came))

    def _add(self, taken: Taken) -> Taken:
        self._taken[taken.step.id] = taken
        return taken

    def of(self, steps: tuple[Step, ...]) -> tuple[Taken, ...]:
        """What each of these took, in their order; one that began and never ended failed."""
        return tuple(self._of(step) for step in steps)

    def _of(self, step: Step) -> Taken:
        if step.id in self._taken:
            return self._taken[step.id]
        if step.id in self._begun:
            return self.ended(step, "", State.FAILED)
        return Taken(step, State.NOT_REACHED, 0.0, Unknown("it was not reached"), "")


def free_bytes(step: Step) -> Fact[int]:
    """Free room on the file system that the step writes to."""
    place = place_of(step)
    while place and not os.path.exists(place):
        place = os.path.dirname(place)
    try:
        found = os.statvfs(place or "/")
    except OSError as error:
        return Unknown(f"{place}: {error.strerror}")
    return Known(found.f_frsize * found.f_bavail, f"free room on {place or '/'}")


def _came_since(had: dict[str, int]) -> Fact[int]:
    """What came in by the busiest network device meanwhile; a proxy on this machine counts once that way."""
    came = [count - had[device] for device, count in _received().items() if device in had]
    return Known(max(came), "/proc/net/dev") if came else Unknown("/proc/net/dev cannot be read")


def _received() -> dict[str, int]:
    """Bytes that came in by each network device since it is up; nothing where the kernel does not say."""
    try:
        with open("/proc/net/dev", encoding="ascii") as file:
            lines = [line.partition(":") for line in file if ":" in line]
        return {name.strip(): int(counts.split()[0]) for name, _, counts in lines}
    except (OSError, ValueError, IndexError):
        return {}


def place_of(step: Step) -> str:
    """A path that the step writes to: a file of its own, else the environment or file of its condition, else /."""
    for change in step.files:
        return change.path
    paths = (CheckKind.FILE_EXISTS, CheckKind.FILE_HOLDS, CheckKind.DISTRIBUTIONS, CheckKind.GIT_COMMIT)
    return next((each.target for each in step.done_when if each.kind in paths), "/")


def _less(before: Fact[int], after: Fact[int]) -> Fact[int]:
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else Known(before.value - after.value, after.seen_in)

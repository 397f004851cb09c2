"""What preflight says: faults, which stop a build before it starts, and notes, which do not."""

from __future__ import annotations

import enum

from firstlight.frozen import dataclass


class Weight(enum.Enum):
    """Whether a build may begin all the same."""

    STOPS = "stops"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that preflight saw, e.g. cmake-too-old, with what to do."""

    code: str
    weight: Weight
    saw: str
    do: str = ""
    command: str = ""  # that does it, to be pasted


def stops(code: str, saw: str, do: str, *, command: str = "") -> Fault:
    return Fault(code, Weight.STOPS, saw, do, command)


def note(code: str, saw: str, do: str = "", *, command: str = "") -> Fault:
    return Fault(code, Weight.NOTE, saw, do, command)

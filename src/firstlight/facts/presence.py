"""Whether something is at a path: a recording that was never asked about it does not know."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.machine import Machine

NO_SUCH_FILE = "no such file"


def presence(machine: Machine, *paths: str) -> Fact[bool]:
    """True with the first path that is there, False where all are known to be missing, else why that is not known."""
    why = ""
    for path in paths:
        if machine.stat(path) is not None:
            return Known(value=True, seen_in=path)
        reason = machine.why_not(path)
        why = why or (f"{path}: {reason}" if reason != NO_SUCH_FILE else "")
    return Unknown(why) if why else Known(value=False, seen_in=f"no {paths[0]}")

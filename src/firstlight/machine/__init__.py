"""The machine that is looked at: one interface, live or replayed from a file."""

from firstlight.machine.interface import (
    ChildAnswer,
    ChildScript,
    Completed,
    Disk,
    Host,
    Machine,
    Outcome,
    Stat,
    which,
)

__all__ = ["ChildAnswer", "ChildScript", "Completed", "Disk", "Host", "Machine", "Outcome", "Stat", "which"]

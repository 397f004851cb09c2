"""What a lock holds of one kind of machine: facts by part and name, each one line in the file. Types alone."""

from __future__ import annotations

import enum

from firstlight.diagnosis.finding import Goal
from firstlight.frozen import dataclass

NO_GPU = "none"


class Part(enum.Enum):
    """What a fact is about; its name is the table in the file, and this is their order there."""

    GPU = "gpu"
    DRIVER = "driver"
    COMPAT = "compat"
    TOOLKIT = "toolkit"
    COMPILER = "compiler"
    PYTHON = "python"
    PACKAGES = "packages"
    IMPORTS = "imports"
    STARTUP = "startup"
    LIBRARIES = "libraries"
    SETTINGS = "settings"
    CHECKOUTS = "checkouts"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Held:
    """One fact, e.g. packages, torch, 2.11.0+cu130 with the digest of its RECORD; "" = no digest was taken."""

    part: Part
    name: str
    value: str
    digest: str = ""
    seen_in: str = ""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """What tells kinds of machine apart: compute capability ("none" without a GPU), processor, driver branch."""

    capability: str
    processor: str
    branch: int  # the floor: machines with this driver branch or a newer one are of this kind; 0 without a driver

    @property
    def usual_name(self) -> str:
        """sm90-x86_64-r580."""
        if self.capability == NO_GPU:
            return f"cpu-{self.processor}"
        gpus = "-".join(f"sm{each.replace('.', '')}" for each in self.capability.split(" "))
        return f"{gpus}-{self.processor}" + (f"-r{self.branch}" if self.branch else "")


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding that was there when the lock was written, e.g. compat-baked-in, degrades.

    `saw` has a mark of each thing that it saw, so that a second wheel off its pin is told from the first.
    """

    code: str
    severity: str
    saw: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """A machine as it is now, told the way a lock tells it; `out_of_reach` says what could not be looked at."""

    kind: MachineKind
    held: tuple[Held, ...]
    out_of_reach: tuple[str, ...] = ()

    def at(self, part: Part, name: str) -> Held | None:
        return next((each for each in self.held if each.part is part and each.name == name), None)


@dataclass(frozen=True, slots=True)
class LockedClass:
    """One [[class]] of the file."""

    name: str
    kind: MachineKind
    goal: Goal
    verified: bool
    verify: str  # digest of what verify proved; "" where nothing did
    bench: str  # the id of a run of bench; "" for none
    held: tuple[Held, ...]
    findings: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file: where it is, its text as it was read, and its classes in the order of the file."""

    path: str
    text: str
    classes: tuple[LockedClass, ...]

    def named(self, name: str) -> LockedClass | None:
        return next((each for each in self.classes if each.name == name), None)

"""Which class of a lock a machine is held against. Pure."""

from __future__ import annotations

from firstlight.errors import BadInput
from firstlight.lock.stack import Lock, LockedClass, MachineKind
from firstlight.near import nearest


def class_for(lock: Lock, kind: MachineKind) -> LockedClass | None:
    """The class of this capability and processor with the highest floor that this driver reaches; None: none fits.

    With a driver older than every floor it is the class with the lowest: the driver is then what has drifted.
    """
    same = [
        each
        for each in lock.classes
        if (each.kind.capability, each.kind.processor) == (kind.capability, kind.processor)
    ]
    reached = [each for each in same if each.kind.branch <= kind.branch]
    if reached:
        return max(reached, key=lambda each: each.kind.branch)
    return min(same, key=lambda each: each.kind.branch, default=None)


def class_called(lock: Lock, name: str) -> LockedClass:
    """The class of a name; BadInput names those that there are."""
    found = lock.named(name)
    if found is not None:
        return found
    names = [each.name for each in lock.classes]
    near = nearest(name, names)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise BadInput(f"--class {name[:60]!a}: {lock.path} has no such class; it has {', '.join(names) or 'none'}.{hint}")


def has_classes(lock: Lock) -> str:
    """The classes that there are: 'sm90-x86_64-r580 (capability 9.0, x86_64, driver 580)'."""
    return "; ".join(f"{each.name} ({kind_words(each.kind)})" for each in lock.classes) or "no class at all"


def kind_words(kind: MachineKind) -> str:
    """'capability 9.0, x86_64, driver 580 or newer'."""
    gpu = "no GPU" if kind.capability == "none" else f"capability {kind.capability}"
    return f"{gpu}, {kind.processor}" + (f", driver {kind.branch}" if kind.branch else "")

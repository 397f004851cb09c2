"""What differs between a lock and a machine; what only follows from another drift stands under it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from firstlight.frozen import dataclass
from firstlight.lock.stack import Held, LockedClass, Part, Stack

NOT_HERE, NOT_LOCKED = "not here", "not in the lock"


class Change(enum.Enum):
    """How a fact differs."""

    CHANGED = "changed"
    CONTENT = "other content"  # the same version or name, and other bytes
    ADDED = "added"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Drift:
    """One fact that is not as locked, e.g. packages, torch: 2.11.0+cu130 in the lock, 2.9.0+cu128 here."""

    part: Part
    name: str
    change: Change
    locked: str
    here: str
    seen_in: str


@dataclass(frozen=True, slots=True)
class Group:
    """A drift and those that follow from it, e.g. LD_LIBRARY_PATH and the libraries that it now brings."""

    drift: Drift
    follows: tuple[Drift, ...] = ()


def drifts(locked: LockedClass, here: Stack) -> tuple[Group, ...]:
    """Every drift, in the order of the file."""
    return tuple(_grouped(tuple(_compared(locked, here))))


def not_compared(locked: LockedClass, here: Stack) -> tuple[str, ...]:
    """What the lock has and could not be looked at here, in words."""
    said = list(here.out_of_reach)
    missing = sum(
        bool(each.digest) and (now := here.at(each.part, each.name)) is not None and not now.digest
        for each in locked.held
    )
    if missing and not said:
        said.append(f"{missing} digests: the files could not be read here")
    return tuple(said)


def _compared(locked: LockedClass, here: Stack) -> Iterator[Drift]:
    before = {(each.part, each.name): each for each in locked.held}
    now = {(each.part, each.name): each for each in here.held}
    for part in Part:
        for name in sorted({name for each, name in (*before, *now) if each is part}):
            old, new = before.get((part, name)), now.get((part, name))
            if (found := _difference(part, name, old, new)) is not None and not _unseen(part, old, new, here):
                yield found


def _difference(part: Part, name: str, old: Held | None, new: Held | None) -> Drift | None:
    if old is None and new is not None:
        return Drift(part, name, Change.ADDED, NOT_LOCKED, new.value, new.seen_in)
    if new is None and old is not None:
        return Drift(part, name, Change.GONE, old.value, NOT_HERE, "")
    assert old is not None, (part, name)
    assert new is not None, (part, name)
    if old.value != new.value:
        return Drift(part, name, Change.CHANGED, old.value, new.value, new.seen_in)
    if old.digest and new.digest and old.digest != new.digest:
        return Drift(part, name, Change.CONTENT, f"{old.value} {old.digest}", f"{new.value} {new.digest}", new.seen_in)
    return None


def _unseen(part: Part, old: Held | None, new: Held | None, here: Stack) -> bool:
    """Whether a fact is missing because nobody could look: that is no drift, and is told as not compared."""
    if part is Part.FILES or (part is Part.CHECKOUTS and new is None):
        return bool(here.out_of_reach) and (old is None or new is None)
    parts = {each.part for each in here.held}
    return part in (Part.PACKAGES, Part.LIBRARIES, Part.STARTUP, Part.PYTHON) and bool(here.out_of_reach) and (
        part not in parts or (part is Part.STARTUP and old is not None and new is None)
    )  # fmt: skip


def _grouped(found: tuple[Drift, ...]) -> Iterator[Group]:
    """Drifts with what follows from them: a fact that changes because another did is not named beside it."""
    causes = {each: cause for each in found if (cause := _cause(each, found)) is not None}
    for each in found:
        if each not in causes:
            yield Group(each, tuple(other for other, cause in causes.items() if _root(cause, causes) == each))


def _root(drift: Drift, causes: dict[Drift, Drift]) -> Drift:
    while drift in causes:
        drift = causes[drift]
    return drift


def _cause(drift: Drift, found: tuple[Drift, ...]) -> Drift | None:
    """The drift that brings this one about, None where it stands alone."""

    def named(part: Part, *names: str) -> Drift | None:
        return next((each for each in found if each.part is part and each.name in names and each != drift), None)

    match drift.part:
        case Part.LIBRARIES:
            for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
                setting = named(Part.SETTINGS, name)
                if setting is not None and (_is_in(drift.here, setting.here) or _is_in(drift.locked, setting.locked)):
                    return setting
            return _moved_away(drift, found) or named(Part.IMPORTS, "torch") or named(Part.PACKAGES, "torch")
        case Part.PACKAGES if drift.name == "torch":
            return named(Part.IMPORTS, "torch")
        case Part.COMPILER if drift.name != "gcc":
            other = named(Part.COMPILER, "gcc") or (named(Part.COMPILER, "CC") if drift.name != "CC" else None)
            return other if other is not None and other.here == drift.here else None
        case Part.TOOLKIT if drift.name == "extensions":
            nvcc = named(Part.TOOLKIT, "nvcc")
            same = nvcc if nvcc is not None and nvcc.here == drift.here else None
            return same or named(Part.SETTINGS, "CUDA_HOME", "CUDA_PATH")
        case Part.GPU if drift.name == "count":
            return named(Part.SETTINGS, "CUDA_VISIBLE_DEVICES")
    return None


def _moved_away(drift: Drift, found: tuple[Drift, ...]) -> Drift | None:
    """The compat folder or NVIDIA's wheel that a library came from, where that has drifted."""
    for each in found:
        if each.part is Part.COMPAT and (_is_in(drift.locked, each.name) or _is_in(drift.here, each.name)):
            return each
    wheels = [each for each in found if each.part is Part.PACKAGES and each.name.startswith("nvidia-")]
    of_wheels = [each for each in (drift.locked, drift.here) if "/nvidia/" in each]
    if not wheels or not of_wheels:
        return None
    stem = drift.name.removeprefix("lib").partition(".so")[0].lower()
    named = [each for each in wheels if any(word in stem for word in each.name.split("-")[1:] if len(word) > 3)]
    return named[0] if named else wheels[0] if len(wheels) == 1 else None


def _is_in(path: str, folders: str) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in folders.split(":") if each)

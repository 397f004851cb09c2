"""A merge conflict in a lock: two people locked, and version control left both in the file. Named with both sides."""

from __future__ import annotations

import re

_OURS = re.compile(r"<{7}(?: (.*))?")
_BASE = re.compile(r"\|{7}(?: .*)?")
_MIDDLE = re.compile(r"={7}")
_THEIRS = re.compile(r">{7}(?: (.*))?")
_MOST = 60


def conflict_in(text: str) -> str:
    """One sentence about the first conflict in a text, with what each side has; "" where there is none."""
    ours: list[str] = []
    theirs: list[str] = []
    side: list[str] | None = None
    start, names = 0, ["one side", "the other"]
    for number, line in enumerate(text.splitlines(), 1):
        if match := _OURS.fullmatch(line):
            start, ours, theirs = number, [], []
            side, names[0] = ours, match[1] or "one side"
        elif start and _BASE.fullmatch(line):
            side = None
        elif start and _MIDDLE.fullmatch(line):
            side = theirs
        elif start and (match := _THEIRS.fullmatch(line)):
            names[1] = match[1] or "the other"
            return _sentence(start, names, ours, theirs)
        elif side is not None:
            side.append(line)
    return _sentence(start, names, ours, theirs) if start else ""


def _sentence(start: int, names: list[str], ours: list[str], theirs: list[str]) -> str:
    first, second = _told(ours, theirs), _told(theirs, ours)
    return (
        f"merge conflict in line {start}: {_short(names[0])} has {first}; {_short(names[1])} has {second}. "
        "Take the lock of one side (git checkout --ours FILE, or --theirs), then lock the other class again on its "
        "machine: firstlight lock"
    )


def _told(lines: list[str], others: list[str]) -> str:
    """The first facts that only this side has; the digest follows from the others and says nothing."""
    own = [line.strip() for line in lines if line.strip() and line not in others]
    telling = [line for line in own if not line.startswith("digest = ")] or own
    more = f" and {len(telling) - 1} more" if len(telling) > 1 else ""
    return f"{_short(telling[0])}{more}" if telling else "nothing there"


def _short(text: str) -> str:
    plain = text if text.isprintable() else ascii(text)
    return plain if len(plain) <= _MOST else f"{plain[: _MOST - 3]}..."

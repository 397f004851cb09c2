"""A lock as text: TOML, sorted, one fact a line, so that a diff can be reviewed. Other classes keep their bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

from firstlight.lock.stack import Held, Lock, LockedClass, Part

SCHEMA = "firstlight.lock/1"
HEAD = (
    "# Written by `firstlight lock`; `firstlight check` holds a machine against it.\n"
    "# Lock again instead of editing a value: each class has a digest of its own facts.\n"
    f'schema = "{SCHEMA}"\n'
)
FINDINGS = "findings"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BEGIN = re.compile(r"(?m)^\[\[class\]\][ \t]*(?:#.*)?$")


def class_text(locked: LockedClass) -> str:
    """One [[class]] with its tables, without a blank line at its end."""
    lines = [
        "[[class]]",
        f"name = {_text(locked.name)}",
        f"capability = {_text(locked.kind.capability)}",
        f"processor = {_text(locked.kind.processor)}",
        f"driver_branch_floor = {locked.kind.branch}",
        f"goal = {_text(locked.goal.value)}",
        f"verified = {'true' if locked.verified else 'false'}",
    ]
    lines += [f"verify = {_text(locked.verify)}"] if locked.verify else []
    lines += [f"bench = {_text(locked.bench)}"] if locked.bench else []
    lines.append(f"digest = {_text(digest_of(locked))}")
    for part in Part:
        rows = [each for each in locked.held if each.part is part]
        if rows:
            lines += ["", f"[class.{part.value}]", *(f"{_key(each.name)} = {_text(value_of(each))}" for each in rows)]
    if locked.findings:
        lines += ["", f"[class.{FINDINGS}]"]
        lines += [f"{_key(each.code)} = {_text(' '.join((each.severity, *each.saw)))}" for each in locked.findings]
    return "".join(f"{line}\n" for line in lines)


def value_of(held: Held) -> str:
    """A fact's value as the file has it: '2.11.0+cu130 sha256:9f2c...'."""
    return f"{held.value} {held.digest}".strip()


def digest_of(locked: LockedClass) -> str:
    """The SHA-256 over what the class says, by which an edited or torn class is known."""
    rows = [
        [locked.name, locked.kind.capability, locked.kind.processor, locked.kind.branch, locked.goal.value],
        [locked.verified, locked.verify, locked.bench],
        [[each.part.value, each.name, value_of(each)] for each in locked.held],
        [[each.code, each.severity, *each.saw] for each in locked.findings],
    ]
    return f"sha256:{hashlib.sha256(json.dumps(rows, separators=(',', ':')).encode()).hexdigest()}"


def with_class(before: Lock | None, locked: LockedClass) -> str:
    """The whole text with this class in it; every other class keeps its bytes."""
    if before is None:
        return f"{HEAD}\n{class_text(locked)}"
    head, blocks = _split(before)
    ours = class_text(locked)
    names = [each.name for each in before.classes]
    if locked.name in names:
        place = names.index(locked.name)
        is_last = place == len(blocks) - 1
        blocks[place] = ours if is_last else f"{ours}\n"
    else:
        place = sum(name < locked.name for name in names)
        if place == len(blocks):
            blocks = [*blocks[:-1], *(_spaced(each) for each in blocks[-1:]), ours]
        else:
            blocks.insert(place, f"{ours}\n")
    return head + "".join(blocks)


def _split(lock: Lock) -> tuple[str, list[str]]:
    starts = [match.start() for match in _BEGIN.finditer(lock.text)]
    assert len(starts) == len(lock.classes), (starts, len(lock.classes))  # no text of ours spans lines
    ends = [*starts[1:], len(lock.text)]
    head = lock.text[: starts[0]] if starts else _spaced(lock.text)
    return head, [lock.text[start:end] for start, end in zip(starts, ends, strict=True)]


def _spaced(text: str) -> str:
    return text if text.endswith("\n\n") else f"{text}\n" if text.endswith("\n") else f"{text}\n\n"


def counts(locked: LockedClass) -> Iterator[tuple[Part, int]]:
    """How many facts of each part, for a screen."""
    for part in Part:
        if number := sum(each.part is part for each in locked.held):
            yield part, number


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """A basic string of TOML: JSON's escapes are among TOML's, all but DEL's, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""What `read` and `mapfile` put into variables: the words or lines of what they are given on stdin."""

from __future__ import annotations

import re

from firstlight.guard.call import HOLE, SEP, Call
from firstlight.guard.expand import split

_VALUED = {"-d", "-n", "-N", "-p", "-t", "-u", "-i", "-s", "-O", "-c", "-C"}
_MOST_LINES = 4  # each with its own words; beyond, every variable has the whole text


def read_into(call: Call, name: str, separators: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each variable with its values: [('a', ('pip',)), ('b', ('install',))] for read a b <<< 'pip install'."""
    names, is_array = _names(call.words[1:], name)
    if call.stdin is None or HOLE in call.stdin:
        return [(each, (HOLE,)) for each in names]
    own = tuple(value for variable, value in call.sets if variable == "IFS") or separators
    lines = [line for line in call.stdin.strip("\n").split("\n") if line.strip()]
    if name != "read":
        return [(each, (SEP.join(lines),)) for each in names]
    if is_array:
        return [(each, tuple(split(call.stdin.strip(), own))) for each in names]
    if len(names) == 1 or len(lines) > _MOST_LINES:
        return [(each, (call.stdin.strip(),)) for each in names]
    rows = [_fields(line, way, len(names)) for line in lines for way in split(line.strip(), own)]
    return [(each, tuple(dict.fromkeys(row[at] for row in rows))) for at, each in enumerate(names)]


def _fields(line: str, marked: str, count: int) -> list[str]:
    """One line as so many words; the last has all that is left."""
    words = [word for word in marked.split(SEP) if word]
    if len(words) <= count:
        return [*words, *([""] * (count - len(words)))]
    rest = words[count - 1 :]
    at = re.search(r".*?".join(map(re.escape, rest)) + r"\s*$", line, re.S)
    return [*words[: count - 1], at[0].strip() if at else " ".join(rest)]


def _names(words: tuple[str, ...], name: str) -> tuple[list[str], bool]:
    """The variables, and whether they are arrays; read alone fills REPLY, mapfile MAPFILE."""
    found, is_array, skip = [], False, False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            is_array = is_array or "a" in word[1:]
            skip = word in _VALUED and not (name == "read" and word == "-s")
        elif word.isidentifier():
            found.append(word)
    return found or ["REPLY" if name == "read" else "MAPFILE"], is_array

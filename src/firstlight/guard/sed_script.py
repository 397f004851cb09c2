"""A script of sed to what it runs and what it writes: the commands e and w, and these flags of s."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from firstlight.frozen import dataclass

_PATTERN = r"/(?:[^/\\\n]|\\.)*/[IM]*"
_ADDRESS = re.compile(rf"[\s;{{}}]*(?:(?:\d+(?:~\d+)?|\$|{_PATTERN})(?:\s*,\s*(?:[+~]?\d+|\$|{_PATTERN}))?)?\s*!?\s*")
_FLAGS = re.compile(r"[gpiImMe\d]*")
_TO_THE_END_OF_THE_LINE = "aicrRl:#v"
_TO_A_SEMICOLON = "btTqQ"
_ALONE = "dDgGhHnNpPxzF="


class Does(enum.Enum):
    """What a command of sed does beyond its stream."""

    RUN = "run"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class SedCommand:
    """A command that runs its text ('' where that is what sed has read), or writes to a file."""

    does: Does
    text: str


def commands_of(script: str) -> Iterator[SedCommand]:
    """What a script runs and writes, as far as it can be read; it ends at what is no command."""
    at = 0
    while at < len(script):
        found = _ADDRESS.match(script, at)
        at = found.end() if found else at
        letter = script[at : at + 1]
        at += 1
        end = script.find("\n", at) if "\n" in script[at:] else len(script)
        if letter in ("{", "}", ";"):
            continue
        if letter in ("s", "y"):
            second = _after(script, _after(script, at + 1, script[at : at + 1]), script[at : at + 1])
            flags = _FLAGS.match(script, second)
            at = flags.end() if flags else second
            if letter == "s" and flags and "e" in flags[0]:
                yield SedCommand(Does.RUN, "")
            if letter == "s" and script[at : at + 1] == "w":
                yield SedCommand(Does.WRITE, script[at + 1 : end].strip())
                at = end
        elif letter == "e":
            yield SedCommand(Does.RUN, script[at:end].strip())
            at = end
        elif letter in ("w", "W"):
            yield SedCommand(Does.WRITE, script[at:end].strip())
            at = end
        elif letter and letter in _TO_THE_END_OF_THE_LINE:
            at = end
        elif letter and letter in _TO_A_SEMICOLON:
            at = min((place for place in (script.find(";", at), end) if place >= 0), default=end)
        elif not letter or letter not in _ALONE:
            return


def _after(script: str, at: int, mark: str) -> int:
    """The place behind the next mark that no backslash keeps."""
    while at < len(script):
        if script[at] == "\\":
            at += 2
            continue
        if script[at] == mark:
            return at + 1
        at += 1
    return at

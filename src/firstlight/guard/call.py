"""What shell text comes down to: calls of programs with their words, and what could not be read."""

from __future__ import annotations

from firstlight.frozen import dataclass

HOLE = "\ufffc"  # stands in a word for what only the running shell knows
SEP = "\x1f"  # stands between words that an unquoted expansion splits into
SOMEWHERE = "/dev/null/somewhere"  # a folder that only the running shell knows; nothing of ours can lie there


class Unreadable(Exception):
    """Text that cannot be read as shell text within the limits; says why. Always ends in a deny."""


@dataclass(frozen=True, slots=True)
class Call:
    """One program that would run, e.g. words ('pip', 'install', 'triton') reached through ('sh -c', 'env')."""

    words: tuple[str, ...]
    sets: tuple[tuple[str, str], ...] = ()  # NAME=value in front of it, or by export
    writes: tuple[str, ...] = ()  # what its output is redirected to
    cwds: tuple[str, ...] = ()  # folders it may run in
    trail: tuple[str, ...] = ()
    stdin: str | None = None  # None: nothing is piped in; HOLE: something that cannot be seen
    contained: bool = False  # reached through docker run and the like


@dataclass(frozen=True, slots=True)
class Opaque:
    """Text that would run and cannot be seen, e.g. what curl downloads; `what` is how it is run."""

    what: str
    trail: tuple[str, ...] = ()
    contained: bool = False


def known(word: str) -> bool:
    """Whether a word is wholly known."""
    return HOLE not in word


def fields(text: str) -> tuple[str, ...]:
    """The words that a text splits into where it is not quoted: ('a', 'b') for 'a  b'."""
    return tuple(word for word in text.replace("\n", " ").replace("\t", " ").split(" ") if word)

"""Which commands of a script are carried out: the branches of `if`, as far as their tests are settled by the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from firstlight.lint.shell import Simple, whole_number


class _If:
    """One `if` while its script is walked: what the branch at hand comes to, and whether one before was taken."""

    __slots__ = ("maybe", "taken", "testing", "truth")

    def __init__(self) -> None:
        self.truth: bool | None = None  # of the branch at hand; None: the text does not tell
        self.taken = False  # a branch before was surely taken
        self.maybe = False  # a branch before may have been taken
        self.testing = True

    def opens(self, word: str) -> None:
        """`then` begins the branch of the last test, `elif` and `else` leave it."""
        if word == "then":
            self.testing = False
            return
        self.taken = self.taken or self.truth is True
        self.maybe = self.maybe or self.truth is None
        self.testing = word == "elif"
        self.truth = None if self.maybe else True

    @property
    def left_out(self) -> bool:
        return not self.testing and (self.taken or self.truth is False)


Expand = Callable[[Simple, dict[str, str]], Simple]


def carried_out(commands: Iterable[Simple], known: dict[str, str], *, expand: Expand) -> Iterator[Simple]:
    """The commands with what is known put in, less those in branches that the text rules out: `[ cpu = cuda ]`.

    A variable that one of them sets is known to those after it, where it is surely set.
    """
    opened: list[_If] = []
    own: dict[str, str] = {}
    skips = ""
    for written in commands:
        for word in written.around:
            if word == "if":
                opened.append(_If())
            elif word in ("then", "elif", "else") and opened:
                opened[-1].opens(word)
            elif word == "fi" and opened:
                opened.pop()
        if any(each.left_out for each in opened):
            skips = ""
            continue
        if skips:
            skips = written.ends if written.ends == skips else ""
            continue
        command = expand(written, {**known, **own})
        truth = test_of(command.words)
        if opened and opened[-1].testing:
            opened[-1].truth = None if command.ends in ("&&", "||") else truth
        elif (truth is False and command.ends == "&&") or (truth is True and command.ends == "||"):
            skips = command.ends
        if not command.words:
            sure = command.ends != "||" and all(each.truth is True for each in opened)
            own.update((name, value if sure and "$" not in value else f"${name}") for name, value in command.assigned)
        yield command


_COMPARED = {"=": True, "==": True, "!=": False, "-eq": True, "-ne": False}


def test_of(words: tuple[str, ...]) -> bool | None:
    """What `[ cpu = cuda ]` comes to; None where a word is not known, or where it is no such test."""
    if not words or words[0] not in ("[", "[[", "test"):
        return None
    inside = words[1:-1] if words[0] != "test" and words[-1] in ("]", "]]") else words[1:]
    if any(re.search(r"[$`*?]", word) for word in inside):
        return None
    if len(inside) == 2 and inside[0] in ("-n", "-z"):
        return bool(inside[1]) is (inside[0] == "-n")
    if len(inside) == 3 and inside[1] in _COMPARED:
        left, operator, right = inside
        if operator.startswith("-"):
            numbers = whole_number(left), whole_number(right)
            return None if None in numbers else (numbers[0] == numbers[1]) is _COMPARED[operator]
        return (left == right) is _COMPARED[operator]
    return None

"""Parses text in the CMake language into its commands; nothing of it is executed.

parse_cmake('option(USE_CUDA "Use CUDA" ON)', "CMakeLists.txt")
Commands((Command("option", (Argument("USE_CUDA"), Argument("Use CUDA", QUOTED), Argument("ON")), line 1),), "")
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from firstlight.frozen import dataclass

_SPACE = re.compile(r"[ \t\r\n]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACKET = re.compile(r"\[(=*)\[")
_LINE_COMMENT = re.compile(r"#[^\n]*")
_FILLED_IN = re.compile(r"@[A-Za-z_]\w*@")  # of a template: configure_file() puts text there, e.g. @PACKAGE_INIT@
_UNQUOTED = re.compile(r"(?:[^\s()#\"\\]|\\.|(?<=[^\s()#])\"[^\"\n]*\")+", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", ";": "\\;"}


class Quoting(enum.Enum):
    """How an argument was written."""

    PLAIN = "plain"
    QUOTED = "quoted"
    BRACKET = "bracket"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as written, escapes resolved and references such as ${X} left alone."""

    text: str
    quoting: Quoting = Quoting.PLAIN


@dataclass(frozen=True, slots=True)
class Command:
    """One call, e.g. option(USE_CUDA "Use CUDA" ON) at line 182; the name in small letters."""

    name: str
    arguments: tuple[Argument, ...]
    line: int

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.arguments)


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of a file; `stopped` says where it could not be read further, "" where all of it was."""

    commands: tuple[Command, ...]
    stopped: str


class _Stopped(Exception):
    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at, self.why = at, why


def parse_cmake(text: str, name: str) -> Commands:
    """Every command of a file in order; what comes behind a fault of its syntax is not read, and that is said."""
    reader = _Reader(text)
    found: list[Command] = []
    try:
        reader.read_into(found)
    except _Stopped as stop:
        line = text.count("\n", 0, stop.at) + 1
        return Commands(tuple(found), f"{name}:{line}: {stop.why}")
    return Commands(tuple(found), "")


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._line, self._counted = 1, 0

    def read_into(self, found: list[Command]) -> None:
        """Add every command; those before a fault are kept."""
        while self._skip():
            if match := _FILLED_IN.match(self.text, self.at):
                self.at = match.end()
                continue
            match = _NAME.match(self.text, self.at)
            if match is None:
                raise _Stopped(self.at, f"a command is expected, not {self.text[self.at]!a}")
            line, self.at = self._line_of(match.start()), match.end()
            self._skip()
            if self.text[self.at : self.at + 1] != "(":
                raise _Stopped(self.at, f"{match[0]} is not followed by a bracket")
            self.at += 1
            found.append(Command(match[0].lower(), tuple(self._arguments()), line))

    def _line_of(self, place: int) -> int:
        self._line += self.text.count("\n", self._counted, place)
        self._counted = place
        return self._line

    def _skip(self) -> bool:
        """Go behind blanks and comments; whether anything is left."""
        while self.at < len(self.text):
            if match := _SPACE.match(self.text, self.at):
                self.at = match.end()
            elif self.text[self.at] == "#":
                bracket = _BRACKET.match(self.text, self.at + 1)
                self.at = self._behind(bracket)[1] if bracket else self._end_of_line()
            else:
                return True
        return False

    def _end_of_line(self) -> int:
        match = _LINE_COMMENT.match(self.text, self.at)
        assert match is not None, self.at
        return match.end()

    def _behind(self, opened: re.Match[str]) -> tuple[str, int]:
        """The text of a bracket argument and the place behind it."""
        closing = f"]{opened[1]}]"
        end = self.text.find(closing, opened.end())
        if end < 0:
            raise _Stopped(opened.start(), f"{opened[0]} is not closed")
        inside = self.text[opened.end() : end]
        return inside.removeprefix("\n"), end + len(closing)

    def _arguments(self) -> Iterator[Argument]:
        opened, depth = self.at, 1
        while self._skip():
            letter = self.text[self.at]
            if letter in "()":
                depth += 1 if letter == "(" else -1
                self.at += 1
                if depth == 0:
                    return
                yield Argument(letter)
            elif letter == '"':
                yield self._quoted()
            elif match := _BRACKET.match(self.text, self.at):
                inside, self.at = self._behind(match)
                yield Argument(inside, Quoting.BRACKET)
            else:
                yield self._plain()
        raise _Stopped(opened, "a bracket is not closed")

    def _quoted(self) -> Argument:
        begun = self.at
        pieces: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self.at += 1
                return Argument("".join(pieces), Quoting.QUOTED)
            if letter == "\\":
                pieces.append(_unescaped(self.text[self.at + 1 : self.at + 2]))
                self.at += 2
            else:
                pieces.append(letter)
                self.at += 1
        raise _Stopped(begun, "a quotation mark is not closed")

    def _plain(self) -> Argument:
        match = _UNQUOTED.match(self.text, self.at)
        if match is None:
            raise _Stopped(self.at, f"{self.text[self.at]!a} cannot stand here")
        self.at = match.end()
        return Argument(re.sub(r"\\(.)", lambda found: _unescaped(found[1]), match[0], flags=re.S))


def _unescaped(letter: str) -> str:
    """What stands behind a backslash: a line's end is left out, as CMake joins the lines."""
    return "" if letter == "\n" else _ESCAPES.get(letter, letter)

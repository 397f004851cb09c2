"""LD_LIBRARY_PATH, or its like, in start-up files: the commands that set it, put together without a folder."""

from __future__ import annotations

import enum
import re
from collections import Counter

from firstlight.frozen import dataclass
from firstlight.shells.commands import Command, Shape, shape_of
from firstlight.shells.kinds import Dialect
from firstlight.shells.other_shells import csh_shape, fish_shape
from firstlight.shells.path_value import Names, Shortened, elements_of, shortened
from firstlight.shells.settings import HowSet, Setting, settings_of, tied_by
from firstlight.shells.variables import Variables
from firstlight.shells.words import NotUnderstood, ShellWords, Token, TokenKind

VARIABLE = "LD_LIBRARY_PATH"
SHAPES = {Dialect.SH: shape_of, Dialect.FISH: fish_shape, Dialect.CSH: csh_shape}
_IN_ENVIRONMENT = re.compile(r"(?P<lead>\s*(?:export\s+)?(?P<name>\w+)\s*=\s*)(?P<value>[^#\r]*?)(?P<tail>\s*(?:#.*)?)")
_NOTHING, _ANYTHING = r"(?!)", ""
_LOOP = r"\s*(?:for|foreach)\b"
# Commands that may name a folder and do not put it into a variable.
_HARMLESS = (
    "[", "test", "echo", "printf", "ls", "alias", "cd", "pushd", "source", ".", "ldconfig", "mkdir", "ln", "rm",
    "rmdir", "find", "stat", "cat", "grep", "true", "return", "exit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineLeft:
    """A line that names a folder and is left to a person, e.g. 12, 'add_path LD_LIBRARY_PATH /usr/...'."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A text without the folders, the lines that were changed as they stood, and those left to a person."""

    text: str
    lines_taken_out: tuple[str, ...]
    left: tuple[LineLeft, ...] = ()


class _Body(enum.Enum):
    """What else the body of a command that goes has."""

    HAS_MORE = "has-more"
    EMPTIED = "emptied"  # all of it goes
    NEEDS_IT = "needs-it"  # all of it goes, and this is the first: something has to stand here


@dataclass(frozen=True, slots=True)
class _Cut:
    """A span of the text and what takes its place."""

    start: int
    end: int
    instead: str = ""


def without_folders(
    text: str, folders: tuple[str, ...], *, dialect: Dialect = Dialect.SH, home: str = "", variable: str = VARIABLE
) -> Edited:
    """The text with the folders taken out of the variable; a command that then only repeats the variable goes.

    Variables that the same file sets before are followed: $CUDA_HOME/compat is recognised. What stands in a
    here-document or a comment is data. The only command of a body becomes `:`. What is not understood is left.
    """
    try:
        if dialect is Dialect.ENVIRONMENT:
            return _environment(text, folders, variable)
        return Editor(text, SHAPES[dialect](text), dialect, folders, home, variable).edited()
    except (NotUnderstood, RecursionError):  # parentheses a thousand deep
        return Edited(text, (), _lines_with(text, folders, variable))


class Editor:
    """Follows the commands of a file and collects what is cut out of it."""

    def __init__(
        self, text: str, shape: Shape, dialect: Dialect, folders: tuple[str, ...], home: str, variable: str = VARIABLE
    ) -> None:
        self.text, self.shape, self.dialect, self.folders, self.variable = text, shape, dialect, folders, variable
        self.variables = Variables(shape, {"HOME": home} if home else {})
        self.cuts: list[_Cut] = []
        self.gone: list[Command] = []
        self.left: list[Command] = []
        self.tied = ""
        self.was_set, self.unexported = False, False
        # Where the last command stands that counts on it that the variable is exported already.
        self.last_unexported = max(
            (
                command.start
                for command in shape.commands
                for setting in settings_of(command, dialect)
                if setting.name == self.variable and not setting.exports and setting.way in (HowSet.SETS, HowSet.ADDS)
            ),
            default=-1,
        )

    def edited(self) -> Edited:
        for command in self.shape.commands:
            self.tied = tied_by(command) or self.tied
            self.look_at(command)
        count = Counter(command.body for command in self.gone)
        emptied = {body for body, number in count.items() if number == self.shape.items[body]}
        first = {command.body: command.start for command in reversed(self.gone)}
        for command in self.gone:
            needed = command.body in emptied and command.start == first[command.body]
            self.cuts.append(
                self.taken_out(
                    command, _Body.NEEDS_IT if needed else _Body.EMPTIED if command.body in emptied else _Body.HAS_MORE
                )
            )
        text = _put_in(self.text, self.cuts)
        touched = {line for cut in self.cuts for line in self.lines_of(cut.start, cut.end)}
        lines = self.text.split("\n")
        return Edited(
            text,
            tuple(lines[number].rstrip("\r") for number in sorted(touched)),
            tuple(LineLeft(n + 1, lines[n].rstrip("\r")) for n in sorted(self.lines_left() - touched)),
        )

    def lines_of(self, start: int, end: int) -> range:
        """The numbers of the lines, from 0, that a span covers."""
        last = max(start, end - 1)
        return range(self.text.count("\n", 0, start), self.text.count("\n", 0, last) + 1)

    def lines_left(self) -> set[int]:
        """Lines that bring a folder into the variable in a way that is not edited here."""
        found = {n for command in self.left for n in self.lines_of(command.start, command.end)}
        if self.variable in self.text:
            found |= {line.number - 1 for line in _lines_with(self.text, self.folders, self.variable, also=_LOOP)}
        data = {n for start, end in self.shape.data for n in self.lines_of(start, end) if self.is_here_document(start)}
        return found - data

    def is_here_document(self, start: int) -> bool:
        return start == 0 or self.text[start - 1] == "\n"

    def names(self, command: Command, itself: str) -> Names:
        return Names(self.folders, itself, self.variables.at(command.body))

    def look_at(self, command: Command) -> None:
        settings = settings_of(command, self.dialect)
        for setting in settings:
            if setting.name == self.variable or (self.tied and setting.name == self.tied):
                self.shorten(command, setting, alone=len(settings) == 1)
            self.variables.note(command, setting, self.names(command, self.variable))
        if not settings and command.words and command.words[0].text not in _HARMLESS:
            names = self.names(command, self.variable)
            self.left += [command] if names.has_folder(self.text[command.start : command.end]) else []

    def shorten(self, command: Command, setting: Setting, *, alone: bool) -> None:
        """Take the folders out of one setting of the variable; see what is left of it."""
        names = self.names(command, setting.name)
        words = [word for value in setting.values for word in _words_of(value, setting)]
        short = [shortened(word.text, names) for word in words]
        left = [each for one in short for each in one.left]
        if any(names.has_folder(each) for each in left) or (self.is_glued(setting) and names.is_folder(_first(words))):
            self.left.append(command)
        elif any(one.changed for one in short):
            if self.says_nothing(command, setting, left, names):
                self.take(command, setting, alone=alone)
                return
            self.cuts += [
                cut for word, one in zip(words, short, strict=True) for cut in self.replaced(word, one, words)
            ]
        if setting.name == self.variable:
            self.was_set = self.was_set or setting.way is not HowSet.NAMES
            self.unexported = not setting.exports and (setting.way is HowSet.SETS or self.unexported)

    def is_glued(self, setting: Setting) -> bool:
        """Whether its value follows what was there without a colon, as with += in sh."""
        return setting.way is HowSet.ADDS and not setting.array and self.dialect is Dialect.SH

    def says_nothing(self, command: Command, setting: Setting, left: list[str], names: Names) -> bool:
        """Whether the variable stays the same without this setting of it."""
        if setting.exports and (self.unexported or command.start < self.last_unexported):
            return False
        if not left:
            return setting.way is HowSet.ADDS or not (self.was_set or setting.array)
        return len(left) == 1 and names.is_itself(left[0])

    def replaced(self, word: Token, short: Shortened, words: list[Token]) -> list[_Cut]:
        """The word's new text; one of several words that has nothing left goes with the blank before it."""
        if not short.changed:
            return []
        if short.text.strip("\"'") or len(words) == 1:
            return [_Cut(word.start, word.end, short.text)]
        start = word.start
        while self.text[start - 1] in " \t":
            start -= 1
        return [_Cut(start, word.end)]

    def take(self, command: Command, setting: Setting, *, alone: bool) -> None:
        if alone:
            self.gone.append(command)
            return
        start = setting.start
        while start > 0 and self.text[start - 1] in " \t":
            start -= 1
        self.cuts.append(_Cut(start, setting.end) if start > command.start else self.first_of(setting))

    def first_of(self, setting: Setting) -> _Cut:
        end = setting.end
        while end < len(self.text) and self.text[end] in " \t":
            end += 1
        return _Cut(setting.start, end)

    def taken_out(self, command: Command, rest: _Body) -> _Cut:
        """The whole line where the command has it alone; `:` where something must stand; else up to the next one."""
        begin = self.text.rfind("\n", 0, command.start) + 1
        end = self.text.find("\n", command.end)
        end = len(self.text) if end < 0 else end + 1
        joined = command.before in ("", "\n", ";") and command.after in ("", "\n", ";")
        alone = not self.text[begin : command.start].strip(" \t") and re.fullmatch(
            r"[ \t]*;?[ \t\r]*(?:#[^\n]*)?\n?", self.text[command.end : end]
        )
        if joined and alone and (rest is not _Body.NEEDS_IT or command.body == 0):
            return _Cut(begin, end)
        if joined and rest is _Body.HAS_MORE and command.after == ";":
            follows = command.after_end
            while self.text[follows : follows + 1] in (" ", "\t"):
                follows += 1
            return _Cut(command.start, follows)
        if joined and rest is _Body.HAS_MORE and command.before == ";":
            return _Cut(command.before_at, command.end)
        return _Cut(command.start, command.end, ":")


def _put_in(text: str, cuts: list[_Cut]) -> str:
    """The text with the spans replaced; spans that overlap are one."""
    parts, at = [], 0
    for cut in sorted(cuts, key=lambda cut: (cut.start, cut.end)):
        parts += [text[at : max(at, cut.start)], cut.instead]
        at = max(at, cut.end)
    return "".join((*parts, text[at:]))


def _first(words: list[Token]) -> str:
    return elements_of(words[0].text)[0].text if words else ""


def _words_of(value: Token, setting: Setting) -> list[Token]:
    """The words of a value: one, or those between the parentheses of an array."""
    if not setting.array:
        return [value]
    words, found = ShellWords(value.text[1:-1]), []
    while (token := words.take()).kind is not TokenKind.END:
        if token.kind is TokenKind.WORD:
            found.append(Token(token.kind, value.start + 1 + token.start, value.start + 1 + token.end, token.text))
    return found


def _lines_with(text: str, folders: tuple[str, ...], variable: str, *, also: str = _NOTHING) -> tuple[LineLeft, ...]:
    """Lines of a file that name a folder beside the variable, or begin as `also` says; comments are none."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        named = any(re.search(rf"{re.escape(folder)}/?(?![\w./-])", line) for folder in folders)
        if named and (variable in line or re.match(also, line)) and not line.lstrip().startswith("#"):
            found.append(LineLeft(number, line.rstrip("\r")))
    return tuple(found)


def lines_naming(text: str, folders: tuple[str, ...]) -> tuple[LineLeft, ...]:
    """Every line that names a folder, comments apart: where a person looks who finds no line that sets it."""
    return _lines_with(text, folders, VARIABLE, also=_ANYTHING)


def _environment(text: str, folders: tuple[str, ...], variable: str) -> Edited:
    """NAME=value lines that no shell reads: a $ in them leads nowhere."""
    names, kept, taken, left = Names(folders, variable, {}), [], [], []
    for number, line in enumerate(text.split("\n"), 1):
        match = _IN_ENVIRONMENT.fullmatch(line)
        short = shortened(match["value"], names) if match and match["name"] == variable else None
        if match is None or short is None or not short.changed:
            left += [LineLeft(number, line.rstrip("\r"))] if _lines_with(line, folders, variable) else []
            kept.append(line)
            continue
        taken.append(line.rstrip("\r"))
        if short.left:
            kept.append(f"{match['lead']}{short.text}{match['tail']}")
        elif number == text.count("\n") + 1 and kept:
            kept.append("")
    return Edited("\n".join(kept), tuple(taken), tuple(left))

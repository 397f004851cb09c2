"""What a command of a shell file sets: `export A=1 B=2` sets two variables, `A=1 program` sets none for the shell."""

from __future__ import annotations

import enum
import re

from firstlight.frozen import dataclass
from firstlight.shells.commands import Command
from firstlight.shells.kinds import Dialect
from firstlight.shells.words import Token, TokenKind

_DECLARES = ("export", "declare", "typeset", "local", "readonly", "integer", "float")
_FISH_LETTERS = {
    "--append": "a", "--prepend": "p", "--export": "x", "--erase": "e", "--query": "q", "--show": "S", "--names": "n",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<operator>\+?=)(?P<value>.*)", re.DOTALL)


class HowSet(enum.Enum):
    """How a variable is set."""

    SETS = "sets"
    ADDS = "adds"  # to what it was: +=, set --append
    LOSES = "loses"  # unset, read: what it is then is not known
    NAMES = "names"  # export NAME: its value stays


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable that a command sets: the spans of its values, and the span of all that is about it."""

    name: str
    way: HowSet
    exports: bool
    values: tuple[Token, ...]
    start: int  # of what can be taken out where the command sets something else too
    end: int
    array: bool = False  # NAME=(a b), of a zsh array tied to the variable


def settings_of(command: Command, dialect: Dialect) -> tuple[Setting, ...]:
    """What a command sets; () where it sets nothing for the shell itself."""
    words = command.words
    if words and words[0].text in ("builtin", "command"):
        words = words[1:]
    if not words:
        return ()
    name = words[0].text
    if dialect is Dialect.CSH:
        return _csh(words)
    if dialect is Dialect.FISH and name == "set":
        return _fish(words)
    if name in ("unset", "read", "getopts") or (name == "set" and dialect is Dialect.FISH):
        return tuple(_lost(word) for word in words[1:] if not word.text.startswith("-"))
    if name in _DECLARES:
        return _declared(words)
    if dialect is Dialect.SH and all(_ASSIGNMENT.fullmatch(word.text) for word in words):
        return tuple(_assigned(word, exports=False) for word in words)
    return ()


def tied_by(command: Command) -> str:
    """The array that zsh's `typeset -T LD_LIBRARY_PATH ld_library_path` ties to the variable; "" where none is."""
    words = [word.text for word in command.words]
    if words[:1] and words[0] in _DECLARES:
        options = [word for word in words[1:] if word[:1] in ("-", "+")]
        names = [word for word in words[1:] if word[:1] not in ("-", "+")]
        if any(option.startswith("-") and "T" in option for option in options) and len(names) >= 2:
            return names[1].partition("=")[0] if names[0].partition("=")[0] == "LD_LIBRARY_PATH" else ""
    return ""


def _lost(word: Token) -> Setting:
    """A variable whose value is not known from here on; fish can take one element out: set -e PATH[1]."""
    name = word.text.partition("[")[0]
    return Setting(name, HowSet.LOSES, exports=False, values=(), start=word.start, end=word.end)


def _assigned(word: Token, *, exports: bool) -> Setting:
    match = _ASSIGNMENT.fullmatch(word.text)
    assert match is not None, word
    way = HowSet.ADDS if match["operator"] == "+=" else HowSet.SETS
    start = word.start + match.start("value")
    value = Token(TokenKind.WORD, start, word.end, match["value"])
    array = match["value"].startswith("(")
    return Setting(match["name"], way, exports, (value,), word.start, word.end, array)


def _declared(words: tuple[Token, ...]) -> tuple[Setting, ...]:
    options = "".join(word.text for word in words[1:] if word.text[:1] == "-")
    if words[0].text == "export" and "n" in options:
        return ()
    exports = words[0].text == "export" or "x" in options
    found = []
    for word in words[1:]:
        if word.text[:1] in ("-", "+"):
            continue
        if _ASSIGNMENT.fullmatch(word.text):
            found.append(_assigned(word, exports=exports))
        else:
            found.append(Setting(word.text, HowSet.NAMES, exports, (), word.start, word.end))
    return tuple(found)


def _fish(words: tuple[Token, ...]) -> tuple[Setting, ...]:
    letters, rest = "", list(words[1:])
    while rest and rest[0].text.startswith("-"):
        option = rest.pop(0).text
        letters += _FISH_LETTERS.get(option, "") if option.startswith("--") else option[1:]
    if not rest or set(letters) & set("qSn"):
        return ()
    name, values = rest[0].text, tuple(rest[1:])
    if "e" in letters or "[" in name:
        return (_lost(rest[0]),)
    way = HowSet.ADDS if set(letters) & set("ap") else HowSet.SETS
    return (Setting(name, way, "x" in letters, values, words[0].start, rest[-1].end),)


def _csh(words: tuple[Token, ...]) -> tuple[Setting, ...]:
    name, texts = words[0].text, [word.text for word in words]
    if name == "setenv" and len(words) == 3:
        return (
            Setting(texts[1], HowSet.SETS, exports=True, values=(words[2],), start=words[0].start, end=words[2].end),
        )
    if name == "set" and len(words) == 4 and texts[2] == "=":
        return (
            Setting(texts[1], HowSet.SETS, exports=False, values=(words[3],), start=words[0].start, end=words[3].end),
        )
    if name == "set" and len(words) == 2 and _ASSIGNMENT.fullmatch(texts[1]):
        return (_assigned(words[1], exports=False),)
    if name in ("unset", "unsetenv"):
        return tuple(_lost(word) for word in words[1:])
    return ()

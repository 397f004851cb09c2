"""The commands of a RUN: words of simple commands with their lines, as far as they can be read without running them."""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterator

from firstlight.frozen import dataclass
from firstlight.lint.dockerfile import Text

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")", "\n")
_REDIRECTION = re.compile(r"\d*(?:>>|>\||>|<)&?")
# Words that stand before a command and leave it what it is.
_AROUND = ("if", "then", "elif", "else", "while", "until", "do", "time", "!", "{", "exec", "command", "env", "sudo",
           "nice", "set", "fi", "done", "esac", "}")  # fmt: skip

_BRANCHES = ("if", "then", "elif", "else", "fi")


def whole_number(text: str) -> int | None:
    """8 of ' 8'; None of what is no number of at most nine plain digits: int() refuses '²', and thousands of digits."""
    return int(text) if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else None


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command: ('pip', 'install', 'torch'), its line, what is assigned before it, where it writes to."""

    words: tuple[str, ...]
    line: int
    assigned: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()  # targets of > and >>
    ends: str = ""  # the operator behind it: '||' where its failure is caught
    stdin: str = ""  # the text of a heredoc
    around: tuple[str, ...] = ()  # the words of the shell's own since the command before: ('fi', 'if')

    @property
    def program(self) -> str:
        """The last part of the first word: pip for /opt/venv/bin/pip."""
        return self.words[0].rpartition("/")[2] if self.words else ""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    kind: str  # word, operator, redirection


def simple_commands(parts: tuple[Text, ...]) -> tuple[Simple, ...]:
    """The simple commands of a script in order; quotes are taken off, variables stay as written."""
    found: list[Simple] = []
    words: list[_Token] = []
    assigned: list[tuple[str, str]] = []
    writes: list[str] = []
    around: list[str] = []
    tokens = [*_tokens(parts), _Token(";", 0, "operator")]
    takes_target = False
    for token in tokens:
        if token.kind == "operator":
            if words or assigned:
                line = words[0].line if words else token.line
                spoken = tuple(each.text for each in words)
                found.append(Simple(spoken, line, tuple(assigned), tuple(writes), token.text, around=tuple(around)))
                around = []
            words, assigned, writes, takes_target = [], [], [], False
        elif token.kind == "redirection":
            takes_target = True
        elif takes_target:
            writes.append(token.text)
            takes_target = False
        elif not words and (match := _ASSIGNMENT.fullmatch(token.text)) is not None:
            assigned.append((match.group(1), match.group(2)))
        elif not words and (token.text in _AROUND or token.text.startswith("-")):
            around += [token.text] if token.text in _BRANCHES else []  # the others leave it: sudo -E pip install
        else:
            words.append(token)
    return tuple(found)


def _tokens(parts: tuple[Text, ...]) -> Iterator[_Token]:
    text = "".join(part.text for part in parts)
    starts = _starts(parts)
    index, word, line, began = 0, "", 0, False
    while index < len(text):
        char = text[index]
        if not began:
            line = _line(starts, index)
        operator = next((each for each in _OPERATORS if text.startswith(each, index)), "")
        redirection = None if word and not word.isdigit() else _REDIRECTION.match(text, index - len(word))
        if char == "\\" and index + 1 < len(text):
            word, began, index = word + ("" if text[index + 1] == "\n" else text[index + 1]), True, index + 2
        elif char in "\"'":
            inner, index = _quoted(text, index)
            word, began = word + inner, True
        elif char == "$" and text.startswith("$(", index):
            inner, index = _substitution(text, index)
            word, began = word + inner, True
        elif char == "#" and not began:
            end = text.find("\n", index)
            index = len(text) if end < 0 else end
        elif char in "<>" or (redirection is not None and redirection.start() < index and char in "<>"):
            if began and not word.isdigit():
                yield _Token(word, line, "word")
            match = _REDIRECTION.match(text, index)
            assert match is not None, text[index:]
            yield _Token(match.group(), line, "redirection")
            word, began, index = "", False, match.end()
        elif operator:
            if began:
                yield _Token(word, line, "word")
            yield _Token(operator, line, "operator")
            word, began, index = "", False, index + len(operator)
        elif char.isspace():
            if began:
                yield _Token(word, line, "word")
            word, began, index = "", False, index + 1
        else:
            word, began, index = word + char, True, index + 1
    if began:
        yield _Token(word, line, "word")


def _quoted(text: str, index: int) -> tuple[str, int]:
    """The inside of a quoted stretch and the index behind it; an open quote runs to the end."""
    quote, out = text[index], ""
    index += 1
    while index < len(text) and text[index] != quote:
        if text[index] == "\\" and quote == '"' and index + 1 < len(text):
            out += text[index + 1] if text[index + 1] in '"\\$`' else text[index : index + 2]
            index += 2
            continue
        out += text[index]
        index += 1
    return out, index + 1


def _substitution(text: str, index: int) -> tuple[str, int]:
    """A whole $( ... ) as written, so that its words do not become arguments."""
    depth, start = 0, index
    while index < len(text):
        depth += (text[index] == "(") - (text[index] == ")")
        index += 1
        if depth == 0 and text[index - 1] == ")":
            break
    return text[start:index], index


def _starts(parts: tuple[Text, ...]) -> list[tuple[int, int]]:
    """Where each physical line begins in the joined text, with its number."""
    found, position = [], 0
    for part in parts:
        found.append((position, part.line))
        position += len(part.text)
    return found


def _line(starts: list[tuple[int, int]], index: int) -> int:
    found = bisect.bisect_right(starts, (index, sys.maxsize)) - 1
    return starts[found][1] if found >= 0 else 0

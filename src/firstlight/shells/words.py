"""Text of sh, bash, ksh and zsh cut into words, operators and the bodies of here-documents, as those shells cut it."""

from __future__ import annotations

import enum
import re

from firstlight.frozen import dataclass

_OPERATORS = (
    "<<<", "<<-", "&>>", ";;&", "<<", ">>", ">&", "<&", "&>", ">|", "<>", "&&", "||", "|&", ";;", ";&", ";|",
    "<", ">", ";", "&", "|", "(", ")",
)  # fmt: skip
REDIRECTIONS = ("<<<", "<<-", "&>>", "<<", ">>", ">&", "<&", "&>", ">|", "<>", "<", ">")
_BLANK, _ENDS_A_WORD = " \t\r", " \t\r\n;&|<>()"


class NotUnderstood(Exception):
    """The text has something that ends nowhere, or that is not known here; such a file is left to a person."""


class TokenKind(enum.Enum):
    """What a token is."""

    WORD = "word"
    OPERATOR = "operator"
    NEWLINE = "newline"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token and where it stands, e.g. the word at 7 to 29."""

    kind: TokenKind
    start: int
    end: int
    text: str


class ShellWords:
    """Hands out the tokens of a text, one after the other; remembers what is data: comments and here-documents."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.data: list[tuple[int, int]] = []
        self._waiting: list[tuple[str, str]] = []  # delimiters of here-documents whose bodies come after the newline

    def take(self) -> Token:
        """The next token; blanks, comments and joined lines before it are skipped."""
        self._skip_blanks()
        start, text = self.at, self.text
        if start >= len(text):
            if self._waiting:
                raise NotUnderstood("a here-document has no text")
            return Token(TokenKind.END, start, start, "")
        if text[start] == "\n":
            self.at += 1
            self._skip_here_documents()
            return Token(TokenKind.NEWLINE, start, start + 1, "\n")
        if text[start] in "<>" and text[start + 1 : start + 2] == "(":
            self.at = after_parenthesis(text, start + 1)
            return Token(TokenKind.WORD, start, self.at, text[start : self.at])
        for operator in _OPERATORS:
            if text.startswith(operator, start):
                self.at += len(operator)
                return Token(TokenKind.OPERATOR, start, self.at, operator)
        self.at = _after_word(text, start)
        return Token(TokenKind.WORD, start, self.at, text[start : self.at])

    def peek(self) -> Token:
        """The next token, which stays the next; () < and newlines change nothing before they are taken."""
        at, waiting, data = self.at, list(self._waiting), len(self.data)
        token = self.take()
        self.at, self._waiting = at, waiting
        del self.data[data:]
        return token

    def here_document(self, operator: str, delimiter: str) -> None:
        """Remember that a body begins after this line; <<- takes tabs off before it looks for the end."""
        self._waiting.append((operator, re.sub(r"[\"'\\]", "", delimiter.removeprefix("$"))))

    def _skip_blanks(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in _BLANK:
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                end = len(text) if end < 0 else end
                self.data.append((self.at, end))
                self.at = end
            else:
                return

    def _skip_here_documents(self) -> None:
        for operator, delimiter in self._waiting:
            start = self.at
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].rstrip("\r")
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if operator == "<<-" else line) == delimiter:
                    break
            else:
                raise NotUnderstood(f"a here-document has no {delimiter}")
            self.data.append((start, self.at))
        self._waiting = []


def _after_word(text: str, start: int) -> int:
    at = start
    while at < len(text):
        character = text[at]
        if character == "(" and at > start and text[at + 1 : at + 2] != ")":
            at = after_parenthesis(text, at)  # an array, or a pattern such as *(N)
        elif character == "(" and text[start:at].endswith("="):
            at = after_parenthesis(text, at)  # an empty array
        elif character in _ENDS_A_WORD:
            break
        else:
            at = after_piece(text, at)
    return at


def after_piece(text: str, at: int, quotes: str = "'\"") -> int:
    """Where a quoted piece, an expansion or a single character that begins at `at` ends."""
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    if character == "'" and "'" in quotes:
        return _after(text, "'", at + 1)
    if character == '"':
        return _after_double_quote(text, at)
    if character == "`":
        return _after_escaped(text, "`", at + 1)
    if character == "$":
        after = text[at + 1 : at + 2]
        if after == "(":
            return after_parenthesis(text, at + 1)
        if after == "{":
            return _after_brace(text, at + 1, quotes)
        if after == "'" and "'" in quotes:
            return _after_escaped(text, "'", at + 2)
    return at + 1


def _after(text: str, mark: str, at: int) -> int:
    end = text.find(mark, at)
    if end < 0:
        raise NotUnderstood(f"a {mark} is not closed")
    return end + 1


def _after_escaped(text: str, mark: str, at: int) -> int:
    while at < len(text):
        if text[at] == mark:
            return at + 1
        at += 2 if text[at] == "\\" else 1
    raise NotUnderstood(f"a {mark} is not closed")


def _after_double_quote(text: str, start: int) -> int:
    at = start + 1
    while at < len(text):
        if text[at] == '"':
            return at + 1
        at = after_piece(text, at, quotes="")
    raise NotUnderstood('a " is not closed')


def _after_brace(text: str, start: int, quotes: str) -> int:
    at = start + 1
    while at < len(text):
        if text[at] == "}":
            return at + 1
        at = after_piece(text, at, quotes)
    raise NotUnderstood("a ${ is not closed")


def after_parenthesis(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` is closed; what is quoted or a comment does not count."""
    at = start + 1
    while at < len(text):
        if text[at] == ")":
            return at + 1
        if text[at] == "(":
            at = after_parenthesis(text, at)
        elif text[at] == "#" and text[at - 1] in " \t\n":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            at = after_piece(text, at)
    raise NotUnderstood("a ( is not closed")

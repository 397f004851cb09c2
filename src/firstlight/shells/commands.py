"""The commands of a shell file and the bodies they stand in: what is the only command of an `if` can be told."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.shells.words import REDIRECTIONS, NotUnderstood, ShellWords, Token, TokenKind, after_parenthesis

_OPENS = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_NEXT_PART = {"then": ("if",), "elif": ("then",), "else": ("then",), "do": ("loop",)}
_PART = {"then": "then", "elif": "if", "else": "then", "do": "do"}
_CLOSES = {"fi": "then", "done": "do", "}": "{"}
_PREFIXES = ("!", "time", "noglob", "nocorrect")
_A_COMMAND = "a command"  # stands before, and no operator yet
_NEXT_CASE = (";;", ";&", ";;&", ";|")


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words, where it begins and ends, and what stands before and after it."""

    words: tuple[Token, ...]
    start: int
    end: int
    body: int  # the number of the body it stands in; 0 is the file itself
    before: str  # the operator before it, "" at the begin of a body
    before_at: int
    after: str  # the operator behind it, "" at the end of the file
    after_end: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A file as commands in bodies: how many commands each body has, and which body each one stands in."""

    commands: tuple[Command, ...]
    items: tuple[int, ...]
    parents: tuple[int, ...]
    data: tuple[tuple[int, int], ...]  # comments and here-documents
    loops: tuple[tuple[int, str], ...]  # body and name of a loop's variable, which has many values


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.words = text, ShellWords(text)
        self.commands: list[Command] = []
        self.items, self.parents = [0], [0]
        self.loops: list[tuple[int, str]] = []
        self.stack: list[tuple[str, int]] = [("", 0)]
        self.before, self.before_at = "", 0

    @property
    def body(self) -> int:
        return self.stack[-1][1]

    def open(self, kind: str) -> None:
        self.items[self.body] += 1
        self.stack.append((kind, self._new_body(self.body)))

    def next_part(self, kind: str) -> None:
        self.stack.pop()
        self.stack.append((kind, self._new_body(self.body)))

    def _new_body(self, parent: int) -> int:
        self.items.append(0)
        self.parents.append(parent)
        self.before = ""
        return len(self.items) - 1

    def close(self, kind: str) -> None:
        if self.stack[-1][0] != kind or len(self.stack) == 1:
            raise NotUnderstood("something is closed that was not opened")
        self.stack.pop()
        self.after_compound()

    def after_compound(self) -> None:
        """Redirections may stand behind `done`, `fi` or `}`; a word may not."""
        self.before = _A_COMMAND
        while (token := self.words.peek()).text in REDIRECTIONS or _is_number_of_redirection(self.text, token):
            self.redirection()
        if token.kind is TokenKind.WORD and token.text not in (*_CLOSES, *_NEXT_PART, "esac"):
            raise NotUnderstood("a word stands behind a closed body")

    def redirection(self) -> None:
        token = self.words.take()
        if token.kind is TokenKind.WORD:  # the 2 of 2>file
            token = self.words.take()
        target = self.words.take()
        if target.kind is not TokenKind.WORD:
            raise NotUnderstood("a redirection leads nowhere")
        if token.text in ("<<", "<<-"):
            self.words.here_document(token.text, target.text)

    def shape(self) -> Shape:
        while self.step(self.words.take()):
            pass
        if len(self.stack) != 1:
            raise NotUnderstood("a body is not closed")
        return Shape(
            tuple(self.commands), tuple(self.items), tuple(self.parents), tuple(self.words.data), tuple(self.loops)
        )

    def step(self, token: Token) -> bool:
        """Read one command or one operator between commands; False at the end of the text."""
        if token.kind is TokenKind.END:
            return False
        if token.kind is TokenKind.NEWLINE or token.text in (";", "&", "&&", "||", "|", "|&"):
            if not (token.kind is TokenKind.NEWLINE and self.before in ("&&", "||", "|", "|&")):
                self.before, self.before_at = token.text, token.start
        elif token.text in _NEXT_CASE and token.kind is TokenKind.OPERATOR:
            self.case_pattern()
        elif token.text == "(":
            self.parenthesis(token)
        elif token.text == ")":
            self.close("(")
        elif token.kind is TokenKind.WORD:
            self.word(token)
        else:
            self.simple(token)
        return True

    def parenthesis(self, token: Token) -> None:
        if self.text.startswith("((", token.start):
            self.items[self.body] += 1
            self.words.at = after_parenthesis(self.text, token.start)
            self.after_compound()
            return
        self.open("(")

    def word(self, token: Token) -> None:
        name, kind = token.text, self.stack[-1][0]
        if name in _OPENS:
            self.open(_OPENS[name])
        elif name in _NEXT_PART:
            if kind not in _NEXT_PART[name]:
                raise NotUnderstood(f"a {name} stands where none belongs")
            self.next_part(_PART[name])
        elif name in _CLOSES:
            self.close(_CLOSES[name])
        elif name in ("for", "select"):
            self.loop_over()
        elif name == "case":
            self.case()
        elif name == "esac":
            self.close("case")
        elif name == "[[":
            self.test()
        elif name == "function":
            self.words.take()
            self.skip_parentheses()
        elif name not in _PREFIXES:
            self.simple(token)

    def skip_parentheses(self) -> bool:
        if self.words.peek().text != "(":
            return False
        self.words.take()
        if self.words.take().text != ")":
            raise NotUnderstood("a ( stands where none belongs")
        while self.words.peek().kind is TokenKind.NEWLINE:
            self.words.take()
        return True

    def loop_over(self) -> None:
        self.open("loop")
        name = self.words.take()
        if name.text == "(":
            self.words.at = after_parenthesis(self.text, name.start)
            return
        self.loops.append((self.body, name.text))
        while self.words.peek().kind is TokenKind.WORD and self.words.peek().text != "do":
            self.words.take()

    def case(self) -> None:
        self.words.take()
        while self.words.peek().kind is TokenKind.NEWLINE:
            self.words.take()
        if self.words.take().text != "in":
            raise NotUnderstood("a case has no in")
        self.open("case")
        self.case_pattern()

    def case_pattern(self) -> None:
        if self.stack[-1][0] != "case":
            raise NotUnderstood("a ;; stands outside of a case")
        token = self.words.take()
        while token.kind is TokenKind.NEWLINE:
            token = self.words.take()
        if token.text == "esac":
            self.close("case")
            return
        if token.text == "(":
            token = self.words.take()
        while token.text != ")":
            if token.kind is TokenKind.END or token.kind is TokenKind.NEWLINE:
                raise NotUnderstood("a pattern of a case is not closed")
            token = self.words.take()
        self.next_part("case")

    def test(self) -> None:
        """[[ ... ]]: what stands in it is no command, and && and ( are its own."""
        self.items[self.body] += 1
        closed = re.compile(r"\s\]\](?=[\s;&|)]|$)").search(self.text, self.words.at)
        if closed is None:
            raise NotUnderstood("a [[ is not closed")
        self.words.at = closed.end()
        self.before = _A_COMMAND
        if self.words.peek().text in REDIRECTIONS:
            self.redirection()

    def simple(self, first: Token) -> None:
        words: list[Token] = []
        end, body = first.end, self.body
        self.words.at = first.start
        while (token := self.words.peek()).kind is TokenKind.WORD or token.text in REDIRECTIONS:
            if token.kind is TokenKind.OPERATOR or _is_number_of_redirection(self.text, token):
                self.redirection()
                end = self.words.at
                continue
            words.append(self.words.take())
            end = token.end
            if len(words) == 1 and self.skip_parentheses():
                return  # the head of a function: its body comes
        if self.words.at == first.start:
            raise NotUnderstood(f"a {first.text} stands where none belongs")
        following = self.words.peek()
        self.items[body] += 1
        before, self.before = self.before, _A_COMMAND
        self.commands.append(
            Command(tuple(words), first.start, end, body, before, self.before_at, following.text, following.end)
        )


def _is_number_of_redirection(text: str, token: Token) -> bool:
    return token.kind is TokenKind.WORD and token.text.isdigit() and text[token.end : token.end + 1] in ("<", ">")


def shape_of(text: str) -> Shape:
    """The shape of a file of sh, bash, ksh or zsh; NotUnderstood where it cannot be told."""
    return _Reader(text).shape()


def ends_in_the_open(text: str) -> bool:
    """Whether a line put behind the text is a command of its own: no body, quote, here-document or \\ is open there."""
    try:
        shape_of(text)
    except (NotUnderstood, RecursionError):  # parentheses a thousand deep
        return False
    return re.search(r"(?:^|[^\\])(?:\\\\)*\\\n?$", text) is None and not text.rstrip().endswith(("&&", "||", "|"))

"""The commands of fish and csh files; an empty body is fine in both, so bodies matter for variables alone."""

from __future__ import annotations

import re

from firstlight.shells.commands import Command, Shape
from firstlight.shells.words import NotUnderstood, Token, TokenKind

_FISH_OPENS = ("if", "while", "for", "switch", "function", "begin")
_FISH_PREFIXES = ("and", "or", "not", "!", "time", "command", "builtin")
_OPERATOR = re.compile(r"&&|\|\||>>|[;&|<>\n]")


def fish_shape(text: str) -> Shape:
    """The shape of a fish file; NotUnderstood where it cannot be told."""
    return _Reader(text).fish()


def csh_shape(text: str) -> Shape:
    """The shape of a csh file."""
    return _Reader(text).csh()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.data: list[tuple[int, int]] = []
        self.commands: list[Command] = []
        self.parents = [0]
        self.loops: list[tuple[int, str]] = []

    def cut(self, here_documents: str) -> None:
        """The tokens of the text; `here_documents` is the operator that brings one, "" where there are none."""
        at, text, waiting = 0, self.text, ""
        while at < len(text):
            character = text[at]
            if character in " \t\r" or text.startswith("\\\n", at):
                at += 1 if character != "\\" else 2
            elif character == "#":
                end = _end_of_line(text, at)
                self.data.append((at, end))
                at = end
            elif here_documents and text.startswith(here_documents, at):
                match = re.compile(r"<<\s*(\S+)").match(text, at)
                if match is None:
                    raise NotUnderstood("a << leads nowhere")
                waiting = match[1].strip("\"'\\")
                at = match.end()
            elif match := _OPERATOR.match(text, at):
                kind = TokenKind.NEWLINE if match[0] == "\n" else TokenKind.OPERATOR
                self.tokens.append(Token(kind, at, match.end(), match[0]))
                at = match.end()
                if kind is TokenKind.NEWLINE and waiting:
                    at, waiting = self._after_here_document(at, waiting), ""
            else:
                end = _after_word(text, at)
                self.tokens.append(Token(TokenKind.WORD, at, end, text[at:end]))
                at = end

    def _after_here_document(self, start: int, delimiter: str) -> int:
        at = start
        while at < len(self.text):
            end = _end_of_line(self.text, at)
            line, at = self.text[at:end], min(end + 1, len(self.text))
            if line.rstrip("\r") == delimiter:
                break
        self.data.append((start, at))
        return at

    def shape(self) -> Shape:
        # Two for each body: nothing here is ever the only command, because an empty body is fine.
        items = (2,) * len(self.parents)
        return Shape(tuple(self.commands), items, tuple(self.parents), tuple(self.data), tuple(self.loops))

    def groups(self) -> list[tuple[Token, list[Token], Token]]:
        """The words between operators, each with the operator before and the one behind."""
        start = Token(TokenKind.NEWLINE, 0, 0, "")
        found: list[tuple[Token, list[Token], Token]] = []
        before, words = start, []
        for token in (*self.tokens, Token(TokenKind.END, len(self.text), len(self.text), "")):
            if token.kind is TokenKind.WORD or token.text in ("<", ">", ">>"):
                words.append(token)
                continue
            if words:
                found.append((before, words, token))
            if words or before.text not in ("&&", "||", "|"):
                before = token
            words = []
        return found

    def add(self, words: list[Token], body: int, before: Token, after: Token) -> None:
        self.commands.append(
            Command(tuple(words), words[0].start, words[-1].end, body, before.text, before.start, after.text, after.end)
        )

    def fish(self) -> Shape:
        self.cut("")
        stack = [0]
        for before, words, after in self.groups():
            joined = before
            while words:
                name = words[0].text
                if name == "else" or name == "case":
                    self.parents.append(self.parents[stack[-1]])
                    stack[-1] = len(self.parents) - 1
                    words = words[1:] if name == "else" and words[1:2] and words[1].text == "if" else []
                    words = words[1:]
                elif name == "end":
                    if len(stack) == 1:
                        raise NotUnderstood("an end stands where none belongs")
                    stack.pop()
                    words = []
                elif name in _FISH_OPENS:
                    self.parents.append(stack[-1])
                    stack.append(len(self.parents) - 1)
                    if name == "for" and len(words) > 1:
                        self.loops.append((stack[-1], words[1].text))
                    words = words[1:] if name in ("if", "while", "begin") else []
                    joined = Token(TokenKind.WORD, 0, 0, name)
                elif name in _FISH_PREFIXES:
                    words = words[1:]
                    joined = Token(TokenKind.WORD, 0, 0, name)
                else:
                    self.add(words, stack[-1], joined, after)
                    words = []
        if len(stack) != 1:
            raise NotUnderstood("a body is not closed")
        return self.shape()

    def csh(self) -> Shape:
        self.cut("<<")
        stack = [0]
        for before, words, after in self.groups():
            name = words[0].text
            if name in ("endif", "end", "endsw"):
                if len(stack) == 1:
                    raise NotUnderstood(f"an {name} stands where none belongs")
                stack.pop()
                continue
            if name in ("else", "case", "default:"):
                self.parents.append(self.parents[stack[-1]])
                stack[-1] = len(self.parents) - 1
                if name == "else" and words[-1].text == "then":
                    continue
                words = words[1:] if name == "else" else []
            elif name in ("foreach", "while", "switch") or (name.startswith("if") and words[-1].text == "then"):
                self.parents.append(stack[-1])
                stack.append(len(self.parents) - 1)
                if name == "foreach" and len(words) > 1:
                    self.loops.append((stack[-1], words[1].text))
                continue
            elif re.fullmatch(r"if(\(.*)?", name, re.DOTALL):
                words = words[2 if name == "if" else 1 :]
                before = Token(TokenKind.WORD, 0, 0, "if")
            if words:
                self.add(words, stack[-1], before, after)
        if len(stack) != 1:
            raise NotUnderstood("a body is not closed")
        return self.shape()


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _after_word(text: str, start: int) -> int:
    at = start
    while at < len(text) and text[at] not in " \t\r\n;&|<>":
        at = _after_piece(text, at)
    if at == start:
        raise NotUnderstood("a character stands where none belongs")
    return at


def _after_piece(text: str, at: int) -> int:
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    closing = {"'": "'", '"': '"', "`": "`", "(": ")"}.get(character)
    if closing is None:
        return at + 1
    at += 1
    while at < len(text) and text[at] != closing:
        nested = closing == ")" or (closing == '"' and text[at] in "\\") or text[at] == "\\"
        at = _after_piece(text, at) if nested else at + 1
    if at >= len(text):
        raise NotUnderstood(f"a {character} is not closed")
    return at + 1

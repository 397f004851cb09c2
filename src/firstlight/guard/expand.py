"""Words of shell text to what they may stand for: every value that is possible, and a hole where none is known."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Protocol

from firstlight.guard.call import HOLE, SEP
from firstlight.guard.syntax import text_of_node

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_VALUES = 24
_ESCAPE = re.compile(r"\\(.)", re.S)
_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_SPACES = re.compile(r"[ \t\n]+")
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|c.|.)", re.S)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_RANGE = re.compile(r"\{[\w-]+\.\.[\w-]+(?:\.\.\d+)?\}")


class Values(Protocol):
    """What a shell knows while it reads: its variables, and what its substitutions print."""

    def value(self, name: str) -> tuple[str, ...]: ...

    def printed(self, node: Node) -> str: ...

    def give(self, name: str, values: tuple[str, ...]) -> None: ...


def words_of(node: Node, shell: Values) -> list[tuple[str, ...]]:
    """Every list of words that a node may become: [('pip', 'install')] for $cmd where cmd is 'pip install'."""
    found = []
    for text in expanded(node, shell):
        parts = tuple(part for part in text.split(SEP) if part)
        found.append(parts or (() if _vanishes(node) else ("",)))
    return found


def _vanishes(node: Node) -> bool:
    return node.type in ("simple_expansion", "expansion", "command_substitution")


def expanded(node: Node, shell: Values) -> list[str]:
    """The possible texts of a node, with SEP between the words that an unquoted expansion splits into."""
    kind = node.type
    if kind in ("string", "translated_string"):
        return _string(node, shell)
    if kind == "raw_string":
        return [text_of_node(node)[1:-1]]
    if kind == "ansi_c_string":
        return [ansi(text_of_node(node)[2:-1])]
    if kind in ("concatenation", "command_name"):
        joined = _product([expanded(child, shell) for child in node.children])
        if kind == "concatenation" and _BRACES.search(text_of_node(node)):
            return [SEP.join(braces(text)) for text in joined]
        return [_RANGE.sub(HOLE, text) for text in joined] if kind == "concatenation" else joined
    if kind in ("simple_expansion", "expansion"):
        before = _blank_before(node)
        return [before + text for value in _variable(node, shell) for text in split(value, shell.value("IFS"))]
    if kind == "command_substitution":
        return split(shell.printed(node).rstrip("\n"), shell.value("IFS"))
    if kind == "process_substitution":
        shell.printed(node)
        return [f"/dev/fd/{HOLE}"]
    if kind in ("arithmetic_expansion", "brace_expression"):
        return [HOLE]
    if kind == "array":
        return [SEP.join(parts) for parts in _product_words(node, shell)]
    text = _ESCAPE.sub(lambda found: "" if found[1] == "\n" else found[1], text_of_node(node))
    return [SEP.join(braces(text))] if "{" in text and "," in text else [text]


def split(text: str, separators: tuple[str, ...]) -> list[str]:
    """A value with SEP between its words: at blanks, and as well at what IFS has been set to: pip,install."""
    found = [_SPACES.sub(SEP, text)]
    for each in separators:
        marks = "".join(letter for letter in each if letter not in f" \t\n{HOLE}")
        if marks and any(letter in text for letter in marks):
            found.append(re.sub(f"[{re.escape(marks)} \t\n]+", SEP, text))
    return found


def _product_words(node: Node, shell: Values) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [()]
    for child in node.named_children:
        rows = [row + words for row in rows for words in words_of(child, shell)][:MOST_VALUES]
    return rows


def _product(parts: list[list[str]]) -> list[str]:
    count = 1
    for part in parts:
        count *= len(part)
    if count > MOST_VALUES:
        return [HOLE]
    return ["".join(each) for each in itertools.product(*parts)]


def _blank_before(node: Node) -> str:
    """tree-sitter counts blanks in front of a $ inside quotes to the expansion."""
    text = text_of_node(node)
    return text[: len(text) - len(text.lstrip())]


def _string(node: Node, shell: Values) -> list[str]:
    return [text.replace(SEP, " ") if "@" not in text_of_node(node) else text for text in filled(node, shell, 1)]


def filled(node: Node, shell: Values, edge: int = 0) -> list[str]:
    """The text of a string or heredoc with its expansions put in; `edge` is the width of its quotes."""
    data, start = node.text or b"", node.start_byte
    begin = data.index(b'"') + 1 if edge and b'"' in data else edge
    at, end = begin, len(data) - edge
    parts: list[list[str]] = []
    for child in node.children:
        if child.type not in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
            continue
        parts.append([_plain(data[at : child.start_byte - start])])
        if child.type in ("simple_expansion", "expansion"):
            parts.append([_blank_before(child) + text for text in _variable(child, shell)])
        elif child.type == "command_substitution":
            parts.append([shell.printed(child).rstrip("\n")])
        else:
            parts.append([HOLE])
        at = child.end_byte - start
    parts.append([_plain(data[at:end])])
    return _product(parts)


def _plain(data: bytes) -> str:
    return _IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], data.decode("utf-8", "surrogateescape"))


def _variable(node: Node, shell: Values) -> list[str]:
    """The values of $X, ${X}, ${X[@]}, ${X:-word}; a hole for every other form."""
    named = node.named_children
    if not named:
        return [HOLE]
    first = named[0]
    name = first.named_children[0] if first.type == "subscript" and first.named_children else first
    values = list(shell.value(text_of_node(name)))
    if first.type == "subscript":
        return values if text_of_node(first).endswith(("[@]", "[*]")) else [HOLE]
    if node.type == "simple_expansion" or (
        len(named) == 1 and text_of_node(node).strip() == "${" + text_of_node(name) + "}"
    ):
        return values
    operator = next((child.type for child in node.children if child.type in (":-", "-", ":=", "=", ":+", "+")), "")
    if not operator:
        return [HOLE]
    other = _product([expanded(child, shell) for child in named[1:]])
    if operator in (":=", "="):
        shell.give(text_of_node(name), (*values, *other))
    return [*(value for value in values if value != HOLE), *other]


def ansi(text: str) -> str:
    r"""The text of $'...': 'pip' for '\x70ip'."""

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else HOLE
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return HOLE if code[0] == "c" else _LETTERS.get(code, code)

    return _ANSI.sub(one, text)


def braces(text: str) -> tuple[str, ...]:
    """What brace expansion makes: ('a1', 'a2') for 'a{1,2}'; the text alone where it has none."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        each = waiting.pop(0)
        found = _BRACES.search(each)
        if not found or len(done) + len(waiting) > 64:
            done.append(_RANGE.sub(HOLE, each))
            continue
        waiting[:0] = [each[: found.start()] + part + each[found.end() :] for part in found[1].split(",")]
    return tuple(done)

"""Shell text to a tree, by tree-sitter; what tree-sitter drops or cannot read is refused, never passed over."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.guard.call import SEP, Unreadable

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 200_000  # bytes of shell text; a hook has no time for more
MOST_NODES = 60_000
DEEPEST = 120
INSTALL = "pip install 'tree-sitter>=0.23' 'tree-sitter-bash>=0.23'"
_JOINED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n")
_HAS_TEXT_OF_ITS_OWN = {"string", "heredoc_body", "heredoc_redirect", "expansion", "translated_string", "test_command"}
_MAY_LIE_BETWEEN = re.compile(rb"[\s\\;&|-]*")


@functools.lru_cache(maxsize=1)
def _parser() -> Parser:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise BadInput(
            f"the guard reads shell text with tree-sitter and tree-sitter-bash, and {error.name} is not installed; "
            f"nothing is allowed until it is. Install them: {INSTALL}"
        ) from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def tree_of(text: str) -> Node:
    """The root of the tree of a shell text; Unreadable where any part of it cannot be read."""
    if "\0" in text or SEP in text:
        raise Unreadable("a NUL or unit separator byte in shell text")
    try:
        data = _JOINED.sub(r"\1", text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Unreadable("a character that shell text cannot hold") from None
    if len(data) > LONGEST:
        raise Unreadable(f"{len(data)} bytes of shell text; {LONGEST} are read at most")
    root = _parser().parse(data).root_node
    if root.descendant_count > MOST_NODES:
        raise Unreadable(f"shell text of {root.descendant_count} parts; {MOST_NODES} are read at most")
    for node, depth in _all(root):
        if depth > DEEPEST:
            raise Unreadable(f"shell text nested {depth} deep")
        if node.is_error or node.is_missing:
            raise Unreadable(f"not readable as shell text at line {node.start_point[0] + 1}")
        if node.child_count > 1 and node.type not in _HAS_TEXT_OF_ITS_OWN:
            _refuse_gaps(node, data)
    return root


def _all(root: Node) -> Iterator[tuple[Node, int]]:
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting.extend((child, depth + 1) for child in node.children)


def _refuse_gaps(node: Node, data: bytes) -> None:
    """tree-sitter-bash leaves out a few words without calling it an error; what it left out is not followed."""
    at = node.children[0].end_byte
    for child in node.children[1:]:
        if not _MAY_LIE_BETWEEN.fullmatch(data[at : child.start_byte]):
            raise Unreadable(f"not readable as shell text at line {child.start_point[0] + 1}")
        at = max(at, child.end_byte)


def text_of_node(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode("utf-8", "surrogateescape")

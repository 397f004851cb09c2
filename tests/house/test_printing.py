"""No way around the guarded streams: what is printed goes through cli/printing.py, whoever writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "firstlight"
# Children of their own print to a pipe that we read.
CHILDREN = (SRC / "facts/children", SRC / "verify/children")
# What is drawn on a terminal, a spinner and a line that is rewritten, goes to the stream itself.
DRAWS = {"cli/acting.py", "cli/bench.py", "cli/verify.py"}
RAW = re.compile(r"(?m)^ *from firstlight\.cli\.printing import .*\braw\b")


def _files() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.py")) if not any(path.is_relative_to(each) for each in CHILDREN)]


def _ways_around(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            on_stream = isinstance(node.value, ast.Attribute) and node.value.attr in ("stdout", "stderr")
            if node.attr in ("__stdout__", "__stderr__") or (node.attr == "buffer" and on_stream):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call):
            # most calls by far are of other names, and to write out what is called takes long
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            called = ast.unparse(node.func) if last in ("Console", "write") else ""
            if called == "Console" and not any(word.arg == "file" for word in node.keywords):
                yield f"line {node.lineno}: a rich Console without file=raw(...)"
            if called == "os.write" and ast.unparse(node.args[0]) in ("1", "2"):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_is_printed_past_the_guard() -> None:
    found = {str(path.relative_to(SRC)): list(_ways_around(ast.parse(path.read_text("utf-8")))) for path in _files()}
    assert {path: ways for path, ways in found.items() if ways} == {}


def test_only_what_draws_has_the_stream_itself() -> None:
    has = {str(path.relative_to(SRC)) for path in _files() if RAW.search(path.read_text("utf-8"))}
    assert has == DRAWS


def test_a_way_around_is_seen() -> None:
    for text in (
        "sys.stdout.buffer.write(b'')",
        "sys.__stderr__.write('')",
        "Console(stderr=True)",
        "os.write(2, b'')",
    ):
        assert list(_ways_around(ast.parse(text)))

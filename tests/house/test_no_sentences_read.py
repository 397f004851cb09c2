"""Our own sentences are not a protocol: no regular expression is applied to a title, an id or a reason of ours.

It sees `re.fullmatch(..., x)` and `PATTERN.search(x)` where x holds an attribute of one of these names, or a variable
called so, and `x.title.split()` and the like, in every room. A sentence that goes through a variable of another name
is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.ways.asks import ASKS

SRC = Path(__file__).parents[2] / "src" / "firstlight"
OURS = {"title", "titles", "because", "saw", "means", "proof_by", "why_not", "leaves_out", "note", "what", "fires_when"}
ATTRIBUTES = {*OURS, "id", "way", "ways", "option", "step"}
_CALLS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


_METHODS = {"split", "rsplit", "splitlines", "partition", "rpartition", "startswith", "endswith", "removeprefix",
            "removesuffix", "find", "rfind", "index", "count"}  # fmt: skip


def _taken_apart(node: ast.AST) -> bool:
    """Whether a method of str takes one of our sentences apart: finding.saw[0].partition(' ')."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _METHODS:
        return False
    text = node.func.value
    while isinstance(text, ast.Subscript):
        text = text.value
    return isinstance(text, ast.Attribute) and text.attr in OURS


def _is_ours(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    return isinstance(node, ast.Name) and node.id in OURS


def _patterns(tree: ast.AST) -> set[str]:
    """Names that a compiled regular expression is bound to."""
    found = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "re.compile":
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
            found |= {ast.unparse(each) for each in targets}
    return found


def sentences_read(tree: ast.AST) -> Iterator[str]:
    patterns = {"re", *_patterns(tree)}
    for node in ast.walk(tree):
        if _taken_apart(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]
            continue
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _CALLS:
            continue
        if ast.unparse(node.func.value) not in patterns:
            continue
        given = [*node.args, *(word.value for word in node.keywords)]
        if any(_is_ours(each) for value in given for each in ast.walk(value)):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_regular_expression_reads_our_own_sentences() -> None:
    files = sorted(SRC.rglob("*.py"))
    assert files
    found = {str(path.relative_to(SRC)): list(sentences_read(ast.parse(path.read_text("utf-8")))) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code",
    [
        "re.search('torch', option.title)",
        "re.sub('a', 'b', f'{step.id}-x')",
        "P = re.compile('a')\nP.fullmatch(finding.saw[0])",
        "re.findall('[0-9]+', title)",
        "re.split(' or ', ' '.join(each.title for each in options))",
        "analysis.target.title.split()[0]",
        "finding.saw[0].partition(' ')",
        "step.because.startswith('torch')",
    ],
)
def test_the_check_sees_one(code: str) -> None:
    assert list(sentences_read(ast.parse(code)))


def test_the_check_leaves_other_texts_alone() -> None:
    assert (
        list(sentences_read(ast.parse("re.search('torch', file.text)\nother.match(option.title)\npath.split('/')")))
        == []
    )


def _asks() -> Iterator[tuple[str, ast.expr]]:
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if isinstance(node, ast.Call) and name == "AskPerson":
                yield f"{path.relative_to(SRC)}:{node.lineno}", node.args[0]


def test_a_person_is_asked_by_name_and_never_by_a_sentence() -> None:
    asks = list(_asks())
    said = {where: each.value for where, each in asks if isinstance(each, ast.Constant)}
    assert len(said) > 100
    assert {where: each for where, each in said.items() if each not in ASKS} == {}
    assert [where for where, each in asks if isinstance(each, ast.JoinedStr)] == []
    texts = "".join(path.read_text("utf-8") for path in sorted(SRC.rglob("*.py")) if path.name != "asks.py")
    assert [name for name in ASKS if f'"{name}"' not in texts] == [], "words that nobody asks for"
    assert {name: len(words) for name, words in ASKS.items() if len(words.format("", "", "")) > 70} == {}

"""--help of a tool or benchmark prints and ends: it neither begins to work nor writes a file called --help."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    path for folder in ("tools", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))
    if 'if __name__ == "__main__":' in path.read_text() or path.name == "run.py"
]  # fmt: skip


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_reads_its_words_by_argparse_or_prints_its_usage_first(path: Path) -> None:
    tree = ast.parse(path.read_text())
    called = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    }
    assert {"ArgumentParser", "print_usage"} & called, path
    if "print_usage" in called:
        last = tree.body[-1]
        assert isinstance(last, ast.If)
        first = last.body[0]
        assert isinstance(first, ast.Expr)
        assert ast.unparse(first).startswith("print_usage(__doc__")
        assert any(isinstance(node, ast.ImportFrom) and node.module == "benchmarks.usage" for node in tree.body), path

"""PyTorch's index folders: one table, and no second copy in the sources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from firstlight.tables.torch_index import index_of_build, index_of_version

SRC = Path(__file__).parents[2] / "src" / "firstlight"
STABLE = "https://download.pytorch.org/whl/"


@pytest.mark.parametrize(
    ("version", "index"),
    [
        ("2.9.0+cu130", f"{STABLE}cu130"),
        ("2.9.0+cpu", f"{STABLE}cpu"),
        ("2.9.0+rocm6.4", f"{STABLE}rocm6.4"),
        ("2.12.0.dev20260901+cu130", f"{STABLE}nightly/cu130"),
        ("2.9.0", ""),
        ("2.9.0a0+nv25.9", ""),
        ("2.9.0+git1234", ""),
    ],
)
def test_a_local_part_names_its_folder(version: str, index: str) -> None:
    assert index_of_version(version) == index


def test_a_channel_has_folders_of_its_own() -> None:
    assert index_of_build("cu128") == f"{STABLE}cu128"
    assert index_of_build("cu128", "test") == f"{STABLE}test/cu128"


def test_no_source_has_the_address_but_the_table() -> None:
    copies = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(STABLE)
    ]
    assert copies == []

"""Who may import whom: the table of rooms in docs/design.md, held by walking the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "firstlight"

# room -> rooms of ours it may import (docs/design.md holds the same table in words)
MAY_IMPORT: dict[str, set[str]] = {
    "ahead": set(),
    "errors": set(),
    "frozen": set(),
    "near": set(),
    "numerals": set(),
    "opening": set(),
    "owned": {"errors", "opening"},
    "records": {"facts", "versions", "errors"},  # of facts, what Known and Unknown are
    "secrets": set(),
    "specifiers": set(),
    "visible": set(),
    "toml": set(),
    "versions": {"errors"},
    "own_wheel": {"errors"},
    "machine": {"ahead", "errors"},
    "tables": {"versions", "errors"},
    "elf": {"versions", "machine", "errors"},
    "facts": {"ahead", "opening", "versions", "machine", "elf", "errors"},
    "examples": set(),
    "shells": {"errors"},
    "ways": {"shells", "elf", "facts", "tables", "versions", "errors"},
    "diagnosis": {"ways", "facts", "tables", "versions", "elf", "errors"},
    "kernels": {"owned", "errors"},
    "plan": {"ways", "diagnosis", "libraries", "facts", "tables", "versions", "errors"},
    "verify": {"opening", "facts", "tables", "versions", "machine", "elf", "errors"},
    "apply": {
        "opening",
        "owned",
        "ways",
        "shells",
        "plan",
        "diagnosis",
        "facts",
        "tables",
        "machine",
        "elf",
        "versions",
        "errors",
    },
    "libraries": {"opening", "elf", "facts", "tables", "versions", "machine", "errors", "ways", "diagnosis"},
    "build": {
        "libraries",
        "opening",
        "owned",
        "ways",
        "apply",
        "diagnosis",
        "facts",
        "tables",
        "machine",
        "elf",
        "versions",
        "errors",
    },
    "lint": {"ways", "diagnosis", "facts", "tables", "versions", "errors"},
    "emit": {
        "elf",
        "ways",
        "plan",
        "diagnosis",
        "facts",
        "tables",
        "own_wheel",
        "versions",
        "errors",
        "machine",
        "guard",
    },
    "lock": {"opening", "ways", "diagnosis", "facts", "tables", "machine", "versions", "errors"},
    "fleet": {
        "opening",
        "owned",
        "own_wheel",
        "diagnosis",
        "facts",
        "tables",
        "lock",
        "bench",
        "machine",
        "versions",
        "errors",
    },
    "ship": {"opening", "owned", "fleet", "machine", "errors"},
    "bench": {"opening", "facts", "tables", "kernels", "diagnosis", "versions", "errors", "machine"},
    "profile": {"opening", "bench", "facts", "tables", "machine", "errors"},
    "report": {
        "opening",
        "facts",
        "tables",
        "diagnosis",
        "plan",
        "ways",
        "apply",
        "build",
        "verify",
        "kernels",
        "bench",
        "libraries",
        "elf",
        "lint",
        "emit",
        "lock",
        "fleet",
        "ship",
        "profile",
        "guard",
        "versions",
        "errors",
        "machine",
    },
    "guard": {"opening", "tables", "versions", "errors"},
    "explain": {"diagnosis", "report", "errors"},
    "cli": {"*"},
    "api": {"*"},
}
EVERYBODYS = ("frozen", "near", "numerals", "records", "secrets", "specifiers", "toml", "visible")
STANDARD_LIBRARY_ONLY = (
    "ahead",
    "errors",
    "frozen",
    "near",
    "numerals",
    "opening",
    "owned",
    "records",
    "secrets",
    "specifiers",
    "visible",
    "versions",
    "own_wheel",
    "machine",
    "elf",
    "facts",
    "tables",
    "diagnosis",
    "shells",
)
ALLOWED_THIRD_PARTY = {
    "click": {"cli"},
    "rich": {"cli", "report"},
    "jinja2": {"emit"},
    "packaging": {"plan", "ways", "tables", "verify", "lint", "guard", "build"},
    "tomlkit": {"ways"},
    "transformers": {"kernels"},  # where register_attention is called
    "yaml": {"lint"},
    "torch": {"bench", "kernels", "profile"},
    "triton": {"kernels"},
    "pynvml": {"bench"},
    "tree_sitter": {"guard"},
    "tree_sitter_bash": {"guard"},
    "mcp": {"cli"},
    "anyio": {"cli"},  # comes with mcp
}
OF_THE_PACKAGE = ("__version__", "CallablePackage")  # stand in firstlight/__init__.py, which is imported anyway
CHILD_SCRIPTS = SRC / "facts" / "children"
ANSIBLE_SCRIPTS = SRC / "fleet" / "children" / "ansible_callbacks"  # loaded by ansible-playbook, in its own process
BUILD_SCRIPTS = SRC / "build" / "children"  # run by the interpreter that got the wheel, which has what is proved
PROOF_SCRIPTS = SRC / "verify" / "children"  # run by the interpreter that is proved, which has the torch to prove


def _files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


@cache
def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            if node.module == "firstlight":
                found.update(f"firstlight.{name.name}" for name in node.names)
    return found


def _has_its_own(path: Path, name: str) -> bool:
    """Children run in another interpreter, which has what they look at, prove or are loaded by."""
    if path.parent == CHILD_SCRIPTS and name == "pynvml":
        return True  # imported only in the child process, where libnvidia-ml was found
    if path.parent == PROOF_SCRIPTS and name == "torch":
        return True
    if path.parent == ANSIBLE_SCRIPTS and name == "ansible":
        return True
    return path.parent == BUILD_SCRIPTS


def _not_allowed(path: Path) -> Iterator[str]:
    room = _room(path)
    if room in ("__init__", "__main__"):
        return
    if room not in MAY_IMPORT:
        yield f"{room} has no row in the table of rooms"
        return
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "firstlight" and len(parts) > 1 and parts[1] not in OF_THE_PACKAGE:
            allowed = MAY_IMPORT[room]
            if not (parts[1] in (room, *EVERYBODYS, *allowed) or "*" in allowed):
                yield f"imports {name}"
        elif parts[0] in sys.stdlib_module_names or parts[0] == "firstlight" or _has_its_own(path, parts[0]):
            continue
        elif room not in ALLOWED_THIRD_PARTY.get(parts[0], ()):
            yield f"imports {name}"


def test_a_file_imports_only_what_the_table_of_rooms_allows() -> None:
    assert len(_files()) > 500
    found = {str(path.relative_to(SRC)): list(_not_allowed(path)) for path in _files()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from firstlight.cli import main", "imports firstlight.cli"),
        ("import torch", "imports torch"),
        ("import nobodys", "imports nobodys"),
    ],
)
def test_the_check_sees_an_import_that_is_not_allowed(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    file = tmp_path / "facts" / "of_a_test.py"
    file.parent.mkdir()
    file.write_text(f"import json\nfrom firstlight.versions import Version\n{code}\n")
    assert list(_not_allowed(file)) == [said]


@pytest.mark.parametrize("room", STANDARD_LIBRARY_ONLY)
def test_rooms_of_the_zipapp_use_the_standard_library_alone(room: str) -> None:
    for path in (path for path in _files() if _room(path) == room and path.parent != CHILD_SCRIPTS):
        outside = {
            name.split(".")[0] for name in _imports(path) if name.split(".")[0] not in sys.stdlib_module_names
        } - {"firstlight"}
        assert not outside, f"{path} imports {outside}"


def test_importing_firstlight_and_its_facts_does_not_import_torch_or_rich() -> None:
    code = (
        "import sys, firstlight, firstlight.facts.collect, firstlight.cli.facts;"
        "print([m for m in ('torch', 'rich', 'pynvml', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

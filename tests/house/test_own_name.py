"""Nobody is told to install firstlight by its name: on an index it may be anybody's."""

from __future__ import annotations

import re
from pathlib import Path

import tomlkit

from firstlight.build.preflight import _ENOUGH
from firstlight.emit.agents_texts import hook_line
from firstlight.fleet.inventory import INSTALL as ANSIBLE
from firstlight.guard.syntax import INSTALL as TREE_SITTER

ROOT = Path(__file__).parents[2]
EXTRAS = tomlkit.parse((ROOT / "pyproject.toml").read_text()).unwrap()["project"]["optional-dependencies"]
BY_NAME = re.compile(
    r"install\s+(?:--?\S+\s+)*['\"]?firstlight(?:\[\w+\])?['\"]?(?![\w/.=-])(?!\s+from|\s+there|\s+by)"
)


def test_no_text_says_to_install_firstlight_by_name() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    said = [
        f"{path.relative_to(ROOT)}: {match.group()}" for path in files for match in BY_NAME.finditer(path.read_text())
    ]
    assert said == []


def test_what_is_missing_is_asked_for_as_the_extras_ask_for_it() -> None:
    assert "pip install " + " ".join(f"'{each}'" for each in EXTRAS["guard"]) == TREE_SITTER
    assert "pip install " + " ".join(f"'{each}'" for each in EXTRAS["fleet"]) == ANSIBLE
    assert {f"{name}>={least}" for name, least in _ENOUGH.items()} <= set(EXTRAS["build"])
    assert EXTRAS["mcp"] == ["mcp>=2.0"]


def test_a_hook_that_cannot_run_says_where_firstlight_comes_from() -> None:
    assert "install firstlight from its wheel or its checkout" in hook_line("claude")

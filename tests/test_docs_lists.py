"""The lists of the docs are whole: what was added to the code stands on its page."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from firstlight.cli.main import cli
from firstlight.emit.kinds import NAMES
from firstlight.lint.judge import LINT_RULES
from firstlight.tables.subjects import GROUPS
from firstlight.toml import parse_toml
from firstlight.verify.checks import CHECKS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Set by firstlight for its own children and emitted files; nobody types them.
BETWEEN_OURSELVES = {"COLLECTIVE_FOLDER", "EMITTED", "TOLD"}


def own_variables() -> set[str]:
    """FIRSTLIGHT_DEBUG and the like, wherever the code or a template names one."""
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".j2", ".sh")]
    return {name for path in files for name in re.findall(r"\bFIRSTLIGHT_([A-Z_]*[A-Z])\b", path.read_text())}


PROJECT = parse_toml((ROOT / "pyproject.toml").read_text())["project"]
LISTS = {
    "verify.md": [check.name for check in CHECKS],
    "lint.md": [rule.code for rule in LINT_RULES],
    "emit.md": NAMES,
    "tables.md": GROUPS,
    "commands.md": [f"FIRSTLIGHT_{name}" for name in own_variables() - BETWEEN_OURSELVES],
    "dependencies.md": [re.split(r"[><=;]", each)[0] for each in PROJECT["dependencies"]],
}


@pytest.mark.parametrize("page", LISTS)
def test_a_page_has_everything_it_lists(page: str) -> None:
    names = list(LISTS[page])
    assert len(names) > 4
    text = (DOCS / page).read_text()
    assert [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.I)] == []


def test_the_list_of_commands_has_every_verb_and_its_subcommands_stand_somewhere() -> None:
    page, context = (DOCS / "commands.md").read_text(), click.Context(cli)
    verbs = cli.list_commands(context)
    assert len(verbs) > 20
    assert [verb for verb in verbs if f"`firstlight {verb}" not in page] == []
    everything = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    for verb in verbs:
        command = cli.get_command(context, verb)
        inner = command.list_commands(context) if isinstance(command, click.Group) else []
        assert [name for name in inner if f"{verb} {name}" not in everything] == [], verb


def test_the_readme_names_what_an_install_brings() -> None:
    """Without the one that only Python 3.10 needs, which it names in words."""
    text = (ROOT / "README.md").read_text()
    assert [name for name in LISTS["dependencies.md"] if name not in text] == []


def test_own_variables_are_found_by_their_name() -> None:
    assert {"DEBUG", "CACHE_DIR", "STATE_DIR"} <= own_variables()
    assert own_variables() >= BETWEEN_OURSELVES


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = {each for each in re.findall(r"`([\w./*-]+/[\w./*-]*)`", page) if not re.search("smNN|NAME", each)}
    assert len(named) > 40
    rooms = ("", "diagnosis", "kernels", "tables/data")
    places = [ROOT, *(ROOT / "src/firstlight" / room for room in rooms)]
    assert [each for each in sorted(named) if not any(list(place.glob(each.rstrip("/"))) for place in places)] == []

"""Texts of others through the real command line: a journal, a project file, a facts document, a name of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.apply.disk import Disk
from firstlight.apply.executor import Acting, begin
from firstlight.apply.journal import Journal
from firstlight.apply.place import machine_identity
from firstlight.machine.live import LiveMachine
from tests.apply.acting import Quiet, plan_for
from tests.apply.commanding import WANT, Person, make_environment

PASSWORD = "Tr0ub4dor-and-3"
PROJECT = f"""\
[project]
name = "app"
version = "0.1.0"
dependencies = ["torch>=2.8"]

[tool.uv]
package = false

[[tool.uv.index]]
url = "https://bob:{PASSWORD}@pypi.example.com/simple"
"""


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path, tmp_path / "app/.venv")


def test_the_title_of_a_run_in_the_journal_neither_moves_the_cursor_nor_forges_a_line(person: Person) -> None:
    folder = person.state / "machines" / machine_identity(LiveMachine())
    disk = Disk()
    disk.make_folders(str(folder), mode=0o700)
    journal = Journal(str(folder / "journal.jsonl"), disk=disk, now=lambda: "2026-11-15T00:00:00Z")
    journal.open()
    acting = Acting(str(folder), journal, disk, Quiet(), {})
    title = f"\x1b[2J\x1b]52;c;eA==\x07\u202e\rgood\nfirstlight: all is well https://bob:{PASSWORD}@host/"
    begin(acting, plan_for(person.home)[:1], digest="d", option="o\x1b[31m", title=title)
    journal.close()
    for words in (("undo", "--list"), ("undo",), ("apply", "--dry-run"), ("undo", "--list", "--json")):
        done = person.run(*words)
        said = done.stdout + done.stderr
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said), words
        assert PASSWORD not in said
        assert not any(line.startswith("firstlight: all is well") for line in said.splitlines())
        assert "all is well" in said


@pytest.mark.parametrize("form", [("--diff",), ("--json",)], ids=["text", "json"])
def test_the_password_of_an_index_in_a_project_is_not_printed_with_its_diff(person: Person, form: tuple[str]) -> None:
    make_environment(person.venv)
    (person.folder / "app/pyproject.toml").write_text(PROJECT)
    person.cwd = person.folder / "app"
    done = person.run("plan", *WANT, "--python", person.python, *form)
    assert "pypi.example.com" in done.stdout, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    if form == ("--json",):
        json.loads(done.stdout)


def test_a_complaint_about_a_file_spells_its_name_out(person: Person) -> None:
    done = person.run("doctor", "--facts", f"\x1b[2J\u202e{PASSWORD}.json")
    assert done.returncode == 2
    assert "\\x1b[2J\\u202e" in done.stderr
    named = person.run("libs", f"https://bob:{PASSWORD}@host/x.whl")
    assert PASSWORD not in named.stdout + named.stderr


def test_ids_of_gpus_in_the_environment_are_in_no_facts_also_cut(person: Person) -> None:
    for words in (("facts",), ("facts", "--json"), ("doctor", "--json")):
        done = person.run(*words, CUDA_VISIBLE_DEVICES="GPU-8f1c2d3e,MIG-9a8b7c6d-1a2b")
        assert "8f1c2d3e" not in done.stdout
        assert "9a8b7c6d" not in done.stdout
    named = person.run("facts", "--json", "--identify", CUDA_VISIBLE_DEVICES="GPU-8f1c2d3e")
    assert "8f1c2d3e" in named.stdout

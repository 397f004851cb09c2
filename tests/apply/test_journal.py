"""The journal: what is in it survives, what was cut off is dropped, what was edited is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.apply.disk import Disk
from firstlight.apply.journal import Journal
from firstlight.apply.stored_steps import steps_to_json
from firstlight.errors import BadInput
from tests.apply.acting import step


def _open(path: Path) -> Journal:
    journal = Journal(str(path), disk=Disk(), now=lambda: "2026-11-15T00:00:00Z")
    journal.open()
    return journal


def _begin(journal: Journal, **about: Any) -> None:
    journal.add("run-begun", **{"run": 1, "digest": "d", "option": "o", "title": "t", "steps": [], **about})


def test_what_was_added_is_read_back_in_order(tmp_path: Path) -> None:
    first = _open(tmp_path / "deep/er/journal.jsonl")
    _begin(first, title="a title with \n and ü")
    first.add("run-done", run=1)
    first.close()
    again = _open(tmp_path / "deep/er/journal.jsonl")
    assert [(record.number, record.event) for record in again.records] == [(1, "run-begun"), (2, "run-done")]
    assert again.records[0].about["title"] == "a title with \n and ü"


@pytest.mark.parametrize("kept", [1, 10, 60, -1])
def test_a_last_line_that_was_cut_off_is_dropped_and_writing_goes_on(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "journal.jsonl"
    journal = _open(path)
    _begin(journal, steps=steps_to_json((step("01"),)))
    whole = path.stat().st_size
    journal.add("step-begun", run=1, step="01")
    journal.close()
    torn = path.read_bytes()
    path.write_bytes(torn[: whole + kept] if kept > 0 else torn[:kept])
    again = _open(path)
    assert [record.event for record in again.records] == ["run-begun"]
    again.add("step-begun", run=1, step="01")
    again.close()
    assert path.read_bytes() == torn


def test_an_edited_journal_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = _open(path)
    _begin(journal, option="a")
    journal.add("run-done", run=1)
    journal.close()
    path.write_bytes(path.read_bytes().replace(b'"option": "a"', b'"option": "b"'))
    with pytest.raises(BadInput, match=r"line 2: the line before it"):
        _open(path)


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("hello\nworld\n")
    with pytest.raises(BadInput, match="line 1: not a line of a firstlight journal"):
        _open(path)
    assert path.read_text() == "hello\nworld\n"


def test_a_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    _open(tmp_path / "state/journal.jsonl").close()
    assert (tmp_path / "state/journal.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700

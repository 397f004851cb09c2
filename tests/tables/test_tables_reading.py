"""A row that is not right is refused, with its file, its number and the field."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import BadInput
from firstlight.tables import Tables, load

SHIPPED = Path(load().folder)
GOOD = {
    "branch": 580,
    "native_cuda": "13.0",
    "source": "docs.nvidia.com, a page",
    "date": "2026-11-15",
    "confidence": "documented",
}


def planted(folder: Path, *rows: Any) -> Tables:
    """A folder of tables whose driver_branches has these rows."""
    document = {"subject": "driver_branches", "about": "Planted rows.", "rows": list(rows)}
    (folder / "driver_branches.json").write_text(json.dumps(document))
    return load(str(folder))


def refusal(tables: Tables) -> str:
    with pytest.raises(BadInput) as caught:
        tables.branch(580)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_row_is_read_into_types(tmp_path: Path) -> None:
    row = planted(tmp_path, GOOD).branch(580)
    assert row is not None
    assert (row.branch, str(row.native_cuda), row.date.year, row.note) == (580, "13.0", 2026, "")


@pytest.mark.parametrize("field", ["source", "date", "confidence", "branch", "native_cuda"])
def test_a_missing_field_is_named_with_file_and_row(tmp_path: Path, field: str) -> None:
    bad = {name: value for name, value in GOOD.items() if name != field}
    text = refusal(planted(tmp_path, {**GOOD, "branch": 575}, bad))
    assert f"{tmp_path}/driver_branches.json: row 2.{field}: missing" in text


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("source", "  ", "row 1.source: empty"),
        ("source", 7, "row 1.source: expected text, found 7"),
        ("date", "15.11.2026", "row 1.date: "),
        ("date", "2026-13-01", "row 1.date: "),
        ("confidence", "sure", "row 1.confidence: 'sure' is not one of measured, documented, reported"),
        ("native_cuda", "thirteen", "row 1.native_cuda: 'thirteen' is not a CUDA version"),
        ("native_cuda", 13.0, "row 1.native_cuda: expected text, found 13.0"),
        ("native_cuda", None, "row 1.native_cuda: expected text, found None"),
        ("branch", "580", "row 1.branch: expected a whole number, found '580'"),
        ("branch", True, "row 1.branch: expected a whole number, found True"),
        ("min_driver", "580.65.06", "row 1: 'min_driver' is not a field here"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_accepted(
    tmp_path: Path, field: str, value: object, complaint: str
) -> None:
    text = refusal(planted(tmp_path, {**GOOD, field: value}))
    assert f"driver_branches.json: {complaint}" in text


def test_a_reported_row_without_a_note_is_refused(tmp_path: Path) -> None:
    assert "row 1.note: missing on a reported row" in refusal(planted(tmp_path, {**GOOD, "confidence": "reported"}))


def test_the_same_fact_in_two_rows_is_refused(tmp_path: Path) -> None:
    text = refusal(planted(tmp_path, GOOD, {**GOOD, "native_cuda": "13.1"}))
    assert "row 2: branch 580 is already row 1; one fact lives in one row" in text


def test_a_row_that_is_no_object_is_refused(tmp_path: Path) -> None:
    assert "row 1: expected an object, found list" in refusal(planted(tmp_path, [580, "13.0"]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "a table is an object with subject, about and rows"),
        ('{"subject": "driver_branches", "about": "x", "rows": [], "more": 1}', "nothing else"),
        ('{"subject": "gpus", "about": "x", "rows": []}', "subject must be 'driver_branches'"),
        ('{"subject": "driver_branches", "about": "x", "rows": {}}', "rows a list"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "driver_branches.json").write_text(text)
    assert complaint in refusal(load(str(tmp_path)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = refusal(load(str(tmp_path)))
    assert f"{tmp_path}/driver_branches.json: the table cannot be read" in text


@pytest.mark.parametrize(
    ("name", "field", "value", "complaint"),
    [
        ("torch_releases", "pins", ["triton == 3.5.0"], "'triton == 3.5.0' is not a requirement"),
        ("torch_releases", "compiled_for", "9.0", "expected a list"),
        ("torch_releases", "compiled_for", ["nine"], "'nine' is not a compute capability"),
        ("torch_releases", "wheel_mb", "899.7", "expected a number"),
        ("sonames", "in_newest", 1, "expected true or false"),
        ("cuda_majors", "min_driver_same_major", "R580", "'R580' is not a driver version"),
        ("branch_life", "kind", "forever", "not one of long-term support, production, new feature"),
    ],
)
def test_each_kind_of_field_has_its_own_complaint(
    tmp_path: Path, name: str, field: str, value: object, complaint: str
) -> None:
    document = json.loads((SHIPPED / f"{name}.json").read_text())
    document["rows"][0][field] = value
    (tmp_path / f"{name}.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=rf"row 1\.{field}(\[0\])?: ") as caught:
        load(str(tmp_path)).rows(name)
    assert complaint in str(caught.value)


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    tables = load(str(tmp_path))
    shutil.copy(SHIPPED / "cuda_majors.json", tmp_path)
    assert len(tables.cuda_majors) == 3
    with pytest.raises(BadInput):
        tables.gpu_named("NVIDIA H200")


def test_a_table_is_read_once(tmp_path: Path) -> None:
    shutil.copy(SHIPPED / "cuda_majors.json", tmp_path)
    first = load(str(tmp_path)).cuda_majors
    (tmp_path / "cuda_majors.json").unlink()
    assert load(str(tmp_path)).cuda_majors is first

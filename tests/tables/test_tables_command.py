"""`firstlight tables`: the list, the columns, the JSON document."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from firstlight.cli.tables import command
from firstlight.diagnosis.error_table import printed_subjects, tables_with_errors
from firstlight.diagnosis.signatures import signatures
from firstlight.errors import BadInput
from firstlight.report.tables_text import list_text, rows_text
from firstlight.tables.subjects import ERROR_TEXTS, GROUPS, subjects_called

TABLES, SUBJECTS = tables_with_errors(), printed_subjects()
SCHEMA = json.loads((Path(TABLES.folder).parents[1] / "schemas" / "tables-1.json").read_text())
TODAY = datetime.date(2026, 11, 20)


def run(*arguments: str, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(command, list(arguments))


def printed(*arguments: str, columns: int = 100) -> str:
    result = run(*arguments, columns=columns)
    assert result.exit_code == 0, result.exception
    return result.output


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(*arguments, "--json"))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def test_without_a_subject_every_table_is_listed_with_its_count_and_the_date() -> None:
    text = printed()
    assert text.splitlines()[0].endswith(f"{TABLES.newest_date()}. Every row names its source.")
    for subject in SUBJECTS:
        assert re.search(rf"^  {subject.name} +{len(TABLES.rows(subject.name))}  \S", text, re.MULTILINE), subject
    for group in GROUPS:
        assert re.search(rf"^{group}$", text, re.MULTILINE)


def test_a_group_prints_each_of_its_tables() -> None:
    text = printed("cuda")
    headings = re.findall(r"^(\w+): .+\n-+$", text, re.MULTILINE)
    assert headings == [subject.name for subject in SUBJECTS if subject.group == "cuda"]


def test_one_table_in_full() -> None:
    assert printed("cuda_majors") == (
        "cuda_majors: oldest driver that runs each CUDA major\n"
        "----------------------------------------------------\n"
        "The oldest Linux driver that runs each CUDA major without forward compatibility.\n"
        "\n"
        "CUDA  oldest driver  upper bound                                 how known\n"
        "----  -------------  ------------------------------------------  -----------------\n"
        "11.x  450.80.02      none in practice: 525 and later run it too  documented [1]\n"
        "12.x  525.60.13      none in practice: 580 and later run it too  documented [1]\n"
        "13.x  580.65.06      none                                        documented [1] a)\n"
        "\n"
        "[1] docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition\n"
        "a) NVIDIA's text says >= 580 and no finer number; 580.65.06 is the first driver of that branch, its\n"
        "   own example and the one in the 13.0.0 runfile. 580.95.05 is only what 13.0.2 shipped.\n"
    )


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_table_fits_into_100_columns_and_shows_a_line_for_each_row(subject: Any) -> None:
    lines = printed(subject.name).splitlines()
    # an address stays in one piece, so that it can be opened
    assert [line for line in lines if len(line) > 100 and not re.fullmatch(r"(?:\[\d+\])? +\S+", line)] == []
    rule = next(number for number, line in enumerate(lines) if number > 2 and re.fullmatch(r"-+(  -+)*", line))
    body = lines[rule + 1 : lines.index("", rule)]
    left_out = sum(int(found[1]) for line in lines if (found := re.match(r"With --json: (\d+) more rows", line)))
    assert len(body) + left_out >= len(TABLES.rows(subject.name))
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_mark_points_to_a_source_and_every_source_is_pointed_to(subject: Any) -> None:
    text = printed(subject.name)
    head, _, foot = text.rpartition("\n\n")
    numbered = re.findall(r"^\[(\d+)\] ", foot, re.MULTILINE)
    assert numbered == [str(number) for number in range(1, len(numbered) + 1)]
    marks = re.findall(r"(?:measured|documented|reported) \[(\d+)\]", text)
    assert set(marks) == set(numbered)
    lettered = re.findall(r"^([a-z]+)\) ", foot, re.MULTILINE)
    assert lettered == [chr(ord("a") + place % 26) * (place // 26 + 1) for place in range(len(lettered))]
    assert set(re.findall(r"\] ([a-z]+)\)", text)) == set(lettered)
    assert head


def test_a_narrow_terminal_gets_narrower_columns() -> None:
    wide, narrow = printed("companions"), printed("companions", columns=80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines()))


def test_sources_prints_each_row_with_its_own() -> None:
    text = printed("branch_life", "--sources")
    assert " ".join(text.split()).count("documented: docs.nvidia.com/datacenter/tesla/drivers/615/") == 4
    assert "  branch 580; kind long-term support; supported until 2028-06\n" in text


def test_the_list_as_json_has_counts_and_no_rows() -> None:
    found = document()
    assert next(iter(found)) == "schema"
    assert found["schema"] == "firstlight.tables/1"
    assert [table["name"] for table in found["tables"]] == [subject.name for subject in SUBJECTS]
    assert not [table for table in found["tables"] if "rows" in table]


def test_everything_as_json_is_what_the_files_say() -> None:
    found = document("all")
    for table in found["tables"]:
        if table["name"] == ERROR_TEXTS.name:
            continue  # its rows stand with their patterns in diagnosis
        stored = json.loads((Path(TABLES.folder) / f"{table['name']}.json").read_text())
        assert table["about"] == stored["about"]
        assert table["row_count"] == len(table["rows"]) == len(stored["rows"])
        for row, original in zip(table["rows"], stored["rows"], strict=True):
            assert {name: row[name] for name in original} == original


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_as_json_follows_the_schema(group: str) -> None:
    names = [table["name"] for table in document(group)["tables"]]
    assert names == [subject.name for subject in subjects_called(group, SUBJECTS)]


def test_the_group_errors_has_every_error_text_with_product_family_and_source() -> None:
    [table] = [each for each in document("errors")["tables"] if each["name"] == "error_texts"]
    rows = {row["code"]: row for row in table["rows"]}
    assert list(rows) == [row["code"] for row in sorted(table["rows"], key=lambda row: (row["product"], row["code"]))]
    assert {
        code: (row["product"], row["family"], row["title"], row["source"], row["date"]) for code, row in rows.items()
    } == {
        each.code: (each.product or "general", each.family, each.title, "; ".join(each.source), each.date)
        for each in signatures()
    }


def test_the_schema_refuses_a_row_without_a_source_and_an_unknown_confidence() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for field, value in (("source", None), ("confidence", "sure"), ("date", "yesterday")):
        found = document("cuda_majors")
        if value is None:
            del found["tables"][0]["rows"][0][field]
        else:
            found["tables"][0]["rows"][0][field] = value
        assert not validator.is_valid(found), field


@pytest.mark.parametrize(
    ("given", "advice"),
    [("cuda_major", "Did you mean cuda_majors?"), ("weather", "Run `firstlight tables` for the list.")],
)
def test_an_unknown_table_is_one_line_with_what_is_accepted(given: str, advice: str) -> None:
    result = run(given)
    assert isinstance(result.exception, BadInput)
    assert result.exception.exit_code == 2
    text = str(result.exception)
    assert text.startswith(f"no table is called '{given}'; accepted: a group (cuda, compat, gpu,")
    assert text.endswith(advice)
    assert "\n" not in text


def test_a_name_may_be_written_with_hyphens_and_capitals() -> None:
    assert printed("Error-Codes") == printed("error_codes")


def test_old_tables_warn_in_every_form() -> None:
    later = TABLES.newest_date() + datetime.timedelta(days=400)
    chosen = subjects_called("cuda_majors")
    assert "warn: The tables were last checked 400 days ago" in list_text(TABLES, SUBJECTS, today=later)
    assert "warn: The tables were last checked 400 days ago" in rows_text(TABLES, chosen, width=100, today=later)
    assert "warn:" not in list_text(TABLES, SUBJECTS, today=TODAY)
    assert "warn:" not in rows_text(TABLES, chosen, width=100, today=TODAY)


def test_in_a_pipe_the_output_is_plain_text_of_100_columns() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "tables", "compat"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert "\x1b" not in done.stdout
    assert 80 < max(map(len, done.stdout.splitlines())) <= 100
    assert done.stderr == ""


def test_the_help_names_every_group() -> None:
    said = CliRunner().invoke(command, ["--help"]).output
    assert [group for group in GROUPS if group not in said] == []

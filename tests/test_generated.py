"""What is generated is current: rebuilt machines, the README's parts, the rule pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from benchmarks import explain_recall

from tools import doctor_picture, generate, make_by_person, make_explain_page, make_platforms, make_schemas
from tools.machines.__main__ import EXAMPLES, MACHINES
from tools.make_readme import BENCH, PAGES, bench_table
from tools.schemas import Document, schema_of_document

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)
def test_a_rebuilt_machine_is_what_its_recipe_gives(make: object) -> None:
    assert callable(make)
    machine = make()
    stored = json.loads((ROOT / "tests" / "machines" / machine.name / "machine.json").read_text())
    assert machine.document() == stored, f"run: python -m tools.machines {machine.name}"


def test_the_bundled_examples_are_what_their_recipes_give() -> None:
    for make in EXAMPLES:
        machine = make()
        path = ROOT / "src" / "firstlight" / "examples" / f"{machine.name}.json"
        assert machine.document() == json.loads(path.read_text())


def test_the_readme_and_the_pages_with_screens_and_tables_are_current() -> None:
    for page, fill in PAGES.items():
        assert fill(page.read_text()) == page.read_text(), f"{page.name}: run: python -m tools.generate readme"


def test_the_picture_of_the_first_screen_is_current_and_in_colour() -> None:
    drawn = doctor_picture.picture()
    assert drawn == doctor_picture.PICTURE.read_text(), "run: python -m tools.generate readme"
    assert "BLOCKED" in drawn
    assert "font-weight: bold" in drawn
    assert "://" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_the_list_of_what_is_left_to_a_person_is_current() -> None:
    page = make_by_person.PAGE.read_text()
    assert "<!-- generated: by-person -->" in page
    assert make_by_person.filled(page) == page, "run: python -m tools.generate by-person"


def test_the_page_of_the_platforms_is_current() -> None:
    page = make_platforms.PAGE.read_text()
    assert page.count("<!-- generated: ") == 3
    assert make_platforms.filled(page) == page, "run: python -m tools.generate platforms"


def test_the_page_of_explain_is_current() -> None:
    page = make_explain_page.PAGE.read_text()
    assert "<!-- generated: explain-speed -->" in page
    assert make_explain_page.filled(page) == page, "run: python -m tools.generate explain-page"


def test_the_page_lists_every_text_that_explain_did_not_answer_rightly() -> None:
    page = explain_recall.PAGE.read_text()
    assert page.count("<!-- generated: misses of ") == len(explain_recall.SETS) + len(explain_recall.LINKS_ALONE)
    assert explain_recall.filled(page) == page, "run: python -m benchmarks.explain_recall --misses"
    for name, judged in explain_recall.SETS.items():
        document = json.loads((explain_recall.FOLDER / judged).read_text())
        wrong = [link for link, each in document["judged"].items() if each["verdict"] == "wrong"]
        told = explain_recall.misses(name)
        assert [link for link in (*document.get("wrong", ()), *wrong) if link not in told] == []
    for name, judged in explain_recall.LINKS_ALONE.items():
        verdicts = json.loads((explain_recall.FOLDER / judged).read_text())["judged"]
        not_right = [link for link, each in verdicts.items() if each["verdict"] != "right"]
        assert [link for link in not_right if f"({link})" not in explain_recall.misses_of_links(name)] == []
        assert explain_recall.report_of_links(name).startswith(f"{name}: {len(verdicts)} texts")


def test_every_schema_is_made_from_types() -> None:
    assert {path.stem for path in generate.SCHEMAS.iterdir()} == {each.file for each in make_schemas.DOCUMENTS}


@pytest.mark.parametrize("document", make_schemas.DOCUMENTS, ids=lambda document: document.file)
def test_a_schema_is_what_the_types_of_its_document_give(document: Document) -> None:
    made = schema_of_document(document)
    jsonschema.Draft202012Validator.check_schema(made)
    stored = (generate.SCHEMAS / f"{document.file}.json").read_text()
    assert stored == generate.as_json(made), "run: python -m tools.generate schemas"


def _no_commit(run: dict[str, Any], figure: dict[str, Any]) -> None:
    run["run"]["commit"] = None


def _no_samples(run: dict[str, Any], figure: dict[str, Any]) -> None:
    figure["passes"][-1]["samples"] = []


def _no_clocks(run: dict[str, Any], figure: dict[str, Any]) -> None:
    figure["telemetry"]["sm_mhz"] = None


def _no_telemetry(run: dict[str, Any], figure: dict[str, Any]) -> None:
    figure["telemetry"] = None


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_no_commit, "names no commit"),
        (_no_samples, "holds no samples"),
        (_no_clocks, "holds no clocks"),
        (_no_telemetry, "holds no clocks"),
    ],
)
def test_the_readme_takes_no_figures_without_their_evidence(tmp_path: Path, spoil: Any, reason: str) -> None:
    run = json.loads((ROOT / "results" / BENCH).read_text())
    case = next(case for case in reversed(run["cases"]) if case["figures"])  # one that has no row in the table
    spoil(run, case["figures"][-1])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    with pytest.raises(SystemExit, match=reason):
        bench_table(path)


def test_each_generator_is_named_once_and_a_stale_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    own = {path.stem for path in (ROOT / "tools").glob("make_*.py")}
    with_an_index_or_a_browser = {"make_sonames", "make_build_options", "make_report_002", "make_report_pictures"}
    assert set(generate.WHAT.values()) == own - with_an_index_or_a_browser
    assert generate.main(["schemas", "--check"]) == 0
    stale = generate.SCHEMAS / "facts-1.json"
    kept = stale.read_text()
    try:
        stale.write_text("{}\n")
        assert generate.main(["schemas", "--check"]) == 1
        assert "facts-1.json is not current; run: python -m tools.generate schemas" in capsys.readouterr().out
        assert stale.read_text() == "{}\n"
        assert generate.main(["schemas"]) == 0
        assert stale.read_text() == kept
    finally:
        stale.write_text(kept)

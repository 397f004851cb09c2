"""Files as found in public repositories, judged by hand before lint was run: how often it is right about them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.lint_corpus import Claim, Score, blocks_of, document, report, score_of, total

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
RESULT = json.loads((ROOT / "results/lint-corpus.json").read_text())


def test_what_is_said_of_judged_files_is_right_and_little_is_missed() -> None:
    cases = [path.parent for path in sorted(CORPUS.glob("*/case.json"))]
    assert len(cases) >= 120
    score = total([score_of(each) for each in cases])
    said = report(score, len(cases))
    assert score.precision("blocks") >= 0.97, said
    assert score.precision("degrades", "note") >= 0.92, said
    assert score.recall >= 0.9, said
    assert document(score, len(cases), CORPUS) == RESULT, "python -m benchmarks.lint_corpus ... --out writes it anew"


def test_the_page_of_tests_has_the_figures_of_the_results() -> None:
    page = (ROOT / "docs/tested.md").read_text()
    for each in RESULT["first_runs"]["sets"]:
        assert f"| {each['set']}, first run | {_figures(each)} |" in page
    assert f"| all of them, once what those runs showed was corrected | {_figures(RESULT['now'])} |" in page
    assert f"{RESULT['now']['files']} files as found in public repositories" in page


def test_the_page_says_what_became_of_advice_that_was_followed() -> None:
    page = " ".join((ROOT / "docs/tested.md").read_text().split())
    found = json.loads((ROOT / "results/lint-followed.json").read_text())
    ends = found["reports"]
    share = round(100 * found["followed"] / found["findings"])
    assert f"Of {found['findings']:,} findings in the judged files {found['followed']:,} ({share} %) have" in page
    assert f"Of {sum(ends.values()) - ends['no block']:,} reports with a block {ends['none after run 1']} have" in page
    assert f"{ends['none after run 2']} after those of a second run" in page
    assert f"{ends['a person']} need a person, and none goes on for ever" in page
    assert set(ends) == {"no block", "none after run 1", "none after run 2", "a person"}


def _figures(row: dict[str, float]) -> str:
    return f"{row['files']} | " + " | ".join(
        f"{row[key]:.3f}" for key in ("precision_blocks", "precision_rest", "recall")
    )


def test_a_line_counts_within_its_instruction_service_or_step() -> None:
    dockerfile = "FROM a\nRUN b \\\n  && c\nENV D=1\n"
    assert blocks_of("Dockerfile", dockerfile) == [(1, 1), (2, 3), (4, 4)]
    assert blocks_of("compose.yml", "services:\n  a:\n    image: b\n  c:\n    image: d\n") == [(1, 1), (2, 3), (4, 5)]
    assert blocks_of("requirements.txt", "torch\nvllm\n") == [(1, 1), (2, 2)]


def test_precision_is_of_what_is_said_and_recall_of_what_was_expected() -> None:
    right, false = (Claim("a", "h100-570", code, "blocks", 1, (1, 1), "") for code in ("x", "y"))
    score = Score((right, right, right), (false,), (right,), expected=4)
    assert (score.precision("blocks"), score.precision("note"), score.recall) == (0.75, 1.0, 0.75)

"""`firstlight doctor` as a person or a script meets it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.finding import Finding, Question, Rule, Seen, Severity
from firstlight.diagnosis.judge import judge
from firstlight.tables import load
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/diagnosis-2.json").read_text())
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["doctor", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", NAMES)
def test_the_document_fits_its_schema_and_the_exit_code_says_whether_something_blocks(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _doctor(capsys, "--facts", str(MACHINES / name), "--json")
    document: dict[str, Any] = json.loads(out)
    fits(document, SCHEMA)
    assert next(iter(document)) == "schema"
    assert code == int(document["blocked"])
    assert err == ""
    assert sum(finding["primary"] for finding in document["findings"]) == (document["primary"] is not None)


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_fits_and_its_lines_are_not_too_long(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / name))
    lines = out.splitlines()
    assert len(lines) <= 60
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in out


def test_a_healthy_machine_says_so_in_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h200"))
    assert code == 0
    assert len(out.splitlines()) == 3
    assert "healthy" in out
    assert "verified" not in out


def test_the_options_follow_the_primary_finding_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h100-driver-570"))
    start = out.index("\noptions, best first")
    assert out.index("[driver-too-old-for-wheel]") < start < out.index("\nalso\n") < out.index("\nnext\n")
    rows = [line for line in out.splitlines() if line.startswith(("  1. ", "  2. ", "  3. "))]
    assert [row[:5] for row in rows] == ["  1. ", "  2. ", "  3. "]
    assert "\n  do  " not in out, "what to do is said by the options alone"


def test_with_all_no_finding_that_the_first_option_answers_names_another_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h100-driver-570"), "--all")
    first, second = (part.partition("\n\n")[0] for part in out.split("BLOCKED: ")[1].split("WORKS, BUT: ")[:2])
    assert "\n  do      option 1, below" in first
    assert "[duplicate-distributions]" in second


def test_what_to_type_next_speaks_of_the_same_machine_and_wants(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--facts", str(MACHINES / "h100-driver-570"), "--want", "torch==2.9.0+cu130", "--goal", "train")
    _, out, _ = _doctor(capsys, *asked)
    lines = out.partition("\nnext\n")[2].replace(" \\\n", " ").splitlines()
    calls = [shlex.split(line) for line in lines]
    assert calls[0][:2] == ["firstlight", "plan"], "another machine's facts cannot be applied here"
    for call in calls:
        assert call[0] == "firstlight"
        for word in asked:
            assert word in call
        assert run(call[1:]) in (0, 1)
        assert capsys.readouterr().err == ""


def test_a_machine_without_a_fault_is_shown_no_options(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h200", "gpu-less", "wsl2-healthy", "b200-driver-610"):
        assert "options" not in _doctor(capsys, "--facts", str(MACHINES / name))[1]


def test_the_document_lists_the_options_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h200-compat-first"), "--json")
    assert json.loads(out)["options"][0]["kind"] == "remove-what-is-in-the-way"
    assert json.loads(out)["options"][0]["ways"][0]["type"] == "unwire"
    _, healthy, _ = _doctor(capsys, "--facts", str(MACHINES / "h200"), "--json")
    assert [option["kind"] for option in json.loads(healthy)["options"]] == ["nothing-to-do"]


def test_wants_that_clash_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    wants = ("--want", "torch==2.9.0+cu130", "--want", "vllm==0.11.0")
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h100-driver-570"), *wants)
    assert "refused  vllm 0.11.0 requires torch==2.8.0; wanted is torch==2.9.0+cu130." in out


def test_a_healthy_machine_is_told_how_to_get_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h100-driver-550-cu128"), "--want", "vllm==0.11.0")
    assert code == 0
    assert "\noptions, best first" in out
    assert "vllm==0.11.0" in out


def test_facts_saved_as_a_document_get_the_same_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h200-compat-first", "h100-driver-570", "thor-missing-libraries"):
        assert run(["facts", "--json", "--facts", str(MACHINES / name)]) == 0
        saved = tmp_path / f"{name}.json"
        saved.write_text(capsys.readouterr().out)
        found = [_doctor(capsys, "--facts", str(each)) for each in (saved, MACHINES / name)]
        # Steps read files of a recorded machine, which a document of facts does not hold.
        shown = [out.partition("\noptions, best first")[0] for _, out, _ in found]
        assert shown[0] == shown[1]
        assert found[0][0] == found[1][0]


def test_what_is_wanted_is_judged_before_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    machine = str(MACHINES / "h100-driver-550-cu128")
    assert _doctor(capsys, "--facts", machine)[0] == 0
    code, out, _ = _doctor(capsys, "--facts", machine, "--want", "torch==2.9.0+cu130")
    assert code == 1
    assert "driver-too-old-for-wheel" in out
    assert _doctor(capsys, "--facts", str(MACHINES / "gpu-less"))[0] == 0
    assert _doctor(capsys, "--facts", str(MACHINES / "gpu-less"), "--want", "torch==2.9.0+cu130")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--want", "numpy"), "numpy is not a project that firstlight plans for"),
        (("--want", "torch==banana"), "not a version bound"),
        (("--goal", "win"), "infer"),
        (("--explain-rule", "compat-stail"), "compat-stale"),
        (("--why-not", "nothing-like-it-at-all"), "is not the code of a rule"),
        (("--facts", "/no/such/file"), "no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    look = () if "--facts" in arguments else ("--facts", str(MACHINES / "h200"))
    code, out, err = _doctor(capsys, *look, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert named in err


def test_why_not_shows_the_condition_beside_what_the_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _doctor(capsys, "--facts", str(MACHINES / "h200"), "--why-not", "compat-stale")
    assert out.startswith("compat-stale did not fire.")
    assert "580.159.04" in out
    _, fired, _ = _doctor(capsys, "--facts", str(MACHINES / "h200-compat-first"), "--why-not", "compat-stale")
    assert fired.startswith("compat-stale did fire")


def _rule(code: str, *explains: str, depth: int = 10, severity: Severity = Severity.BLOCKS) -> Rule:
    def check(_: Question) -> Iterator[Seen]:
        yield Seen(f"saw {code}")

    check.__name__ = code.replace("-", "_")
    return Rule(
        check=check,
        severity=severity,
        depth=depth,
        title="T.",
        fires_when="F.",
        looks_at=("driver",),
        means="M.",
        error="",
        source="s",
        ways=(),
        explains=explains,
    )


def _judged(*rules: Rule) -> dict[str, Finding]:
    return {finding.code: finding for finding in judge(Question(facts_of("h200"), load()), rules).findings}


def test_symptoms_are_folded_under_the_top_of_their_chain() -> None:
    found = _judged(_rule("a-a", "b-b"), _rule("b-b", "c-c"), _rule("c-c"))
    assert found["c-c"].caused_by == "a-a"
    assert found["b-b"].caused_by == "a-a"
    assert found["a-a"].caused_by == ""


def test_rules_that_explain_each_other_do_not_hang_and_one_stays_primary() -> None:
    diagnosis = judge(Question(facts_of("h200"), load()), (_rule("a-a", "b-b"), _rule("b-b", "a-a")))
    assert diagnosis.primary in ("a-a", "b-b")


def test_the_primary_is_the_worst_then_the_most_basic_and_never_a_note() -> None:
    rules = (
        _rule("deep-one", depth=50),
        _rule("basic-one", depth=10),
        _rule("a-note", depth=1, severity=Severity.NOTE),
    )
    assert judge(Question(facts_of("h200"), load()), rules).primary == "basic-one"
    assert judge(Question(facts_of("h200"), load()), rules[2:]).primary == ""

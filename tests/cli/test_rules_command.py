"""`firstlight rules`, `doctor --short`, and what is listed where there is no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.finding import WORST_FIRST
from firstlight.diagnosis.rules import RULES
from firstlight.facts.document import examples
from tests.diagnosis.rule_case import MACHINES
from tests.schemas import fits

SCHEMAS = Path(__file__).parents[2] / "src" / "firstlight" / "schemas"
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))[::6]
_WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from firstlight.cli.main import main; main(sys.argv[1:])"


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_rule_is_listed_once_under_its_severity(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _said(capsys, "rules")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line[2] != " "]
    by_depth = sorted(RULES, key=lambda rule: rule.depth)
    wanted = [rule.code for severity in WORST_FIRST for rule in by_depth if rule.severity is severity]
    assert listed[:-1] == wanted  # the last line names the command


def test_the_list_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _said(capsys, "rules", "--json")
    document = json.loads(out)
    fits(document, json.loads((SCHEMAS / "rules-1.json").read_text()))
    assert code == 0
    assert len(document["rules"]) == sum(document["counts"].values()) == len(RULES)


def test_one_rule_is_what_doctor_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert _said(capsys, "rules", "compat-stale") == _said(capsys, "doctor", "--explain-rule", "compat-stale")
    document = json.loads(_said(capsys, "rules", "compat-stale", "--json")[1])
    fits(document, json.loads((SCHEMAS / "rule-2.json").read_text()))
    assert len(document["ways"]) == len(set(document["ways"]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("rules", "driver-too-old"), "Did you mean driver-too-old-for-wheel"),
        (("rules", "qqq"), "`firstlight rules` lists all of them"),
        (("rules", "compat-stale", "--severity", "note"), "were both given"),
        (("doctor", "--short", "--json"), "were both given"),
        (("doctor", "--short", "--gate"), "were both given"),
    ],
)
def test_a_bad_call_is_refused_in_a_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _said(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize("name", NAMES)
def test_the_short_answer_is_one_line_with_the_exit_code_of_the_long_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _said(capsys, "doctor", "--short", "--facts", str(MACHINES / name))
    document = json.loads(_said(capsys, "doctor", "--json", "--facts", str(MACHINES / name))[1])
    assert (out.count("\n"), err) == (1, "")
    assert code == int(document["blocked"])
    assert ("BLOCKED" in out) == document["blocked"]
    assert (document["primary"] or "") in out


def test_every_example_has_something_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(examples()) == 4
    for name in examples():
        code, out, _ = _said(capsys, "doctor", "--short", "--facts", f"example:{name}")
        assert out.startswith(("BLOCKED", "WORKS, BUT"))
        assert code == int(out.startswith("BLOCKED"))


def test_cases_are_listed_and_a_wrong_file_is_blamed_without_torch() -> None:
    def said(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", _WITHOUT_TORCH, *words], capture_output=True, text=True)

    listed = said("bench", "--list")
    assert listed.returncode == 0
    assert "gemm/bf16/8192x8192x8192" in listed.stdout
    assert "torch cannot be imported here" in listed.stderr
    wrong = said("bench", "missing.py")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "missing.py: there is no such file" in wrong.stderr


def test_a_file_is_no_folder_to_record_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    code, _, err = _said(capsys, "facts", "--record", str(tmp_path / "file"))
    assert code == 2
    assert "this is a file; accepted is a folder" in err
    assert (tmp_path / "file").read_text() == "mine"

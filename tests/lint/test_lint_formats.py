"""SARIF and GitHub's commands say what the text says, in the form that their readers take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from firstlight.cli.lint import command
from firstlight.diagnosis.finding import Severity
from firstlight.errors import BadInput
from firstlight.lint.kinds import known_kind
from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.report.lint_github import github_text
from firstlight.report.lint_sarif import sarif_document
from tests.lint.linting import H100_550, machine
from tests.lint.test_lint_cli import _lint

ROOT = Path(__file__).parents[2]
# What GitHub's code scanning demands of a SARIF 2.1.0 file; the whole schema of OASIS was tried by hand.
_TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_URI = {"type": "string", "format": "uri-reference", "pattern": r"^[A-Za-z0-9/._~!$&'()*+,;=@%:-]+$"}
SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/run"}},
    },
    "$defs": {
        "run": {
            "required": ["tool", "results"],
            "properties": {
                "tool": {"properties": {"driver": {"required": ["name", "rules"], "properties": {
                    "rules": {"items": {"required": ["id", "shortDescription", "fullDescription"], "properties": {
                        "shortDescription": _TEXT, "fullDescription": _TEXT, "helpUri": _URI}}}}}}},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
        },
        "result": {
            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
            "properties": {
                "level": _LEVEL,
                "message": _TEXT,
                "locations": {"minItems": 1, "items": {"properties": {"physicalLocation": {
                    "properties": {"artifactLocation": {"properties": {"uri": _URI}, "required": ["uri"]},
                                   "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}}},
                    "required": ["artifactLocation", "region"]}}}},
                "suppressions": {"items": {"required": ["kind"], "properties": {"kind": {"const": "inSource"}}}},
            },
        },
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a b, c").mkdir()
    (tmp_path / "a b, c" / "requirements.txt").write_text(
        "--extra-index-url https://user:hunter2word@example.org/whl/cu130\ntorch==2.9.0+cu130\n"
    )
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.12\n# firstlight: ignore[torch-needs-newer-driver] because 100%\nRUN pip install torch==2.12.0\n"
    )
    (tmp_path / "values.yaml").write_text("image: a\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "compose.yaml").write_text("services: {a: [\n")
    for left_out in (".git", "node_modules", ".venv"):
        (tmp_path / left_out).mkdir()
        (tmp_path / left_out / "requirements.txt").write_text("torch==2.12.0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_read_whole_and_what_cannot_be_read_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = _lint(capsys, ".", "--for", H100_550, "--json")
    document = json.loads(out)
    jsonschema.validate(document, json.loads((ROOT / "src/firstlight/schemas/lint-3.json").read_text()))
    assert [each["file"] for each in document["files"]] == [
        "Dockerfile",
        "a b, c/requirements.txt",
        "broken/compose.yaml",
    ]
    assert code == int(document["blocked"]) == 1
    assert "not YAML" in document["files"][2]["not_judged"][0]
    assert document["files"][0]["ignored"][0]["reason"] == "100%"
    assert "hunter2word" not in out


def test_sarif_has_every_finding_with_its_place_and_what_is_silenced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = _lint(capsys, ".", "--for", H100_550, "--format", "sarif")
    document = json.loads(out)
    jsonschema.validate(document, SARIF, format_checker=jsonschema.FormatChecker())
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    places = {(each["ruleId"], each["level"], *_place(each)) for each in run["results"]}
    assert ("torch-needs-newer-driver", "error", "a%20b,%20c/requirements.txt", 2) in places
    (silenced,) = [each for each in run["results"] if each.get("suppressions")]
    assert _place(silenced) == ("Dockerfile", 3)
    assert silenced["suppressions"] == [{"kind": "inSource", "justification": "100%"}]
    assert code == 1
    assert "hunter2word" not in out


def _place(result: dict[str, Any]) -> tuple[str, int]:
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


def test_a_silenced_finding_alone_ends_with_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = _lint(capsys, "Dockerfile", "--for", H100_550)
    assert code == 0
    assert "ignored     Dockerfile:3 [torch-needs-newer-driver]: 100%" in out


def test_github_gets_one_command_for_each_finding_with_its_signs_escaped() -> None:
    finding = LintFinding("a-b", Severity.BLOCKS, "x,y:z.txt", 7, "", "no 100%", "a\r\n::set-env", "b", "", (), "s")
    line = github_text([LintReport("x", (finding,), ("50% left\n",), syntax=Syntax.SHELL)])
    assert line.splitlines() == [
        r"::error file=x%2Cy%3Az.txt,line=7,title=a-b::No 100%25. Saw: a\r%0A::set-env",
        "::notice title=not judged::50%25 left%0A",
    ]


@pytest.mark.parametrize(
    ("severity", "plain", "strict"), [(Severity.BLOCKS, 1, 1), (Severity.DEGRADES, 0, 1), (Severity.NOTE, 0, 0)]
)
def test_strict_counts_what_degrades_too(
    severity: Severity, plain: int, strict: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        Severity.BLOCKS: "FROM python:3.12\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install torch==2.12.0\n",
        Severity.DEGRADES: "FROM python:3.12\nRUN pip install torch==2.5.1\n",
        Severity.NOTE: "FROM nvidia/cuda\nENV NVIDIA_DISABLE_REQUIRE=1\n",
    }
    (tmp_path / "Dockerfile").write_text(texts[severity])
    if severity is Severity.NOTE:
        (tmp_path / "Dockerfile").write_text("FROM python:latest\n")
    path = str(tmp_path / "Dockerfile")
    assert _lint(capsys, path, "--for", H100_550)[0] == plain
    assert _lint(capsys, path, "--for", H100_550, "--strict")[0] == strict


def test_the_hook_takes_the_kinds_that_lint_reads_and_calls_what_there_is() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, verb, *options = hook["entry"].split()
    known = {name for parameter in command.params for name in parameter.opts}
    assert (program, verb) == ("firstlight", "lint")
    assert set(options) <= known
    names = ("Dockerfile", "docker/gpu.Dockerfile", "Containerfile", "compose.yaml", "k8s/job.yml", "uv.lock",
             "a/pixi.toml", "pyproject.toml", "requirements-dev.txt", "requirements/base.in", "environment.yml",
             "train.sbatch", "run.sh", ".devcontainer/devcontainer.json", ".github/workflows/ci.yml")  # fmt: skip
    assert [name for name in names if not re.search(hook["files"], name)] == []
    others = ("README.md", "src/a.py", "package.json", "poetry.lock", "notes.txt")
    assert [name for name in others if re.search(hook["files"], name) or known_kind(name, "")] == []


def test_files_of_other_kinds_are_left_out_where_that_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = _lint(capsys, "values.yaml", "--skip-unknown", "--for", H100_550)
    assert (code, out) == (0, "none of the files is one that lint reads\n")
    code, out = _lint(capsys, "values.yaml", "a b, c/requirements.txt", "--skip-unknown", "--for", H100_550)
    assert code == 1
    assert out.startswith("a b, c/requirements.txt for ")


def test_the_machine_stands_in_the_document() -> None:
    assert "driver 550" in sarif_document([], machine(H100_550))["runs"][0]["properties"]["machine"]


UNREAD = {
    "Dockerfile": b"FROM python:3.12\nRUN echo \xff\n",
    "requirements.txt": b"torch\n" * (800 << 10),
    "pyproject.toml": b"[project\n",
    "environment.yml": b"a: [b\n",
    "compose.yaml": b"{{{{\n",
    ".github/workflows/x.yml": b"a: [b\n",
}


@pytest.mark.parametrize("name", list(UNREAD))
def test_a_file_of_a_folder_that_cannot_be_read_is_said_and_does_not_pass(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(UNREAD[name])
    code, alone = _lint(capsys, ".", "--for", H100_550)
    assert (code, "known to break" in alone) == (2, False)
    (tmp_path / "pixi.toml").write_text("[dependencies]\nnumpy = '*'\n")
    code, out = _lint(capsys, ".", "--for", H100_550)
    assert (code, f"not read {name}:" in " ".join(out.split())) == (2, True)
    _, sarif = _lint(capsys, ".", "--for", H100_550, "--format", "sarif")
    (ended,) = json.loads(sarif)["runs"][0]["invocations"]
    assert (ended["executionSuccessful"], ended["toolExecutionNotifications"][0]["level"]) == (False, "error")
    _, github = _lint(capsys, ".", "--for", H100_550, "--format", "github")
    assert github.startswith(f"::error title=not read::{name}:")
    with pytest.raises(BadInput, match=r"not text|larger than|not TOML|not YAML"):
        _lint(capsys, "--skip-unknown", name, "--for", H100_550)

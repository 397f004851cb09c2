"""`firstlight lint` as a person or a script meets it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest

from firstlight.cli import lint as verb
from firstlight.errors import BadInput, FirstlightError
from firstlight.lint.judge import LINT_RULES
from tests.diagnosis.rule_case import MACHINES
from tests.lint.linting import FILES, H100_550
from tests.schemas import fits

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/lint-3.json").read_text())
NAMES = sorted(path.name for path in FILES.iterdir())


@pytest.fixture(autouse=True)
def beside_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines name a file as it was given: how long the folder's name is must not change them."""
    monkeypatch.chdir(FILES)


def _lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and what was printed; errors of ours are raised, as `main` gets them."""
    try:
        code = verb.command.main(args=list(arguments), prog_name="firstlight lint", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    return code or 0, capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", [H100_550, "RTX 4090, driver 580"])
def test_the_document_fits_its_schema_and_the_exit_code_says_whether_something_blocks(
    name: str, machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = _lint(capsys, name, "--for", machine, "--json")
    document: dict[str, Any] = json.loads(out)
    fits(document, SCHEMA)
    assert next(iter(document)) == "schema"
    assert code == int(document["blocked"])
    _, text = _lint(capsys, name, "--for", machine)
    assert all(len(line) <= 140 and line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("machine", [str(MACHINES / "h200"), "example:h100-driver-570"])
def test_a_recorded_machine_is_judged_by_its_facts(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = _lint(capsys, "compat-first.Dockerfile", "--for", machine, "--json")
    found_codes = {finding["code"]: finding["severity"] for finding in json.loads(out)["files"][0]["findings"]}
    assert found_codes["compat-baked-in"] == ("blocks" if machine.endswith("h200") else "degrades")
    assert code == int(machine.endswith("h200"))


def test_a_file_without_faults_is_said_to_be_read_and_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = _lint(capsys, "good.Dockerfile", "--for", H100_550)
    assert code == 0
    assert "nothing in it is known to break there (read, not built" in out
    assert len(out.splitlines()) == 2


def test_each_finding_begins_with_file_and_line_so_that_editors_can_jump(capsys: pytest.CaptureFixture[str]) -> None:
    file = "ubuntu-24.Dockerfile"
    code, out = _lint(capsys, file, "--for", H100_550)
    assert code == 1
    assert f"\n{file}:4: blocks: " in out
    assert out.splitlines()[0].endswith(("blocks", "block", "note", "notes", "degrade", "degrades"))


def test_without_a_driver_the_report_says_that_none_was_held_against_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = _lint(capsys, "good.Dockerfile", "--for", str(MACHINES / "gpu-less"))
    assert "No driver is known for this machine" in out
    _, out = _lint(capsys, "good.Dockerfile", "--for", H100_550)
    assert "No driver is known" not in out


def test_without_for_it_is_this_machine_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = _lint(capsys, "good.Dockerfile")
    assert code in (0, 1)
    assert out.startswith("good.Dockerfile for ")


def test_build_arguments_and_target_choose_what_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    file = "multi-stage.Dockerfile"
    code, out = _lint(capsys, file, "--for", H100_550, "--build-arg", "CUDA=12.8.1", "--target", "builder")
    assert code == 0
    assert "arch-list-beyond-toolkit" not in out


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"FROM nvidia/cuda:latest\n")))
    code, out = _lint(capsys, "-", "--for", H100_550)
    assert code == 1
    assert "standard input:1: blocks" in out


def test_a_compose_file_reads_the_dockerfile_beside_it_from_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM nvidia/cuda:latest\n")
    (tmp_path / "compose.yaml").write_text("services:\n  a:\n    build: .\n    gpus: all\n    ipc: host\n")
    code, out = _lint(capsys, str(tmp_path / "compose.yaml"), "--for", H100_550)
    assert code == 1
    assert f"{tmp_path}/Dockerfile:1 (a): blocks" in out


def test_a_compose_file_whose_dockerfile_is_gone_says_that_it_was_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  a:\n    build: nowhere\n    gpus: all\n    ipc: host\n")
    code, out = _lint(capsys, str(tmp_path / "compose.yaml"), "--for", H100_550)
    assert code == 0
    assert "service a: it names no image, or its Dockerfile was not found" in " ".join(out.split())


def test_advice_to_pin_does_not_name_a_torch_that_the_driver_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim\nRUN pip install torch\n")
    _, old = _lint(capsys, str(tmp_path / "Dockerfile"), "--for", H100_550)
    assert "pin one that runs there: see torch-needs-newer-driver" in old
    assert "pin it: torch==" not in old
    _, new = _lint(capsys, str(tmp_path / "Dockerfile"), "--for", "H100, driver 580.65.06")
    assert "pin it: torch==" in new


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing/Dockerfile",), "no such file or directory; accepted: a Dockerfile, a compose file"),
        (("{folder}",), "no file in this folder is of a kind that lint reads. Accepted: a Dockerfile"),
        (("{text}", "--kind", "makefile"), "--kind 'makefile': accepted: dockerfile, compose, kubernetes"),
        (("{text}", "--format", "xml"), "accepted: text, json, sarif, github"),
        (
            ("{text}", "--format", "sarif", "--json"),
            "--json and --format sarif: two formats; ",
        ),
        (("{source}",), "not a file that lint knows by its name or content"),
        (("{prose}",), "not a file that lint knows by its name or content; it begins with 'Hello,'"),
        (("{values}",), "values.yaml: it has image, replicas; accepted: services: of a compose file"),
        (("{text}", "--for", "Voodoo 2, driver 550"), "is neither a GPU that the tables know"),
        (("{text}", "--for", "nowhere/machine.json"), "no such file; accepted: live, a facts file"),
        (("{text}", "--for", H100_550, "--build-arg", "CUDA"), "expected NAME=VALUE"),
        (("{text}", "--for", H100_550, "--target", "nope"), "has no such stage"),
        (("{binary}", "--for", H100_550), "not text"),
        (("{nul}", "--for", H100_550), "NUL byte"),
        (("{bare}", "--for", H100_550), "bare:2: FROM names no image; accepted: e.g. FROM python:3.12-slim"),
        (("{yaml}", "--for", H100_550, "--target", "x"), "compose file, which has no stages"),
    ],
)
def test_bad_input_is_one_line_with_what_is_accepted(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("FROM a\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00FROM")
    (tmp_path / "nul").write_bytes(b"FROM a\0\n")
    (tmp_path / "bare").write_text("FROM a\nFROM --platform=linux/amd64\n")
    (tmp_path / "c.yaml").write_text("services: {a: {image: b}}\n")
    (tmp_path / "prose").write_text("Hello, world\n")
    (tmp_path / "values.yaml").write_text("image: a\nreplicas: 3\n")
    (tmp_path / "dockerfile.py").write_text("x = 1\n")
    (tmp_path / "folder").mkdir()
    paths = {name: str(tmp_path / name) for name in ("text", "binary", "nul", "bare", "folder", "prose")}
    paths |= {
        "yaml": str(tmp_path / "c.yaml"),
        "values": str(tmp_path / "values.yaml"),
        "source": str(tmp_path / "dockerfile.py"),
    }
    with pytest.raises(FirstlightError) as refused:
        _lint(capsys, *(argument.format(**paths) for argument in arguments))
    assert isinstance(refused.value, BadInput)
    assert refused.value.exit_code == 2
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_hostile_file_cannot_write_control_characters_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\x1b[31m\nENV HF_HOME=/root/x\nUSER \x1b]0;x\x07\n")
    _, out = _lint(capsys, str(tmp_path / "Dockerfile"), "--for", H100_550)
    assert "user-without-access" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = _lint(capsys, "--help")
    assert 'firstlight lint Dockerfile --for "H100, driver 550"' in " ".join(out.split())


def test_the_page_lists_every_rule_with_its_severity() -> None:
    page = (ROOT / "docs/lint.md").read_text()
    for rule in LINT_RULES:
        assert f"| `{rule.code}` | {rule.severity.value} |" in page


def test_the_example_of_the_page_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/lint.md").read_text().splitlines()
    start = next(index for index, line in enumerate(page) if line.startswith("    finetune.Dockerfile:13: "))
    shown = [line.removeprefix("    ").removesuffix(" ...") for line in page[start : page.index("", start)]]
    _, out = _lint(capsys, "finetune.Dockerfile", "--for", H100_550)
    printed = out.splitlines()
    place = printed.index(shown[0])
    for line in shown:
        assert line in printed[place:]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, whom root alone can become")
def test_a_folder_that_may_not_be_read_is_said_so_not_called_empty() -> None:
    with tempfile.TemporaryDirectory() as folder:  # of its maker alone
        code = (
            "import os; from firstlight.cli.lint_files import files_given; os.setuid(65534); "
            f"list(files_given(({folder!r},), None))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert f"{folder} cannot be read: Permission denied" in done.stderr

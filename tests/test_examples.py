"""The examples that no test of a room runs: each is read by what it is written for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from firstlight.cli.main import run
from firstlight.verify.require_file import read_require_file
from tests.programs import SHELLCHECK
from tests.test_documented_commands import parsed

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_page_names_every_example_and_every_link_leads_somewhere() -> None:
    page = (EXAMPLES / "README.md").read_text()
    links = [each.partition(")")[0] for each in page.split("](")[1:]]
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
    there = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert there - {link.partition("/")[0] for link in links} == set()


@pytest.mark.parametrize(
    ("machine", "code", "says"),
    [
        ("example:h100-driver-570", 1, "blocked by driver-too-old-for-wheel: "),
        ("example:wsl2-linux-libcuda", 1, "the first of them is\n  - "),
        ("example:h100-healthy", 2, "no such example; accepted: "),
        ("no-such-file.json", 2, "no such file or directory"),
    ],
)
def test_the_pre_flight_in_python_ends_as_its_page_says(machine: str, code: int, says: str) -> None:
    words = [sys.executable, str(EXAMPLES / "doctor_from_python.py"), machine]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert says in done.stdout + done.stderr


def test_the_list_of_a_team_is_one_that_verify_reads() -> None:
    assert len(read_require_file(str(EXAMPLES / "team.toml"))) == 7


def test_the_workflow_runs_commands_that_exist_and_lint_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "ci" / "gpu.yml"
    steps = yaml.safe_load(path.read_text())["jobs"]["gpu"]["steps"]
    ours = [each["run"] for each in steps if "env/bin/firstlight " in each.get("run", "")]
    assert len(ours) == 4
    for line in ours:
        parsed(tuple(shlex.split(line)[1:]))
    assert run(["lint", str(path), "--kind", "workflow", "--for", "H100, driver 580"]) == 0
    assert "nothing in it is known to break there" in capsys.readouterr().out


def test_the_prolog_lets_jobs_without_gpus_in_and_ends_as_the_gate_does(tmp_path: Path) -> None:
    path = EXAMPLES / "slurm" / "prolog.sh"
    if Path(SHELLCHECK).exists():
        subprocess.run([SHELLCHECK, path], check=True)
    [line] = [line for line in path.read_text().splitlines() if line.startswith("exec firstlight ")]
    parsed(tuple(shlex.split(line)[2:]))
    (tmp_path / "firstlight").write_text('#!/bin/sh\necho "$@"\nexit 1\n')
    (tmp_path / "firstlight").chmod(0o755)
    text = path.read_text().replace("PATH=/opt/firstlight/bin:", f"PATH={tmp_path}:")
    for gpus, code, said in (("", 0, ""), ("0", 1, "doctor --gate --lock /etc/firstlight.lock\n")):
        done = subprocess.run(
            ["sh", "-c", text], env={**os.environ, "SLURM_JOB_GPUS": gpus}, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (code, said)

"""Screens of recorded machines, read aloud: what is pasted stands alone, what was not read is not called new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.cli import main
from firstlight.facts.collect import Facts
from firstlight.report.layout import drawn_for, headed
from firstlight.report.summary import machine_summary
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.plan.planning import NAMES
from tests.schemas import fits

SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"


def _said(capsys: pytest.CaptureFixture[str], verb: str, machine: str, *more: str) -> str:
    main.run([verb, "--facts", str(MACHINES / machine), *more])
    return capsys.readouterr().out


def test_a_long_head_is_wrapped_and_keeps_its_code_at_the_right_edge() -> None:
    head = "WORKS, BUT: A compat library is wired in for good and will break with the next driver upgrade."
    with drawn_for(80):
        lines = headed(head, "[compat-baked-in]").splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()) == f"{head} [compat-baked-in]"
    assert lines[-1].endswith("[compat-baked-in]")
    assert len(lines) == 2


def test_a_line_of_a_dockerfile_stands_alone_and_the_other_way_is_another_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = _said(capsys, "plan", "rtx4090-compat-image")
    assert "\n   RUN rm -r /usr/local/cuda-12.1/compat\n" in out
    assert "nvidia-container-runtime" not in out
    document = json.loads(_said(capsys, "plan", "rtx4090-compat-image", "--json"))
    fits(document, json.loads((SCHEMAS / "plan-2.json").read_text()))
    assert [step["lines"] for step in document["steps"]] == [["RUN rm -r /usr/local/cuda-12.1/compat"]]
    assert "unknown minutes" in out, "an image is built for it"


def test_what_is_for_one_program_does_not_change_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    out = _said(capsys, "plan", "wsl2-linux-libcuda", "--option", "2")
    assert "\n   env LD_LIBRARY_PATH=/usr/lib/wsl/lib /usr/bin/python3 PROGRAM.py\n" in out
    assert "export" not in out


@pytest.mark.parametrize("machine", ["small-pod", "h100-driver-570-compat"])
def test_a_start_file_that_was_not_read_is_not_called_new(capsys: pytest.CaptureFixture[str], machine: str) -> None:
    out = _said(capsys, "plan", machine)
    (line,) = [each for each in out.splitlines() if "/root/.profile, " in each and "not read" in each]
    assert "added; its present content was not read" in line
    assert ".profile, 1 line, new" not in out
    assert "/root/.profile is removed again" not in out


def test_lines_of_one_file_are_one_condition(capsys: pytest.CaptureFixture[str]) -> None:
    out = _said(capsys, "plan", "small-pod")
    assert out.count("/root/.profile has those 2 lines\n") == 1
    assert "has that line" not in out


def test_the_rule_of_the_order_is_one_line_and_only_where_there_is_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    several, one = (_said(capsys, "plan", name, "--options") for name in ("h100-driver-570", "small-pod"))
    assert several.count("\norder ") == 1
    assert several.splitlines()[-1].startswith("order ")
    assert "\norder " not in one


def _summary(facts: Facts) -> str:
    return machine_summary(facts)[0]


def test_a_cuda_that_another_libcuda_answers_is_not_said_of_the_driver() -> None:
    said = {name: _summary(facts_of(name)) for name in NAMES}
    assert "driver 525.125.06 (CUDA 12.1 by libcuda 530.30.02)" in said["rtx4090-compat-image"]
    assert "driver 610.47 (CUDA 12.2 by libcuda 535.309.01)" in said["wsl2-linux-libcuda"]
    assert "driver 570.133.20 (CUDA 12.8)," in said["h100-driver-570-compat-unused"]


def test_where_only_a_look_is_left_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out = _said(capsys, "doctor", "cuda-sees-none")
    assert "\nno way out is known; to find out more  " in out
    assert "     left afterwards: cuda-sees-no-device (it only looks)\n" in out
    assert "no way out" not in _said(capsys, "doctor", "h100-driver-570")


def test_a_word_with_an_apostrophe_is_quoted_as_a_person_would(capsys: pytest.CaptureFixture[str]) -> None:
    may = "ability.sudo=sudo is there and the user is in an admin group"
    out = _said(capsys, "doctor", "cuda-sees-none", "--set", may)
    assert """     sudo sh -c "dmesg | grep -E 'NVRM|Xid'"\n""" in out


def test_nobody_is_told_that_only_they_know_which_without_what(capsys: pytest.CaptureFixture[str]) -> None:
    said = {name: _said(capsys, "plan", name) for name in ("container-empty-libcuda", "small-pod", "l20-hmm")}
    assert not any("only you know which" in out for out in said.values())
    assert "note    By you: it only looks" in said["container-empty-libcuda"]
    assert "note    nvidia_uvm reads it the next time it is loaded" in said["l20-hmm"]
    assert "It takes effect at the next start" not in said["l20-hmm"]


def test_an_installer_that_is_run_is_fetched_first_and_its_size_is_not_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = _said(capsys, "plan", "blackwell-proprietary", "--option", "2")
    file = "NVIDIA-Linux-x86_64-570.144.run"
    assert f"\n   curl -fLO https://download.nvidia.com/XFree86/Linux-x86_64/570.144/{file}\n   sh {file}" in out
    assert "unknown GB to download" in out

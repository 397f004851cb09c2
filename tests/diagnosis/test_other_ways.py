"""What begins with 'or' is another way to do the step before it: it has no number, in a diagnosis or in a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.cli import main
from firstlight.diagnosis.finding import Goal, Question, with_other_ways
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.plan.planning import TABLES

NAMES = sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir())


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main.run([*arguments])
    return capsys.readouterr().out


def test_an_other_way_belongs_to_the_step_before_it() -> None:
    assert with_other_ways(("a", "or b", "c", "or d", "or e")) == [("a", "or b"), ("c", "or d", "or e")]
    assert with_other_ways(("or b", "order c")) == [("or b",), ("order c",)]
    assert with_other_ways(()) == []


def test_one_step_with_another_way_has_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    out = _printed(capsys, "doctor", "--facts", str(MACHINES / "devices-masked"))
    assert "  do      unset CUDA_VISIBLE_DEVICES\n          or name GPUs that are there: " in out


def test_several_steps_are_numbered_and_the_other_way_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    out = _printed(capsys, "doctor", "--facts", str(MACHINES / "docker-lost-gpus"))
    assert "  do      1. recreate the container" in out
    assert "\n          2. so that it does not come again" in out
    assert "\n             or hand the GPUs over by CDI" in out


def test_a_page_shows_the_other_way_below_its_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _printed(capsys, "doctor", "--facts", str(MACHINES / "docker-lost-gpus"), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    steps = next(part.partition("</ol>")[0] for part in page.split("<ol>")[1:] if "recreate the container" in part)
    assert steps.count("<li>") == 2
    assert "<div>or hand the GPUs over by CDI: docker run --device nvidia.com/gpu=all IMAGE</div>" in steps


def test_a_plan_says_the_other_way_in_the_note_of_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    out = _printed(capsys, "plan", "--facts", str(MACHINES / "cudnn-mix"), "--json")
    [step] = json.loads(out)["steps"]
    assert step["title"] == "make the loader find the right libraries"
    assert step["note"].startswith("if nothing else here uses it; or a torch whose cuDNN is complete: ")
    assert "#" not in step["note"]


@pytest.mark.parametrize(
    ("machine", "goal", "steps", "other_ways"),
    [
        ("secure-boot", "infer", 2, ("enrol the key and reboot", "without a console to confirm the key")),
        ("ubuntu-half-upgraded", "infer", 2, ("without a reboot, with every program off the GPU",)),
        ("blackwell-proprietary", "infer", 1, ("with NVIDIA's installer",)),
        ("gke-libcuda-out-of-reach", "infer", 2, ("without root, in place of both",)),
        ("runpod-ssh", "infer", 1, ("for one program", "for this shell (bash)")),
        ("fedora-44-cuda-12-8", "build-extensions", 2, ("as a last resort, at your own risk",)),
    ],
)
def test_alternatives_are_no_steps_of_a_diagnosis(
    machine: str, goal: str, steps: int, other_ways: tuple[str, ...]
) -> None:
    diagnosis = judge(Question(facts_of(machine), TABLES, Goal(goal)), RULES)
    primary = diagnosis.of(diagnosis.primary)
    assert primary is not None
    groups = with_other_ways(primary.do)
    assert len(groups) == steps
    found = tuple(way.removeprefix("or ").partition(": ")[0] for group in groups for way in group[1:])
    assert found == other_ways


def test_a_plan_for_secure_boot_does_not_tell_to_enrol_a_key_after_a_signed_module(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = _printed(capsys, "plan", "--facts", str(MACHINES / "secure-boot"), "--json")
    steps = json.loads(out)["steps"]
    assert [step["title"] for step in steps[1:]] == ["install a module that Ubuntu signed"]
    assert "or enrol the key and reboot: sudo mokutil" in steps[1]["note"]
    assert steps[1]["note"].endswith("turn Secure Boot off in the firmware or the cloud's settings")


@pytest.mark.parametrize("name", NAMES)
def test_no_finding_begins_with_another_way(name: str) -> None:
    for finding in judge(Question(facts_of(name), TABLES), RULES).findings:
        assert not finding.do[:1] or not finding.do[0].startswith("or "), finding.code

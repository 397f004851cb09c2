"""A drift that was planted is the one that check names, with its consequence; what was not touched has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.main import run
from firstlight.facts.collect import Facts
from firstlight.facts.document import to_text
from tests.diagnosis.rule_case import facts_of
from tests.lock.drifts import DRIFTS, DriftCase, installed, with_distributions, without_cudnn


def _saved(folder: Path, name: str, facts: Facts) -> str:
    path = folder / f"{name}.json"
    path.write_text(to_text(facts))
    return str(path)


def _check(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(["check", "--json", *args])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("case", DRIFTS, ids=lambda case: case.name)
def test_a_planted_drift_is_named_alone_and_with_its_consequence(
    case: DriftCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = case.before(facts_of(case.machine))
    lock = str(tmp_path / "firstlight.lock")
    assert run(["lock", "--facts", _saved(tmp_path, "before", before), "--out", lock]) == 0
    now = _saved(tmp_path, "now", case.plant(facts_of(case.machine)))
    code, document = _check(capsys, "--lock", lock, "--facts", now)
    if not case.part:
        assert (code, document["class_name"], document["drifts"]) == (3, "", [])
        return
    found = [(each["drift"]["part"], each["drift"]["name"], each["consequence"]) for each in document["drifts"]]
    assert found == [(case.part, case.fact, case.consequence)]
    assert code == (0 if case.consequence == "harmless" else 3)
    assert document["besides"] == []
    strict, _ = _check(capsys, "--lock", lock, "--facts", now, "--locked")
    assert strict == 3
    untouched, same = _check(capsys, "--lock", lock, "--facts", _saved(tmp_path, "before", before), "--locked")
    assert (untouched, same["drifts"], same["besides"]) == (0, [], [])


def _locked_then(
    before: Facts, now: Facts, folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, tuple[str, list[str]]]:
    """By the fact that drifted: its consequence, and the codes of the findings that say so."""
    lock = str(folder / "firstlight.lock")
    assert run(["lock", "--facts", _saved(folder, "before", before), "--out", lock]) == 0
    _, document = _check(capsys, "--lock", lock, "--facts", _saved(folder, "now", now))
    return {
        each["drift"]["name"]: (each["consequence"], [because["code"] for because in each["because"]])
        for each in document["drifts"]
    }


def test_each_of_many_drifts_is_judged_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = facts_of("h200")
    many = with_distributions(*(f"team-tool-{number}" for number in range(50)))(machine)
    now = installed("xformers", "0.0.34")(without_cudnn(machine))
    found = _locked_then(many, now, tmp_path, capsys)
    assert found.pop("nvidia-cudnn-cu13") == ("blocks", ["missing-library"])
    assert found.pop("xformers") == ("abi", ["companion-wants-other-torch", "extension-for-other-cuda"])
    assert list(found.values()) == [("harmless", [])] * 50


def test_what_two_drifts_bring_about_is_not_laid_on_a_third(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = facts_of("h200")
    now = installed("torchvision", "0.20.0")(installed("xformers", "0.0.34")(installed("numpy", "2.4.0")(machine)))
    found = _locked_then(machine, now, tmp_path, capsys)
    assert found["numpy"] == ("harmless", [])
    assert found["xformers"][0] == found["torchvision"][0] == "abi"


def test_a_lock_without_marks_of_what_was_seen_still_reads(tmp_path: Path) -> None:
    from dataclasses import replace

    from firstlight.lock.reading import read_lock
    from firstlight.lock.writing import with_class

    path = tmp_path / "firstlight.lock"
    assert run(["lock", "--facts", _saved(tmp_path, "m", facts_of("h100-cudnn-off-pin")), "--out", str(path)]) == 0
    [locked] = read_lock(str(path)).classes
    assert all(len(mark) == 12 for each in locked.findings for mark in each.saw)
    bare = replace(locked, findings=tuple(replace(each, saw=()) for each in locked.findings))
    path.write_text(with_class(None, bare))
    assert read_lock(str(path)).classes == (bare,)

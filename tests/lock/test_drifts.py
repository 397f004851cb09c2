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
from tests.lock.drifts import DRIFTS, DriftCase


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

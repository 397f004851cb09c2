"""A whole run of the suite stays with the machine, and `firstlight handover` has it without being told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.case import Effort
from firstlight.bench.patience import PATIENCE
from firstlight.bench.results import to_text
from firstlight.cli import main
from firstlight.cli.kept import keep, kept
from tests.bench.test_runner import HASTY
from tests.report.runs_to_show import processor_run


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path / "state"))
    for effort in Effort:
        monkeypatch.setitem(PATIENCE, effort, HASTY)
    return tmp_path / "state"


def _handed(capsys: pytest.CaptureFixture[str], page: Path) -> Any:
    capsys.readouterr()
    assert main.run(["handover", "--json", "--out", str(page)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.system
def test_a_whole_run_is_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main.run(["bench", "--device", "cpu", "--effort", "quick"]) == 0
    assert _handed(capsys, tmp_path / "page.html")["speed"][0]["run"] == json.loads(kept("bench"))["run"]["id"]


def test_a_part_of_a_run_is_not_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main.run(["bench", "--device", "cpu", "--effort", "quick", "--only", "softmax"]) == 0
    assert _handed(capsys, tmp_path / "page.html")["speed"] == []


def test_the_kept_run_is_on_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep("bench", to_text(processor_run()))
    (speed,) = _handed(capsys, tmp_path / "page.html")["speed"]
    assert speed["run"] == "processor"


def test_what_is_kept_is_closed_to_others_and_has_no_secrets(own_place: Path) -> None:
    keep("verify", "https://carla:hunter22@index.example/simple")
    (file,) = own_place.rglob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    assert "hunter22" not in kept("verify")
    keep("verify", "second")
    assert kept("verify") == "second"


def test_a_folder_that_others_may_write_to_keeps_nothing_and_stops_nobody(own_place: Path) -> None:
    own_place.mkdir()
    own_place.chmod(0o777)
    keep("verify", "text")
    assert kept("verify") == ""
    assert list(own_place.iterdir()) == []

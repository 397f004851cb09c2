"""Where a build stands: what failed and why, what ended well, which folder it is kept in."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from firstlight.apply.executor import StepFailed
from firstlight.build import stage as stages
from firstlight.build.fetching import fetch
from firstlight.build.keys import digest_of_file, installation, mark_done
from firstlight.build.ninja_output import progress_of
from firstlight.build.places import KeptBuild, folder_for, remember, require_one_folder
from firstlight.build.planning import build_steps, source_of, source_spec
from firstlight.build.progress import BuildStatus
from firstlight.build.request import Target, parse_target
from firstlight.build.spec import Stage, digest_of, write_spec
from firstlight.build.standing import Standing, ended_of, read_failure, standing_of, write_failure
from firstlight.cli.build_acting import reason_of
from firstlight.cli.build_kept import what_goes_with
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook
from firstlight.machine.live import LiveMachine
from firstlight.report.build_text import status_text
from tests.build.test_build_sources import raw_wheel_in, spec_in


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ("bad.tar.gz", BadInput, "no archive that can be read"),
        ("git+file:///nowhere/at/all@v1", CouldNotLook, "git clone did not get the source: fatal"),
        ("x==1", CouldNotLook, "no network, or no index there"),
    ],
)
def test_a_fetch_that_fails_hands_its_reason_and_its_exit_code_on(
    given: str, kind: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    (tmp_path / "bad.tar.gz").write_text("no archive")
    spec = source_spec("x-1", str(tmp_path / "b"), source_of(parse_target(given), "", ()))
    write_spec(spec)
    code = stages.main([spec.folder, "fetch", digest_of(spec)])
    failure = read_failure(spec.folder, Stage.FETCH)
    assert isinstance(failure, kind)
    assert (failure.exit_code, said in str(failure)) == (code, True)
    assert read_failure(spec.folder, Stage.PATCH) is None
    assert standing_of(KeptBuild(spec.folder, spec, None)) is Standing.NOT_FETCHED


def status_in(folder: Path) -> BuildStatus:
    return BuildStatus("x-1", Stage.WHEEL, 1, "", 0.0, 0.0, time.time(), 0, 2, 1, -1, "few", 0, 0, "", (), "/log")


def test_a_proved_build_is_told_by_its_wheel_and_its_proofs(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    source = source_spec("x-1", str(tmp_path / "b"), source_of(Target("x"), str(tmp_path / "tree"), ()))
    write_spec(source)
    spec = spec_in(tmp_path / "b", wheel_only=True, sms=())
    kept = KeptBuild(spec.folder, source, spec)
    fetch(source)
    assert standing_of(kept) is Standing.FETCHED
    Path(spec.wheels).mkdir()
    wheel = raw_wheel_in(Path(spec.wheels))
    mark_done(spec, Stage.CONFIGURE, {})
    mark_done(spec, Stage.COMPILE, {"minutes": 1.5, "units": 6})
    mark_done(spec, Stage.WHEEL, {"file": wheel.name, "sha256": digest_of_file(str(wheel))})
    assert standing_of(kept) is Standing.BEGUN
    text = status_text(status_in(tmp_path), standing_of(kept), ended_of(spec))
    assert "not running: the same command continues" in text
    mark_done(spec, Stage.PROVE, {"of": installation(spec), "proofs": ["import: x"]})
    assert standing_of(kept) is Standing.WHEEL
    text = status_text(status_in(tmp_path), standing_of(kept), ended_of(spec))
    assert text.splitlines()[0] == "BUILD        x-1, built, not installed"
    assert "proved       import: x" in text.splitlines()
    assert "units" not in text
    wheel.unlink()
    assert standing_of(kept) is Standing.BEGUN, "what is gone is not remembered as done"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[3/6] Building CXX object x.o", (3, 6)),
        ("[0/2] Re-checking globbed directories...", None),
        ("[1/2] Re-running CMake...", None),
        ("x", None),
    ],
)
def test_what_cmake_does_for_itself_is_no_unit(line: str, found: tuple[int, int] | None) -> None:
    assert progress_of(line) == found


def test_a_build_is_kept_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path / "state"))
    machine = LiveMachine()
    first = Path(folder_for(machine, "x-1", ""))
    first.mkdir(parents=True)
    require_one_folder(machine, "x-1", str(first))
    with pytest.raises(BadInput, match=f"this build is kept in {first}. Leave --build-dir out"):
        require_one_folder(machine, "x-1", str(tmp_path / "other"))
    (tmp_path / "elsewhere").mkdir()
    remember(machine, "y-1", str(tmp_path / "elsewhere"))
    assert folder_for(machine, "y-1", "") == str(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="elsewhere"):
        require_one_folder(machine, "y-1", str(tmp_path / "other"))


def test_a_build_that_cannot_be_noted_is_said_with_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("no folder")
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(BadInput, match=r"cannot be noted there \(.*\)\. Set FIRSTLIGHT_STATE_DIR"):
        remember(LiveMachine(), "x-1", str(tmp_path))


def test_cleaning_names_only_what_is_there(tmp_path: Path) -> None:
    source = source_spec("x-1", str(tmp_path / "b"), source_of(Target("x"), str(tmp_path), ()))
    write_spec(source)
    assert what_goes_with(KeptBuild(source.folder, source, None)) == ""
    spec = spec_in(tmp_path / "b")
    assert what_goes_with(KeptBuild(source.folder, source, spec)) == ""
    Path(spec.wheels).mkdir()
    wheel = raw_wheel_in(Path(spec.wheels))
    mark_done(spec, Stage.WHEEL, {"file": wheel.name, "sha256": digest_of_file(str(wheel))})
    assert what_goes_with(KeptBuild(source.folder, source, spec)) == ", the wheel among them"


def test_a_failed_stage_is_told_by_its_own_reason(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    step = build_steps(spec, "python3")[1]
    failed = StepFailed("command 1 of 1 ended", step=step, argv=step.commands[0], tail=(), log="")
    assert reason_of(spec, failed) == "command 1 of 1 ended"
    write_failure(spec.folder, Stage.COMPILE, CouldNotAct("a.o did not compile: no nccl.h"))
    assert reason_of(spec, failed) == "compile: a.o did not compile: no nccl.h"

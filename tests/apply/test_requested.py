"""Undo brings back who asked for a package: pip and uv mark all that they are told by name."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.step import Step, StepKind
from tests.apply.acting import acting, killed_at
from tests.apply.pip_environments import Pip
from tests.apply.wheels import make_wheel


@pytest.fixture
def env(tmp_path: Path) -> Pip:
    """demo and app were asked for; part and extra came because app needs them."""
    made = Pip(tmp_path)
    make_wheel(made.wheels, "app", "1.0", requires=("part==1.0", "extra"))
    _pip(made, "--force-reinstall", "app")
    assert _marked(made) == ["app", "demo"]
    return made


def _pip(env: Pip, *words: str) -> None:
    argv = [env.python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(env.wheels), *words]
    subprocess.run(argv, check=True)


def _marked(env: Pip) -> list[str]:
    """The packages that have the mark; a RECORD that does not say the same as the folder is an error."""
    found = {each.parent.name for each in env.site.glob("*.dist-info/REQUESTED")}
    listed = {each.parent.name for each in env.site.glob("*.dist-info/RECORD") if "/REQUESTED," in each.read_text()}
    assert found == listed
    return sorted(each.partition("-")[0] for each in found)


def _by_pip(env: Pip) -> Step:
    return env.step("demo==2.0")


def _by_uv(env: Pip) -> Step:
    plain = env.step("demo==2.0")
    uv = str(Path(sys.executable).with_name("uv"))
    argv = (uv, "pip", "install", "--python", env.python, *plain.commands[0][4:])
    return replace(plain, kind=StepKind.UV, commands=(argv,))


@pytest.mark.parametrize("planned", [_by_pip, _by_uv])
def test_what_came_as_a_dependency_is_one_again_after_undo(env: Pip, planned: Callable[[Pip], Step]) -> None:
    act(acting(env.folder), Asked((planned(env),), "d", "o", "t"))
    env.undo()
    assert _marked(env) == ["app", "demo"]


def test_after_pip_brought_a_package_back_its_record_has_the_bytes_of_before(env: Pip) -> None:
    record = env.site / "part-1.0.dist-info/RECORD"
    before, mode = record.read_bytes(), record.stat().st_mode
    env.apply("demo==2.0")
    env.undo()
    assert (record.read_bytes(), record.stat().st_mode) == (before, mode)


def test_what_somebody_asked_for_since_stays_asked_for(env: Pip) -> None:
    env.apply("demo==2.0")
    _pip(env, "--force-reinstall", "--no-deps", "extra")
    env.undo()
    assert _marked(env) == ["app", "demo", "extra"]


def test_a_repair_of_the_step_leaves_no_mark_after_undo(env: Pip) -> None:
    (env.site / "extra/__init__.py").unlink()
    env.apply("extra==0.1")
    assert _marked(env) == ["app", "demo", "extra"]
    env.undo()
    assert _marked(env) == ["app", "demo"]


def test_killed_at_any_point_while_marks_are_taken_away_the_next_undo_goes_on(env: Pip) -> None:
    env.apply("demo==2.0")
    info = str(env.site / "part-1.0.dist-info")
    points = (
        "journal set-coming-back: written", "journal marks-taken-away: fsync", f"{info}/RECORD: create",
        f"{info}/RECORD: fsync", f"{info}/RECORD: rename", f"{info}/RECORD: renamed", f"{info}/REQUESTED: remove",
        f"{info}: fsync folder", "journal step-undone: write",
    )  # fmt: skip
    for point in points:
        assert killed_at(1, partial(_undo_until, env, point)), point
    env.undo()
    assert _marked(env) == ["app", "demo"]
    assert not list(env.site.rglob("*unfinished*"))


def _undo_until(env: Pip, point: str, passing: Callable[[str], None]) -> None:
    doing = acting(env.folder, lambda passed: passing(passed) if passed == point else None)
    for each in newest_to_undo(doing):
        undo(doing, each)


def test_a_journal_that_does_not_know_of_marks_is_still_taken_back(env: Pip) -> None:
    before = env.files()
    env.apply("demo==2.0")
    journal, lines, last = env.folder / "state/journal.jsonl", [], ""
    for line in journal.read_text().splitlines():
        record = json.loads(line)
        about = {key: value for key, value in record["about"].items() if key != "requested"}
        lines.append(json.dumps({**record, "about": about, "before": last}, sort_keys=True) + "\n")
        last = hashlib.sha256(lines[-1].encode()).hexdigest()[:16]
    journal.write_text("".join(lines))
    env.undo()
    assert env.files() == before

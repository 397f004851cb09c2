"""A copy that an earlier run left is never taken for the one that a step makes: what comes back is what was there."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import CouldNotAct
from firstlight.ways.back import moved_back
from firstlight.ways.building import COPY
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import InstallWheels, KeepInProject, Package, RemoveFiles
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, step
from tests.ways.machines import at, made


def _aside(library: Path, *taken: Path) -> Step:
    extras = Extras(home=str(library.parent), taken=tuple(map(str, taken)))
    [moved] = made(at("container-empty-libcuda", extras=extras), RemoveFiles((str(library),)))
    return replace(moved, id="01")


def _undo(folder: Path) -> None:
    doing = acting(folder)
    for run in newest_to_undo(doing):
        undo(doing, run)


def test_typed_by_hand_todays_file_comes_back_and_the_older_copy_stays(tmp_path: Path) -> None:
    library, older = tmp_path / "libcuda.so.1", tmp_path / ".libcuda.so.1.before-firstlight"
    library.write_text("today")
    older.write_text("last year")
    moved = _aside(library)
    for argv in moved.commands:
        subprocess.run(argv, check=True)
    assert not library.exists()
    for argv in moved.undo:
        subprocess.run(argv, check=True)
    assert library.read_text() == "today"
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["last year", "today"]


def test_a_project_copied_by_hand_beside_an_older_copy_comes_back_as_it_was(tmp_path: Path) -> None:
    manifest, older = tmp_path / "pyproject.toml", tmp_path / "pyproject.toml.before-firstlight"
    manifest.write_text("today")
    older.write_text("last year")
    [kept] = made(at("uv-lock-would-undo"), KeepInProject((Package("torch", "2.9.0"),)))
    [copied] = [argv for argv in kept.commands if argv[0] == "cp" and argv[-2].endswith("/pyproject.toml")]
    subprocess.run((*copied[:-2], str(manifest), str(older)), check=True)
    manifest.write_text("edited by uv")
    assert kept.undo[0] == ("mv", "--force", copied[-1], copied[-2])
    subprocess.run((*kept.undo[0][:2], str(older), str(manifest)), check=True)
    assert manifest.read_text() == "today"


def test_two_steps_of_a_plan_never_share_a_copy() -> None:
    where = at("uv-lock-would-undo")
    first = made(where, KeepInProject((Package("torch", "2.9.0"),)))
    then = replace(where, extras=where.extras.after(first[0]))
    second = made(then, InstallWheels((Package("nvidia-cuda-nvcc", "13.0.88"),)))
    copies = [argv[-1] for step in (*first, *second) for argv in step.commands if argv[0] == "cp"]
    assert len(copies) > 2
    assert len(copies) == len(set(copies))


def test_apply_takes_another_name_and_gives_the_file_back(tmp_path: Path) -> None:
    library, older = tmp_path / "libcuda.so.1", tmp_path / ".libcuda.so.1.before-firstlight"
    library.write_text("today")
    older.write_text("last year")
    with pytest.raises(CouldNotAct, match="is there already, and"):
        act(acting(tmp_path), Asked((_aside(library),), "d", "o", "t"))
    assert library.read_text() == "today"
    _undo(tmp_path)
    assert (library.read_text(), older.read_text()) == ("today", "last year")
    act(acting(tmp_path), Asked((_aside(library, older),), "d", "o", "t"))
    assert not library.exists()
    _undo(tmp_path)
    assert (library.read_text(), older.read_text()) == ("today", "last year")


def test_undo_does_not_replace_a_file_that_came_since(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.write_text("empty")
    act(acting(tmp_path), Asked((_aside(library),), "d", "o", "t"))
    library.write_text("of a new driver")
    with pytest.raises(CouldNotAct, match="is there again"):
        _undo(tmp_path)
    assert library.read_text() == "of a new driver"


def test_a_second_attempt_keeps_the_copy_of_the_first(tmp_path: Path) -> None:
    """The copy by hand stays that of before, though the first attempt changed the file."""
    app = tmp_path / "app"
    app.mkdir()
    lock, copy, ready = app / "uv.lock", app / "uv.lock.before-firstlight", tmp_path / "ready"
    lock.write_text("version = 1\n")
    settle = ("sh", "-c", f"echo version = 2 > {lock}; test -e {ready}", "sh", "--project", str(app))
    tried = step(
        "01-project", kind=StepKind.PROJECT, commands=((*COPY, str(lock), str(copy)), settle),
        done_when=(Condition(CheckKind.FILE_EXISTS, str(ready)),),
    )  # fmt: skip
    with pytest.raises(StepFailed):
        act(acting(tmp_path), Asked((replace(tried, back=(moved_back(str(copy), str(lock)),)),), "d", "o", "t"))
    ready.touch()
    doing = acting(tmp_path)
    [run] = interrupted(doing)
    finish(doing, run)
    assert copy.read_text() == "version = 1\n"
    _undo(tmp_path)
    assert lock.read_text() == "version = 1\n"
    assert [path.name for path in app.iterdir()] == ["uv.lock"]

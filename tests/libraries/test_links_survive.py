"""Links as `apply` makes them: killed at every point, resumed, taken back; what was there is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.apply.disk import never_stop
from firstlight.apply.runs import steps_from_json, steps_to_json
from firstlight.apply.session import Asked, act, finish, interrupted
from firstlight.errors import CouldNotAct
from firstlight.ways.step import CheckKind, Condition, FileChange, Step
from tests.apply.acting import acting, killed_at, step, tree, undo_in


def _step(folder: Path) -> Step:
    target, links = folder / "home/wheel/libcudss.so.0", (folder / "home/torch/a.so.0", folder / "home/new/b.so.0")
    return step(
        "01-link",
        files=tuple(FileChange(str(link), "", "", links_to=str(target)) for link in links),
        done_when=tuple(Condition(CheckKind.LINK, str(link), str(target)) for link in links),
    )


def _home(folder: Path) -> Path:
    (folder / "home/wheel").mkdir(parents=True)
    (folder / "home/torch").mkdir()
    (folder / "home/wheel/libcudss.so.0").write_bytes(b"\x7fELF")
    return folder / "home"


def _link(folder: Path, passing: Callable[[str], None] = never_stop) -> None:
    doing = acting(folder, passing)
    try:
        for run in interrupted(doing):
            finish(doing, run)
        act(doing, Asked((_step(folder),), "d" * 16, "libs:torch", "close the chain"))
    finally:
        doing.journal.close()


def test_links_are_made_once_and_taken_back_with_the_folder_that_came_with_them(tmp_path: Path) -> None:
    home = _home(tmp_path)
    before = tree(home)
    _link(tmp_path)
    assert (home / "torch/a.so.0").resolve() == (home / "wheel/libcudss.so.0")
    assert (home / "new/b.so.0").is_symlink()
    _link(tmp_path)
    undo_in(tmp_path)
    assert tree(home) == before


def test_killed_at_every_point_it_resumes_and_undoes_to_the_same_bytes(tmp_path: Path) -> None:
    number, killed = 0, True
    while killed:
        number += 1
        folder = tmp_path / str(number)
        home = _home(folder)
        before = tree(home)
        killed = killed_at(number, lambda passing, folder=folder: _link(folder, passing))  # type: ignore[misc]
        _link(folder)
        assert (home / "new/b.so.0").is_symlink()
        assert not list(home.rglob("*.firstlight-unfinished"))
        undo_in(folder)
        assert tree(home) == before
    assert number > 10


def test_an_undo_killed_at_every_point_ends_where_it_began(tmp_path: Path) -> None:
    number, killed = 0, True
    while killed:
        number += 1
        folder = tmp_path / str(number)
        home = _home(folder)
        before = tree(home)
        _link(folder)
        killed = killed_at(number, lambda passing, folder=folder: undo_in(folder, passing))  # type: ignore[misc]
        doing = acting(folder)
        for run in interrupted(doing):
            finish(doing, run)
        doing.journal.close()
        undo_in(folder)
        assert tree(home) == before


def test_a_file_that_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    home = _home(tmp_path)
    (home / "torch/a.so.0").write_text("somebody's own")
    with pytest.raises(CouldNotAct, match=r"a\.so\.0 is there, and the plan was made for a machine where it is not"):
        _link(tmp_path)
    assert (home / "torch/a.so.0").read_text() == "somebody's own"


def test_a_link_that_leads_nowhere_is_not_done(tmp_path: Path) -> None:
    home = _home(tmp_path)
    _link(tmp_path)
    (home / "wheel/libcudss.so.0").unlink()
    from firstlight.apply.conditions import all_met

    met = all_met(_step(tmp_path).done_when)
    assert not met.holds
    assert met.saw.endswith("which is gone")


def test_a_journal_of_before_there_were_links_is_read(tmp_path: Path) -> None:
    [document] = steps_to_json((step("01-edit", files=(FileChange("/etc/x", "a", "b"),)),))
    del document["files"][0]["links_to"]
    [back] = steps_from_json([document])
    assert back.files == (FileChange("/etc/x", "a", "b"),)

"""Files are changed whole, kept before, and put back to the byte; nobody's later edit is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.apply.saved_files import SAVED, SavedFiles
from firstlight.errors import CouldNotAct
from firstlight.ways.step import FileChange
from tests.apply.acting import acting


@pytest.fixture
def saved(tmp_path: Path) -> SavedFiles:
    return acting(tmp_path).saved


def _restore(saved: SavedFiles) -> None:
    for record in reversed([each for each in saved.journal.records if each.event == SAVED]):
        saved.restore(record)


def test_a_changed_file_keeps_its_mode_and_comes_back(tmp_path: Path, saved: SavedFiles) -> None:
    file = tmp_path / "rc"
    file.write_text("old\n")
    file.chmod(0o640)
    saved.change(FileChange(str(file), "old\n", "new\n"), run=1, step="01")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new\n", 0o640)
    _restore(saved)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("old\n", 0o640)


def test_a_new_file_and_its_new_folders_go_away_again(tmp_path: Path, saved: SavedFiles) -> None:
    saved.change(FileChange(str(tmp_path / "x/y/z"), "", "text", mode=0o755), run=1, step="01")
    assert (tmp_path / "x/y/z").stat().st_mode & 0o777 == 0o755
    _restore(saved)
    assert not (tmp_path / "x").exists()


def test_a_new_folder_that_somebody_else_uses_stays(tmp_path: Path, saved: SavedFiles) -> None:
    saved.change(FileChange(str(tmp_path / "x/y"), "", "text"), run=1, step="01")
    (tmp_path / "x/theirs").write_text("mine\n")
    _restore(saved)
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["theirs"]


def test_a_link_stays_a_link(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/rc").write_text("old\n")
    (tmp_path / "rc").symlink_to("dotfiles/rc")
    saved.change(FileChange(str(tmp_path / "rc"), "old\n", "new\n"), run=1, step="01")
    assert (tmp_path / "rc").is_symlink()
    assert (tmp_path / "dotfiles/rc").read_text() == "new\n"
    _restore(saved)
    assert (tmp_path / "dotfiles/rc").read_text() == "old\n"


def test_an_empty_file_comes_back_empty(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "rc").touch()
    saved.change(FileChange(str(tmp_path / "rc"), "", "new\n"), run=1, step="01")
    _restore(saved)
    assert (tmp_path / "rc").read_bytes() == b""


def test_a_file_that_changed_since_the_plan_is_not_touched(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "rc").write_text("somebody was here\n")
    with pytest.raises(CouldNotAct, match="is not what the plan was made for"):
        saved.change(FileChange(str(tmp_path / "rc"), "old\n", "new\n"), run=1, step="01")
    assert (tmp_path / "rc").read_text() == "somebody was here\n"


def test_a_file_edited_after_apply_is_not_overwritten_by_undo(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "rc").write_text("old\n")
    saved.change(FileChange(str(tmp_path / "rc"), "old\n", "new\n"), run=1, step="01")
    (tmp_path / "rc").write_text("new\nand mine\n")
    with pytest.raises(CouldNotAct, match="was changed after firstlight wrote it"):
        _restore(saved)
    assert (tmp_path / "rc").read_text() == "new\nand mine\n"


def test_a_damaged_original_is_noticed(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "rc").write_text("old\n")
    saved.change(FileChange(str(tmp_path / "rc"), "old\n", "new\n"), run=1, step="01")
    [original] = (tmp_path / "state/originals").iterdir()
    original.write_text("rot")
    with pytest.raises(CouldNotAct, match="gone or damaged"):
        _restore(saved)


def test_a_file_that_already_is_as_planned_is_left_alone(tmp_path: Path, saved: SavedFiles) -> None:
    (tmp_path / "rc").write_text("new\n")
    before = (tmp_path / "rc").stat().st_ino
    saved.change(FileChange(str(tmp_path / "rc"), "old\n", "new\n"), run=1, step="01")
    assert (tmp_path / "rc").stat().st_ino == before
    assert saved.journal.records == []


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, saved: SavedFiles) -> None:
    with pytest.raises(CouldNotAct, match=r"/proc/firstlight could not be written: .*\. "):
        saved.change(FileChange("/proc/firstlight", "", "text"), run=1, step="01")

"""Whose a file is: links of ours are followed, what others can change is refused, missing folders are made closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firstlight.apply.disk import Disk
from firstlight.apply.place import Place, machine_folder, machine_identity, ready_place, state_folder, state_place
from firstlight.errors import NotOurs
from firstlight.machine.live import LiveMachine
from firstlight.owned import open_ours, our_folder, read_ours
from tests.apply.test_lock_and_place import HOST


def test_links_of_ours_are_followed_and_the_real_path_is_told(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/up").symlink_to("../real/deep")
    with our_folder(str(tmp_path / "link/up")) as folder:
        assert folder.path == str(tmp_path / "real/deep")
        assert os.fstat(folder.handle).st_ino == (tmp_path / "real/deep").stat().st_ino


def test_a_link_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"), our_folder(str(tmp_path / "loop")):
        pass


def test_missing_folders_are_made_with_their_mode_and_told(tmp_path: Path) -> None:
    with our_folder(str(tmp_path / "a/b"), make=0o700) as folder:
        assert folder.made == (str(tmp_path / "a"), str(tmp_path / "a/b"))
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileNotFoundError), our_folder(str(tmp_path / "a/c")):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o2777])
def test_a_folder_that_everybody_writes_is_refused_with_its_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open/below").mkdir(parents=True)
    (tmp_path / "open").chmod(mode)
    with pytest.raises(NotOurs, match=rf"open is a folder that others may write to \(owner .*mode {mode:04o}\)"):
        our_folder(str(tmp_path / "open/below")).__enter__()


def test_a_file_with_two_names_or_open_to_others_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("text")
        (tmp_path / name).chmod(0o600)
    os.link(tmp_path / "one", tmp_path / "again")
    (tmp_path / "two").chmod(0o606)
    with our_folder(str(tmp_path)) as folder:
        with pytest.raises(NotOurs, match="2 names"):
            read_ours(folder, "one")
        with pytest.raises(NotOurs, match="others may write"):
            read_ours(folder, "two")
        (tmp_path / "two").chmod(0o600)
        assert read_ours(folder, "two") == b"text"
        os.close(open_ours(folder, "new", os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", ["a/b/c", ".", ""])
def test_making_folders_of_a_relative_path_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    Disk().make_folders(path)
    assert (tmp_path / path).is_dir()


def _pod(root: Path, mounted: str) -> LiveMachine:
    (root / "proc/self").mkdir(parents=True)
    (root / "workspace").mkdir()
    (root / "proc/self/mountinfo").write_text(f"36 35 0:32 / /workspace rw,relatime - {mounted} x rw\n")
    return LiveMachine(root=str(root), environ={}, host=HOST)


@pytest.mark.parametrize(("mode", "kind", "why"), [
    (0o777, "fuse", "can be changed by others (mode 0777)"), (0o775, "ext4", "can be changed by others (mode 0775)"),
    (0o755, "vfat", "is vfat, which keeps no owners or modes"), (0o755, "cifs", "is cifs, which keeps"),
])  # fmt: skip
def test_a_volume_that_others_can_change_is_not_used_and_this_is_said(
    tmp_path: Path, mode: int, kind: str, why: str
) -> None:
    machine = _pod(tmp_path, kind)
    (tmp_path / "workspace").chmod(mode)
    place = state_place(machine)
    assert place.path == "/home/user-a/.local/state/firstlight"
    assert f"/workspace {why}" in place.note
    assert "set FIRSTLIGHT_STATE_DIR" in place.note


@pytest.mark.skipif(os.geteuid() != 0, reason="it is root who gives a volume away")
@pytest.mark.parametrize(("owner", "mode", "kind", "do"), [
    (0, 0o777, "fuse", "`chmod 1777 /workspace`"), (1000, 0o777, "ext4", "`chmod go-w /workspace`"),
    (4001, 0o755, "ext4", "`chown root /workspace`"), (0, 0o755, "vfat", "set FIRSTLIGHT_STATE_DIR to the copy"),
])  # fmt: skip
def test_a_journal_on_a_volume_that_was_opened_since_is_named_and_not_passed_over(
    tmp_path: Path, owner: int, mode: int, kind: str, do: str
) -> None:
    machine = _pod(tmp_path, kind)
    journal = tmp_path / "workspace/.firstlight/machines" / machine_identity(machine)
    journal.mkdir(parents=True)
    os.chown(tmp_path / "workspace", owner, owner)
    (tmp_path / "workspace").chmod(mode)
    for asked in (machine_folder, ready_place):
        with pytest.raises(NotOurs, match=f"journal is in /workspace/.firstlight/machines/{journal.name}, and") as told:
            asked(machine)
        assert do in str(told.value)
    assert state_folder(machine) == "/home/user-a/.local/state/firstlight", "a plan can be shown all the same"
    os.chown(journal, 4001, 4001)
    assert machine_folder(machine).startswith("/home/user-a/"), "what another user puts there stops nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="a sticky folder is good where it is root's")
def test_a_sticky_volume_of_roots_is_a_good_place(tmp_path: Path) -> None:
    machine = _pod(tmp_path, "fuse")
    (tmp_path / "workspace").chmod(0o1777)
    assert state_place(machine) == Place("/workspace/.firstlight")


def test_where_a_run_was_begun_on_the_local_disk_it_goes_on_there(tmp_path: Path) -> None:
    machine = _pod(tmp_path, "ext4")
    assert state_place(machine).path == "/workspace/.firstlight"
    (tmp_path / "home/user-a/.local/state/firstlight/machines" / machine_identity(machine)).mkdir(parents=True)
    assert state_place(machine).path == "/home/user-a/.local/state/firstlight"
    (tmp_path / "workspace/.firstlight/machines/another").mkdir(parents=True)
    assert state_place(machine).path == "/home/user-a/.local/state/firstlight", (
        "another pod's journal is not this one's"
    )
    (tmp_path / "workspace/.firstlight/machines" / machine_identity(machine)).mkdir(parents=True)
    assert state_place(machine).path == "/workspace/.firstlight"


def test_a_folder_that_was_given_is_used_as_it_is(tmp_path: Path) -> None:
    machine = LiveMachine(root=str(tmp_path), environ={"FIRSTLIGHT_STATE_DIR": "/x/../y"}, host=HOST)
    assert ready_place(machine) == Place("/y")

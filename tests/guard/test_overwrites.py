"""What overwrites files that it does not name: an archive is listed, and stopped where a protected file is in it."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.guard.projects import decide, project


def _archives(folder: Path, name: str) -> None:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr(name, "x")
    with tarfile.open(folder / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(f"./{name}"), io.BytesIO())


@pytest.mark.parametrize(
    "command", ["unzip -o x.zip", "tar xf x.tar", "tar -x --file=x.tar", "cd src && tar xf ../x.tar -C .."]
)
def test_an_archive_is_stopped_by_what_is_in_it(command: str, tmp_path: Path) -> None:
    where = project(tmp_path, **{"src/a.py": ""})
    _archives(tmp_path, "pkg/a.txt")
    assert decide(command, where).allowed
    _archives(tmp_path, "firstlight.lock")
    [denied] = decide(command, where).denied
    assert denied.reason.endswith("may overwrite firstlight.lock, which is protected")
    assert denied.instead == "Unpack or copy it into a folder of its own."


def test_an_archive_that_is_torn_or_that_the_text_itself_brings_is_not_known(tmp_path: Path) -> None:
    where = project(tmp_path)
    _archives(tmp_path, "pkg/a.txt")
    assert not decide("curl -o x.zip https://example.org/x.zip && unzip -o x.zip", where).allowed
    (tmp_path / "x.zip").write_bytes(b"PK torn")
    assert not decide("unzip -o x.zip", where).allowed
    assert decide("unzip -o x.zip -d data", where).allowed


def test_a_copied_folder_is_stopped_by_what_is_in_it(tmp_path: Path) -> None:
    where = project(tmp_path / "p", "[protect]\npaths = ['configs/*.yaml']\n", **{"configs/a.yaml": ""})
    (tmp_path / "new" / "configs").mkdir(parents=True)
    (tmp_path / "new" / "configs" / "b.txt").write_text("")
    assert decide("cp -r ../new/. .", where).allowed
    (tmp_path / "new" / "configs" / "b.yaml").write_text("")
    assert not decide("cp -r ../new/. .", where).allowed
    assert not decide("rsync -a ../new/configs .", where).allowed


def test_a_deny_over_a_whole_tree_says_which_way_is_open(tmp_path: Path) -> None:
    where = project(tmp_path, **{".git/HEAD": ""})
    [denied] = decide("git stash", where).denied
    assert denied.reason == "git stash may overwrite firstlight.toml, which is protected"
    assert denied.instead == "Name the paths that it should change."
    assert decide("git stash push -- src", where).allowed

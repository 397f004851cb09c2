"""A full disk, a read-only one and a second run: a clear sentence, nothing lost, nothing written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from firstlight.errors import CouldNotAct
from tests.apply.acting import apply_in, home_with_files, tree, undo_in
from tests.apply.stand_ins import can_have_its_own_mounts

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and the right to mount"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, mounted for the test."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "firstlight-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (4096, 1):
            with suppress(OSError):
                while os.write(descriptor, b"x" * size):
                    pass
    finally:
        os.close(descriptor)
    return filler


def test_a_full_disk_at_any_moment_is_named_and_the_next_apply_goes_on(small: Path) -> None:
    """The disk fills up before the Nth change; with room again the same call finishes, and undo works."""
    number, stopped = 1, 0
    while True:
        home_with_files(small)
        before = tree(small / "home")
        passed = 0

        def passing(point: str) -> None:
            nonlocal passed
            passed += 1
            if passed == number:  # noqa: B023 called before the loop goes on
                _fill(small)

        said = ""
        try:
            apply_in(small, passing)
        except CouldNotAct as error:  # any other kind of error reaches the user as a traceback, and fails this test
            said = str(error)
        full = bool(said)
        assert not full or "No space left on device" in said or "ended with status" in said, said
        (small / "filler").unlink(missing_ok=True)
        stopped += full
        apply_in(small)
        undo_in(small)
        assert tree(small / "home") == before, f"point {number}"
        ended = passed < number
        for each in ("home", "state"):
            shutil.rmtree(small / each)
        if ended:
            break
        number += 1
    assert stopped > 5, "the disk was full where it hurts"


def test_a_read_only_disk_is_named(small: Path) -> None:
    home_with_files(small)
    before = tree(small / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(
        CouldNotAct, match=r"Read-only file system\. Nothing was changed\. That file system is read-only"
    ):
        apply_in(small)
    subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    assert tree(small / "home") == before


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_second_apply_opens_nothing_for_writing(tmp_path: Path) -> None:
    home_with_files(tmp_path)
    apply_in(tmp_path)
    calls = tmp_path / "calls"
    code = f"from pathlib import Path; from tests.apply.acting import apply_in; apply_in(Path({str(tmp_path)!r}))"
    watched = (
        "openat,open,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,chmod,fchmod,write,pwrite64"
    )
    subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={watched}", "-o", str(calls), sys.executable, "-c", code],
        check=True, cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    changes = [
        line
        for line in calls.read_text().splitlines()
        if str(tmp_path) in line
        and "= -1" not in line
        and not ("open" in line and "O_WRONLY" not in line and "O_RDWR" not in line)
    ]
    # The journal is opened for appending, because an interrupted run would be finished; nothing is written to it.
    assert [line for line in changes if "journal.jsonl" not in line] == []
    assert not [line for line in changes if "write(" in line or "rename" in line]

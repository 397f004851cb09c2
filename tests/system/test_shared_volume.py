"""Root and a second user share a volume: what the second user plants is never read as ours, run or written through."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.apply.lock import machine_lock
from firstlight.errors import AnotherIsActing, CouldNotAct, NotOurs
from firstlight.owned import our_folder, read_ours
from tests.apply.acting import apply_in, home_with_files, tree, undo_in
from tests.system.second_user import EVE, as_eve, run_that, snapshot, step_of

pytestmark = [pytest.mark.system, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
SLOW_S = 20
Refused = (NotOurs, CouldNotAct)


class Volume:
    """A folder of root's with mode 1777 (as /workspace), root's own secrets beside it, and root's home on it."""

    def __init__(self, top: Path) -> None:
        self.top, self.shared, self.roots = top, top / "shared", top / "roots"
        for folder, mode in ((self.top, 0o755), (self.shared, 0o1777), (self.roots, 0o755)):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        (self.roots / "keep").mkdir()
        (self.roots / "keep/file").write_text("root's\n")
        (self.roots / "secret").write_text("root's secret\n")
        home_with_files(self.shared)
        self.state, self.journal = self.shared / "state", self.shared / "state/journal.jsonl"
        self.ran = self.top / "ran"

    def journal_1(self) -> bytes:
        """One of 0.1 whose undo is a command line."""
        return run_that(step_of(form=1, undo=[["touch", str(self.ran)]]), form=1)

    def journal_2(self) -> bytes:
        """A typed one that removes a folder of root's."""
        keep = str(self.roots / "keep")
        back = [{"kind": "remove-folder", "words": [keep], "sudo": False}]
        return run_that(step_of(form=2, back=back, commands=[["mkdir", keep]]), form=2)

    def journal_of_files(self) -> bytes:
        """One that puts another text into root's file."""
        path, now = str(self.roots / "secret"), hashlib.sha256(b"root's secret\n").hexdigest()
        change = {
            "path": path, "before": base64.b64encode(b"eve's\n").decode(), "after": "", "removes": False, "mode": 0o644,
            "links_to": "",
        }  # fmt: skip
        saved = {
            "run": 1, "step": "01", "path": path, "backup": "0001-0123456789ab", "mode": 0o666, "owner": [EVE, EVE],
            "folders": [], "digest": hashlib.sha256(b"eve's\n").hexdigest(), "written": now,
        }  # fmt: skip
        return run_that(step_of(form=2, kind="file", files=[change]), ("file-saved", saved), form=2)

    def opened(self) -> None:
        """Root's own state folder that was open to everybody for a while."""
        self.state.mkdir(mode=0o700)
        self.state.chmod(0o777)

    def closed(self) -> None:
        self.state.chmod(0o755)


@pytest.fixture
def volume() -> Iterator[Volume]:
    folder = Path(tempfile.mkdtemp(prefix="firstlight-volume-", dir="/var/tmp"))
    yield Volume(folder)
    shutil.rmtree(folder)


def _own_state(volume: Volume, journal: bytes) -> None:
    def plant() -> None:
        volume.state.mkdir(mode=0o755)
        volume.journal.write_bytes(journal)

    as_eve(plant)


def _another_users_journal_of_0_1(volume: Volume) -> None:
    _own_state(volume, volume.journal_1())


def _another_users_typed_journal(volume: Volume) -> None:
    _own_state(volume, volume.journal_2())


def _another_users_journal_that_overwrites_a_file(volume: Volume) -> None:
    _own_state(volume, volume.journal_of_files())
    as_eve(lambda: (volume.state / "originals").mkdir())
    as_eve(lambda: (volume.state / "originals/0001-0123456789ab").write_text("eve's\n"))


def _an_empty_folder_of_another_user(volume: Volume) -> None:
    as_eve(lambda: volume.state.mkdir(mode=0o777))


def _a_link_to_another_users_folder(volume: Volume) -> None:
    as_eve(lambda: (volume.shared / "eves").mkdir())
    as_eve(lambda: (volume.shared / "eves/journal.jsonl").write_bytes(volume.journal_1()))
    as_eve(lambda: volume.state.symlink_to(volume.shared / "eves"))


def _another_users_link_to_a_folder_of_roots(volume: Volume) -> None:
    (volume.roots / "keep/journal.jsonl").write_bytes(volume.journal_1())
    as_eve(lambda: volume.state.symlink_to(volume.roots / "keep"))


def _a_state_folder_that_everybody_writes(volume: Volume) -> None:
    volume.opened()
    volume.journal.write_bytes(b"")
    as_eve(lambda: os.rename(volume.journal, volume.state / "away"))
    as_eve(lambda: volume.journal.write_bytes(volume.journal_1()))


def _a_state_folder_that_a_group_writes(volume: Volume) -> None:
    volume.state.mkdir()
    os.chown(volume.state, 0, EVE)
    volume.state.chmod(0o775)
    as_eve(lambda: volume.journal.write_bytes(volume.journal_1()))


def _a_folder_above_that_a_group_writes(volume: Volume) -> None:
    volume.state.mkdir(mode=0o755)
    volume.journal.write_bytes(volume.journal_1())
    os.chown(volume.shared, 0, EVE)
    volume.shared.chmod(0o775)


def _a_folder_above_without_the_sticky_bit(volume: Volume) -> None:
    volume.state.mkdir(mode=0o755)
    volume.journal.write_bytes(volume.journal_1())
    volume.shared.chmod(0o777)


def _a_folder_above_of_another_user(volume: Volume) -> None:
    volume.state.mkdir(mode=0o755)
    volume.journal.write_bytes(volume.journal_1())
    os.chown(volume.shared, EVE, EVE)
    volume.shared.chmod(0o755)


def _while_open(volume: Volume, work: Callable[[], object]) -> None:
    volume.opened()
    as_eve(work)
    volume.closed()


def _a_journal_of_another_owner_in_roots_folder(volume: Volume) -> None:
    _while_open(volume, lambda: volume.journal.write_bytes(volume.journal_1()))
    volume.journal.chmod(0o644)


def _a_journal_that_is_a_link_to_roots_file(volume: Volume) -> None:
    _while_open(volume, lambda: volume.journal.symlink_to(volume.roots / "secret"))


def _a_journal_that_is_a_link_to_nothing_yet(volume: Volume) -> None:
    _while_open(volume, lambda: volume.journal.symlink_to(volume.roots / "new"))


def _a_journal_that_is_a_second_name_of_roots_file(volume: Volume) -> None:
    (volume.roots / "secret").write_bytes(b"")
    _while_open(volume, lambda: None)
    os.link(volume.roots / "secret", volume.journal)  # where fs.protected_hardlinks is 0, anybody can


def _a_journal_that_is_a_fifo(volume: Volume) -> None:
    _while_open(volume, lambda: os.mkfifo(volume.journal, 0o666))


def _a_journal_that_is_a_socket(volume: Volume) -> None:
    _while_open(volume, lambda: socket.socket(socket.AF_UNIX).bind(str(volume.journal)))


def _a_journal_that_is_a_folder(volume: Volume) -> None:
    _while_open(volume, lambda: volume.journal.mkdir())


def _a_journal_of_roots_that_everybody_writes(volume: Volume) -> None:
    volume.state.mkdir(mode=0o755)
    volume.journal.touch()
    volume.journal.chmod(0o666)
    as_eve(lambda: volume.journal.write_bytes(volume.journal_1()))


def _originals_that_lead_to_a_folder_of_roots(volume: Volume) -> None:
    _while_open(volume, lambda: (volume.state / "originals").symlink_to(volume.roots / "keep"))


def _originals_of_another_user(volume: Volume) -> None:
    _while_open(volume, lambda: (volume.state / "originals").mkdir(mode=0o777))


def _logs_that_lead_to_a_folder_of_roots(volume: Volume) -> None:
    _while_open(volume, lambda: (volume.state / "logs").symlink_to(volume.roots / "keep"))


def _logs_of_another_user(volume: Volume) -> None:
    _while_open(volume, lambda: (volume.state / "logs").mkdir(mode=0o777))


PLANTED = (
    _another_users_journal_of_0_1, _another_users_typed_journal, _another_users_journal_that_overwrites_a_file,
    _an_empty_folder_of_another_user, _a_link_to_another_users_folder, _another_users_link_to_a_folder_of_roots,
    _a_state_folder_that_everybody_writes, _a_state_folder_that_a_group_writes, _a_folder_above_that_a_group_writes,
    _a_folder_above_without_the_sticky_bit, _a_folder_above_of_another_user,
    _a_journal_of_another_owner_in_roots_folder, _a_journal_that_is_a_link_to_roots_file,
    _a_journal_that_is_a_link_to_nothing_yet, _a_journal_that_is_a_second_name_of_roots_file,
    _a_journal_that_is_a_fifo, _a_journal_that_is_a_socket, _a_journal_that_is_a_folder,
    _a_journal_of_roots_that_everybody_writes, _originals_that_lead_to_a_folder_of_roots, _originals_of_another_user,
    _logs_that_lead_to_a_folder_of_roots, _logs_of_another_user,
)  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_what_another_user_planted_reaches_no_file_of_roots(volume: Volume, plant: Callable[[Volume], None]) -> None:
    plant(volume)
    before, home = snapshot(volume.roots), tree(volume.shared / "home")
    signal.alarm(SLOW_S)  # a hang ends the test run, and says where
    try:
        for act in (undo_in, apply_in):
            with pytest.raises(NotOurs, match=r"\(owner (0|4001)\b.*, mode 0?[0-7]{4}\)"):
                act(volume.shared)
    finally:
        signal.alarm(0)
    assert snapshot(volume.roots) == before
    assert not volume.ran.exists()
    assert tree(volume.shared / "home") == home, "nothing of the plan was begun"


def test_a_state_folder_of_our_own_on_the_shared_volume_works_also_through_links_of_ours(volume: Volume) -> None:
    before = tree(volume.shared / "home")
    (volume.roots / "volume").symlink_to(volume.shared)
    (volume.roots / "home").symlink_to(volume.roots / "volume/home")
    apply_in(volume.roots / "volume")
    assert tree(volume.shared / "home") != before
    assert (volume.shared / "state").stat().st_mode & 0o777 == 0o700
    undo_in(volume.roots / "volume")
    assert tree(volume.shared / "home") == before


def test_a_folder_that_is_swapped_again_and_again_is_never_taken_for_ours(volume: Volume) -> None:
    """The second user swaps its own folder, links and a real one of root's name under our feet, as fast as it can."""
    ours, theirs = volume.roots / "keep", volume.shared / "theirs"
    as_eve(lambda: theirs.mkdir())
    as_eve(lambda: (theirs / "journal.jsonl").write_bytes(b"eve's\n"))
    (ours / "journal.jsonl").write_bytes(b"root's\n")
    swapping = os.fork()
    if swapping == 0:
        os.setgroups([])
        os.setgid(EVE)
        os.setuid(EVE)
        place, other = str(volume.shared / "state"), str(volume.shared / "other")
        while True:
            os.symlink(ours, place)
            os.unlink(place)
            os.rename(theirs, place)
            os.rename(place, theirs)
            os.symlink(theirs, other)
            os.rename(other, place)
            os.unlink(place)
    seen: set[bytes] = set()
    try:
        until = time.monotonic() + 2
        tries = 0
        while time.monotonic() < until:
            tries += 1
            try:
                with our_folder(str(volume.shared / "state")) as folder:
                    seen.add(read_ours(folder, "journal.jsonl"))
            except (NotOurs, OSError):
                continue
    finally:
        os.kill(swapping, signal.SIGKILL)
        os.waitpid(swapping, 0)
    assert seen <= {b"root's\n"}, "a link of another user is not followed, and its folder is not read"
    assert tries > 500


def _firstlight(volume: Volume, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(volume.roots), **more}
    return subprocess.run(
        [sys.executable, "-m", "firstlight", *words], env=environ, cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def _machine_folder(volume: Volume, state: Path) -> Path:
    from firstlight.apply.place import machine_identity
    from firstlight.machine.live import LiveMachine

    del volume
    return state / "machines" / machine_identity(LiveMachine())


def test_the_command_line_refuses_another_users_journal_with_owner_mode_and_what_to_do(volume: Volume) -> None:
    place = _machine_folder(volume, volume.state)
    as_eve(lambda: place.mkdir(parents=True))
    as_eve(lambda: (place / "journal.jsonl").write_bytes(volume.journal_1()))
    for words in (("undo", "--yes"), ("undo", "--list")):
        done = _firstlight(volume, *words, FIRSTLIGHT_STATE_DIR=str(volume.state))
        assert done.returncode == 2, done.stderr
        assert f"{volume.state} is a folder of another user (owner 4001, mode 0777)" in done.stderr
        assert "Set FIRSTLIGHT_STATE_DIR to a folder of your own" in done.stderr
    assert not volume.ran.exists()


def test_a_home_of_another_user_is_not_ours_even_for_root(volume: Volume) -> None:
    home = volume.shared / "eve"
    place = _machine_folder(volume, home / ".local/state/firstlight")
    as_eve(lambda: place.mkdir(parents=True, mode=0o755))
    as_eve(lambda: (place / "journal.jsonl").write_bytes(volume.journal_2()))
    done = _firstlight(volume, "undo", "--yes", HOME=str(home))
    assert done.returncode == 2, done.stderr
    assert "a folder of another user" in done.stderr
    assert (volume.roots / "keep/file").exists()


def _lock(volume: Volume) -> Path:
    return volume.shared / "firstlight.lock"


def _a_fifo(volume: Volume) -> None:
    as_eve(lambda: os.mkfifo(_lock(volume), 0o666))


def _a_link(volume: Volume) -> None:
    as_eve(lambda: _lock(volume).symlink_to(volume.roots / "secret"))


def _a_second_name(volume: Volume) -> None:
    os.link(volume.roots / "secret", _lock(volume))


def _a_folder(volume: Volume) -> None:
    as_eve(lambda: _lock(volume).mkdir())


@pytest.mark.parametrize("plant", [_a_fifo, _a_link, _a_second_name, _a_folder], ids=lambda plant: plant.__name__)
def test_a_planted_lock_is_neither_followed_nor_emptied_nor_waited_for(
    volume: Volume, plant: Callable[[Volume], None]
) -> None:
    plant(volume)
    before = snapshot(volume.roots)
    signal.alarm(SLOW_S)
    with pytest.raises(NotOurs, match=r"\(owner (0|4001)"), machine_lock((str(volume.shared),)):
        pass
    signal.alarm(0)
    assert snapshot(volume.roots) == before


def test_whoever_holds_the_lock_is_named_by_the_kernel_not_by_what_they_wrote(volume: Volume) -> None:
    code = (
        "import fcntl, os, sys, time\nos.setgid(4001); os.setuid(4001); os.umask(0)\n"
        f"f = os.open({str(_lock(volume))!r}, os.O_RDWR | os.O_CREAT, 0o666)\n"
        "os.write(f, b'process 1, user 0 \\x1b[2J'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with (
            pytest.raises(AnotherIsActing, match=rf"process {holder.pid}, user 4001 .*a file of user 4001"),
            machine_lock((str(volume.shared),)),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    with machine_lock((str(volume.shared),)):
        assert _lock(volume).read_bytes().startswith(b"process 1"), "a file of another user is locked, not written"


def test_a_project_whose_folder_became_a_link_is_not_written_through_by_undo(volume: Volume) -> None:
    """The second user's folder held a file that root changed; now a link to root's folder stands in its place."""
    home = volume.shared / "home"
    os.chown(home, EVE, EVE)
    home.chmod(0o755)
    apply_in(volume.shared)
    (volume.roots / "home").mkdir()
    before = snapshot(volume.roots)
    shutil.move(home, volume.shared / "moved")
    as_eve(lambda: os.symlink(volume.roots / "home", home))
    with pytest.raises(Refused):
        undo_in(volume.shared)
    assert snapshot(volume.roots) == before


def test_an_unfinished_file_that_is_a_link_is_not_written_through(volume: Volume) -> None:
    home = volume.shared / "home"
    home.chmod(0o777)
    as_eve(lambda: (home / ".bashrc.firstlight-unfinished").symlink_to(volume.roots / "secret"))
    before = snapshot(volume.roots)
    apply_in(volume.shared)
    assert snapshot(volume.roots) == before


def test_start_files_go_into_no_folder_that_others_can_change(volume: Volume) -> None:
    from firstlight.apply.footprints import require_own_start_files
    from firstlight.ways.step import FileChange, StepKind
    from tests.apply.acting import step

    as_eve(lambda: (volume.shared / "compat").mkdir(mode=0o777))
    wiring = step("01", kind=StepKind.COMPAT, files=(FileChange(str(volume.shared / "compat/wire.sh"), "", "text"),))
    with pytest.raises(NotOurs, match=r"owner 4001, mode 0777\)\. .*would be read at every start"):
        require_own_start_files(wiring)


def test_a_proof_that_another_user_wrote_is_not_believed_at_the_start_of_python(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firstlight.ways.start_file import start_module
    from firstlight.ways.start_script import Wiring

    monkeypatch.setenv("FIRSTLIGHT_COMPAT", "off")
    names: dict[str, Any] = {"__file__": str(volume.roots / "secret")}
    exec(start_module(Wiring("/compat", "13.0", (570,), "python3", str(volume.shared))), names)
    theirs, ours = volume.shared / "works-570.1", volume.shared / "works-570.2"
    as_eve(lambda: theirs.write_text("1 2\n"))
    ours.write_text("1 2\n")
    assert names["text_of"](str(theirs), trusted=True) == ""
    assert names["text_of"](str(ours), trusted=True) == "1 2"

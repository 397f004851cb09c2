"""One firstlight at a time; the journal lies where it survives and belongs to one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.apply.lock import machine_lock
from firstlight.apply.place import machine_folder, machine_identity, state_folder
from firstlight.errors import AnotherIsActing, CouldNotAct, NotOurs
from firstlight.machine.interface import Host
from firstlight.machine.live import LiveMachine

HOST = Host(
    "host-a", "user-a", "/home/user-a", "/", 1000, "6.8.0", "x86_64", "3.11", "/usr/bin/python3", "/usr", "/usr", ""
)


def _machine(root: Path, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=HOST)


def test_a_second_holder_is_told_who_has_the_lock(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom firstlight.apply.lock import machine_lock\n"
        f"with machine_lock(({str(tmp_path)!r},)):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(AnotherIsActing, match=f"process {holder.pid}, user {os.getuid()}"),
        machine_lock((str(tmp_path),)),
    ):
        pass
    holder.kill()
    holder.communicate()
    with machine_lock((str(tmp_path),)):
        pass


RACE = """
import os, subprocess, sys
from firstlight.apply.lock import machine_lock
path, quicker = sys.argv[1] + "/firstlight.lock", []
def first(event, given):
    if event == "open" and given[0] == path and given[2] & os.O_CREAT and not quicker:
        quicker.append(path)
        subprocess.run(["touch", path], check=True)
sys.addaudithook(first)
with machine_lock((sys.argv[1],)):
    print("held after", len(quicker))
"""


def test_where_another_process_makes_the_lock_file_first_the_same_file_is_locked(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RACE, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert done.stdout == "held after 1\n", done.stderr


def test_the_lock_file_is_open_to_every_user_from_the_start_and_the_umask_is_kept(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with machine_lock((str(tmp_path),)):
            assert (tmp_path / "firstlight.lock").stat().st_mode & 0o777 == 0o666
    finally:
        assert os.umask(before) == 0o077


def test_nobody_is_told_to_remove_a_file_that_may_be_held(tmp_path: Path) -> None:
    with machine_lock((str(tmp_path),)):
        os.link(tmp_path / "firstlight.lock", tmp_path / "again")
        with (
            pytest.raises(NotOurs, match="Remove the other name, not this one") as told,
            machine_lock((str(tmp_path),)),
        ):
            pass
        command = str(told.value).split("`")[1].split()
        assert f"{tmp_path}/again" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_where_no_folder_takes_a_lock_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CouldNotAct, match="no lock could be taken"), machine_lock((str(tmp_path / "no/such"),)):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "firstlight.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotOurs, match=r"firstlight.lock is a link \(owner 0"), machine_lock((str(tmp_path),)):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_the_state_folder_is_the_one_given_then_the_volume_then_xdg(tmp_path: Path) -> None:
    assert state_folder(_machine(tmp_path, FIRSTLIGHT_STATE_DIR="/data/state")) == "/data/state"
    assert state_folder(_machine(tmp_path)) == "/home/user-a/.local/state/firstlight"
    assert state_folder(_machine(tmp_path, XDG_STATE_HOME="/x")) == "/x/firstlight"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text("36 35 0:32 / /workspace rw,relatime - fuse mfs rw\n")
    assert state_folder(_machine(tmp_path)) == "/workspace/.firstlight"


def test_a_folder_named_workspace_that_is_no_mount_is_not_taken_for_a_volume(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    assert state_folder(_machine(tmp_path)) == "/home/user-a/.local/state/firstlight"


def test_two_pods_that_share_a_volume_have_two_journals(tmp_path: Path) -> None:
    one, two = (_machine(tmp_path, RUNPOD_POD_ID=each, FIRSTLIGHT_STATE_DIR="/workspace/.firstlight") for each in "ab")
    assert machine_folder(one) != machine_folder(two)


def test_a_container_made_anew_is_another_machine(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    mounts = tmp_path / "proc/self/mountinfo"
    identities = set()
    for digit in "ab":
        mounts.write_text(
            f"700 690 8:1 /var/lib/docker/containers/{digit * 64}/hostname /etc/hostname rw - ext4 x rw\n"
        )
        identities.add(machine_identity(_machine(tmp_path)))
    assert len(identities) == 2

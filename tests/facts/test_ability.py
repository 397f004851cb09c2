"""Ability: what the user may do, learned from files alone; sudo is never run and no lock is taken."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.ability import AbilityFacts, HeldLock, Prefix, Sudo, probe_ability
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

STATUS = "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{groups} \n"
GROUP = "root:x:0:\nsudo:x:27:ada,grace\nvideo:x:44:\ndocker:x:999:grace\nsudoers:x:1001:\nada:x:1000:\n"


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def program(root: Path, path: str) -> None:
    put(root, path, "#!/bin/sh\ntouch /tmp/should-never-run\nexit 1\n").chmod(0o755)


def machine_of(root: Path, *, uid: int = 1000, cwd: str = "/home/ada") -> LiveMachine:
    host = replace(LiveMachine().host, uid=uid, user="ada", home="/home/ada", cwd=cwd)
    return LiveMachine(root=str(root), environ={"PATH": "/usr/bin"}, host=host)


def locks_line(number: int, path: Path, *, kind: str = "POSIX  ADVISORY  WRITE", pid: int = 4321) -> str:
    return f"{number}: {kind} {pid} 08:01:{path.stat().st_ino} 0 EOF\n"


def apt_host(root: Path) -> dict[str, Path]:
    program(root, "/usr/bin/apt-get")
    paths = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
    return {path: put(root, path) for path in paths}


def test_a_user_in_the_sudo_group_is_told_by_number_and_no_member_name_is_read(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/status", STATUS.format(gid=1000, groups="27 44"))
    put(tmp_path, "/etc/group", GROUP)
    program(tmp_path, "/usr/bin/sudo")
    recording = RecordingMachine(machine_of(tmp_path))
    facts = probe_ability(recording)
    assert facts.sudo is Sudo.ADMIN_GROUP
    assert facts.groups == ("sudo", "video")
    assert "grace" not in repr(recording.evidence)


@pytest.mark.parametrize(
    ("uid", "has_sudo", "sudo"),
    [(0, "no", Sudo.NOT_NEEDED), (1000, "yes", Sudo.PRESENT), (1000, "no", Sudo.ABSENT)],
)
def test_sudo_without_a_group_is_an_open_question(tmp_path: Path, uid: int, has_sudo: str, sudo: Sudo) -> None:
    put(tmp_path, "/proc/self/status", STATUS.format(gid=1001, groups=""))
    put(tmp_path, "/etc/group", GROUP)
    if has_sudo == "yes":
        program(tmp_path, "/usr/bin/sudo")
    facts = probe_ability(machine_of(tmp_path, uid=uid))
    assert facts.sudo is sudo
    assert facts.is_root is (uid == 0)
    assert facts.groups == ()


def test_the_kernel_says_whether_rights_can_be_gained_and_modules_loaded(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/status", "CapEff:\t00000000a80425fb\nNoNewPrivs:\t1\n")
    facts = probe_ability(machine_of(tmp_path))
    assert facts.no_new_privileges == Known(value=True, seen_in="/proc/self/status")
    assert facts.may_load_modules == Known(value=False, seen_in="/proc/self/status")
    put(tmp_path, "/proc/self/status", "CapEff:\t000001ffffffffff\nNoNewPrivs:\t0\n")
    facts = probe_ability(machine_of(tmp_path))
    assert facts.no_new_privileges == Known(value=False, seen_in="/proc/self/status")
    assert facts.may_load_modules == Known(value=True, seen_in="/proc/self/status")


@pytest.mark.parametrize("status", ["", "CapEff:\tzz\nNoNewPrivs:\t7\nGroups:\tmany\n", "\0" * 200])
def test_an_absurd_status_gives_unknowns(tmp_path: Path, status: str) -> None:
    put(tmp_path, "/proc/self/status", status)
    put(tmp_path, "/etc/group", "sudo:x:99999999999999999999:\nsudo\n\0:::::\n")
    facts = probe_ability(machine_of(tmp_path))
    assert isinstance(facts.no_new_privileges, Unknown)
    assert isinstance(facts.may_load_modules, Unknown)
    assert facts.groups == ()


@pytest.mark.parametrize(
    ("text", "mapped"),
    [("         0          0 4294967295\n", False), ("0 1000 1\n1 100000 65536\n", True), ("1000 0 1\n", True)],
)
def test_root_of_a_rootless_container_is_told_from_real_root(tmp_path: Path, text: str, *, mapped: bool) -> None:
    put(tmp_path, "/proc/self/uid_map", text)
    assert probe_ability(machine_of(tmp_path)).root_is_mapped == Known(mapped, seen_in="/proc/self/uid_map")


def test_a_held_apt_lock_is_found_by_its_inode_with_the_name_of_its_holder(tmp_path: Path) -> None:
    locks = apt_host(tmp_path)
    frontend = locks["/var/lib/dpkg/lock-frontend"]
    put(tmp_path, "/proc/locks", locks_line(1, tmp_path / "usr/bin/apt-get") + locks_line(2, frontend))
    put(tmp_path, "/proc/4321/comm", "unattended-upgr\n")
    assert probe_ability(machine_of(tmp_path)).apt_locks == Known(
        (HeldLock("/var/lib/dpkg/lock-frontend", Known("unattended-upgr", seen_in="/proc/4321/comm")),),
        seen_in="/proc/locks",
    )


def test_one_who_waits_or_reads_does_not_hold_the_lock(tmp_path: Path) -> None:
    locks = apt_host(tmp_path)
    frontend = locks["/var/lib/dpkg/lock-frontend"]
    waits = locks_line(1, frontend, kind="-> POSIX  ADVISORY  WRITE")
    reads = locks_line(2, frontend, kind="POSIX  ADVISORY  READ ")
    put(tmp_path, "/proc/locks", waits + reads)
    assert probe_ability(machine_of(tmp_path)).apt_locks == Known((), seen_in="/proc/locks")


def test_a_lock_held_by_a_process_out_of_sight_is_still_held(tmp_path: Path) -> None:
    locks = apt_host(tmp_path)
    put(tmp_path, "/proc/locks", locks_line(1, locks["/var/lib/apt/lists/lock"], kind="OFDLCK ADVISORY  WRITE", pid=-1))
    facts = probe_ability(machine_of(tmp_path))
    assert facts.apt_locks == Known(
        (HeldLock("/var/lib/apt/lists/lock", Unknown("the process is not visible from here")),), seen_in="/proc/locks"
    )


def test_a_lock_that_a_real_process_takes_with_fcntl_is_seen_in_the_kernels_own_table(tmp_path: Path) -> None:
    frontend = apt_host(tmp_path)["/var/lib/dpkg/lock-frontend"]
    (tmp_path / "proc").mkdir()
    os.symlink("/proc/locks", tmp_path / "proc/locks")
    machine = machine_of(tmp_path)
    with frontend.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        facts = probe_ability(machine)
        assert isinstance(facts.apt_locks, Known)
        assert [lock.path for lock in facts.apt_locks.value] == ["/var/lib/dpkg/lock-frontend"]
    assert probe_ability(machine).apt_locks == Known((), seen_in="/proc/locks")


def test_looking_takes_no_lock_away_from_others(tmp_path: Path) -> None:
    frontend = apt_host(tmp_path)["/var/lib/dpkg/lock-frontend"]
    put(tmp_path, "/proc/locks", "")
    probe_ability(machine_of(tmp_path))
    taken = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert subprocess.run((sys.executable, "-c", taken, str(frontend)), check=False).returncode == 0


@pytest.mark.parametrize("text", ["", "1: nonsense\n", "1: POSIX  ADVISORY  WRITE x 08:01:1 0 EOF\n", "\0" * 100])
def test_an_absurd_lock_table_holds_nothing(tmp_path: Path, text: str) -> None:
    apt_host(tmp_path)
    put(tmp_path, "/proc/locks", text)
    assert probe_ability(machine_of(tmp_path)).apt_locks == Known((), seen_in="/proc/locks")


def test_without_apt_or_without_the_table_the_locks_are_unknown(tmp_path: Path) -> None:
    assert probe_ability(machine_of(tmp_path)).apt_locks == Unknown("no apt-get on PATH")
    apt_host(tmp_path)
    assert probe_ability(machine_of(tmp_path)).apt_locks == Unknown("/proc/locks: no such file")


def test_package_managers_are_found_on_path(tmp_path: Path) -> None:
    for name in ("dnf", "yum", "conda"):
        program(tmp_path, f"/usr/bin/{name}")
    assert probe_ability(machine_of(tmp_path)).package_managers == ("dnf", "yum")


def test_prefixes_are_told_with_whether_they_can_be_written(tmp_path: Path) -> None:
    for path in ("/opt", "/home/ada", "/venv/site-packages"):
        (tmp_path / path[1:]).mkdir(parents=True)
    put(tmp_path, "/workspace", "a file, not a folder")
    (tmp_path / "usr/local").mkdir(parents=True)
    facts = probe_ability(machine_of(tmp_path), site_packages=("/venv/site-packages", "/gone"))
    assert facts.prefixes == (
        Prefix("/usr/local", writable=True),
        Prefix("/opt", writable=True),
        Prefix("/home/ada", writable=True),
        Prefix("/venv/site-packages", writable=True),
    )


def test_a_folder_on_a_read_only_file_system_is_not_writable() -> None:
    host = replace(LiveMachine().host, home="/proc/sys", cwd="/proc/self")
    facts = probe_ability(LiveMachine(environ={}, host=host))
    assert Prefix("/proc/self", writable=False) in facts.prefixes


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    locks = apt_host(tmp_path)
    put(tmp_path, "/proc/locks", locks_line(1, locks["/var/lib/dpkg/lock"]))
    put(tmp_path, "/proc/self/status", STATUS.format(gid=27, groups="44"))
    put(tmp_path, "/etc/group", GROUP)
    recording = RecordingMachine(machine_of(tmp_path))
    facts = probe_ability(recording)
    assert probe_ability(RecordedMachine(recording.evidence)) == facts
    assert decode(AbilityFacts, json.loads(json.dumps(encode(facts))), "ability") == facts

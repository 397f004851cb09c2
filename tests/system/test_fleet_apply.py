"""`fleet apply`, `--retry`, `status` and `undo`: the real Ansible over real ssh, on roots that pretend GPU machines."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.fleet.inventory import ansible_program
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.schemas import fits
from tests.system.fleet_hosts import PACKAGES, free_port
from tests.system.fleet_lab import BASHRC, ROOT, STATE, Lab, cut, files, jobs, journal, make_lab, stop

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(shutil.which("ssh") is None or shutil.which("gcc") is None, reason="needs ssh and gcc"),
    pytest.mark.skipif(not ansible_program("ansible-playbook"), reason="needs ansible-core"),
    pytest.mark.skipif(
        not all(Path("/usr/share/doc", name).exists() for name in PACKAGES), reason=f"needs {', '.join(PACKAGES)}"
    ),
]
NODES = ("node01", "node02", "node03", "node04", "node05", "node06")
GOOD, FAILS, LOST = NODES[:4], NODES[4], NODES[5]
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = make_lab(tmp_path_factory.mktemp("fleet-apply"), NODES, failing=FAILS)
    try:
        yield made
    finally:
        stop(made)


def test_one_fails_one_is_lost_retry_does_those_two_and_undo_brings_every_byte_back(lab: Lab) -> None:
    before = {name: files(host) for name, host in lab.hosts.items()}
    [port] = lab.hosts[LOST].ports
    lab.lose(LOST, port=free_port())
    first = lab.fleet(*lab.apply_words(*NODES))
    assert first.code == 1, first
    assert first.ends == {**dict.fromkeys(GOOD, "done"), FAILS: "failed", LOST: "not reached over ssh"}
    assert all(f"{name}: at work" in first.err for name in GOOD), "how far it is, is said on the way"
    assert all(BASHRC.encode() != files(lab.hosts[name])["root/.bashrc"][1] for name in GOOD)
    kept = Path(first.document["folder"]) / "hosts"
    assert all((kept / name / "journal.jsonl").read_bytes() == journal(lab.hosts[name]) for name in GOOD)
    assert (kept / FAILS / "log").read_text() != ""

    after = {name: (journal(lab.hosts[name]), jobs(lab.hosts[name])) for name in GOOD}
    lab.lose(LOST, port=port)
    lab.on(FAILS, f"rm /{STATE}/machines")
    shown = lab.fleet("status")
    assert shown.code == 1
    assert f"\n{FAILS}       failed\n" in shown.out, shown.out
    assert shown.out.endswith("\nnext\n  firstlight fleet apply --retry\n")
    second = lab.fleet("apply", "--retry", "--yes", "--json")
    assert second.code == 0, second
    assert second.document["run"] == first.document["run"]
    assert set(second.ends.values()) == {"done"}
    assert not any(f"{name}:" in second.err for name in GOOD)
    assert {name: (journal(lab.hosts[name]), jobs(lab.hosts[name])) for name in GOOD} == after, "the others were asked"

    mended = {name: (files(host), journal(host)) for name, host in lab.hosts.items()}
    again = lab.fleet(*lab.apply_words(*NODES))
    assert (again.code, set(again.ends.values())) == (0, {"nothing to do"}), again
    assert {name: (files(host), journal(host)) for name, host in lab.hosts.items()} == mended

    undone = lab.fleet("undo", "--yes", "--json")
    assert undone.code == 0, undone
    assert undone.document["of"] == first.document["run"]
    assert undone.ends == dict.fromkeys(NODES, "done")
    assert {name: files(host) for name, host in lab.hosts.items()} == before
    assert lab.fleet("undo", "--yes").code == 0, "there is nothing left to take back, which is no fault"


def test_work_outlives_connections_that_are_cut_at_random_moments_and_is_picked_up(lab: Lab) -> None:
    seed = int(os.environ.get("FIRSTLIGHT_TEST_SEED", str(time.time_ns() % 10_000)))
    moments, names = random.Random(seed), ("node01", "node02")
    for _ in range(3):
        before = {name: (files(lab.hosts[name]), len(jobs(lab.hosts[name]))) for name in names}
        started = lab.begun(*lab.apply_words(*names))
        time.sleep(moments.uniform(1.0, 5.0))
        for name in names:
            cut(lab.hosts[name])
        out, err = started.communicate(timeout=60)
        calls = [started.returncode]
        while calls[-1] != 0 and len(calls) < 4:
            ran = lab.fleet("apply", "--retry", "--yes", "--json")
            calls.append(ran.code)
        assert calls[-1] == 0, (seed, calls, out, err)
        for name in names:
            assert len(jobs(lab.hosts[name])) == before[name][1] + 1, (seed, "it was started twice", err)
            assert files(lab.hosts[name])["root/.bashrc"][1] != BASHRC.encode()
        assert lab.fleet("undo", "--yes").code == 0
        assert {name: files(lab.hosts[name]) for name in names} == {name: before[name][0] for name in names}


def test_a_second_operator_is_told_who_is_at_work_and_ctrl_c_leaves_the_work_to_finish(lab: Lab) -> None:
    name = "node03"
    lab.on(name, "sed -i '1a sleep 2' /usr/bin/nvidia-smi")
    count = len(jobs(lab.hosts[name]))
    started = lab.begun(*lab.apply_words(name))
    assert started.stderr is not None
    while "at work" not in (line := started.stderr.readline()):
        assert line, "it ended before it began"
    time.sleep(1)
    second = lab.fleet(*lab.apply_words(name))
    assert second.code == 4, second
    assert f"@{os.uname().nodename} since 20" in second.err
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert started.returncode == 130, err
    assert '"end": "at work"' in out
    shown = lab.fleet("status")
    assert (shown.code, "at work" in shown.out) == (4, True)
    picked_up = lab.fleet(*lab.apply_words(name))  # the same command: the run is not finished
    assert (picked_up.code, picked_up.ends) == (0, {name: "done"}), picked_up
    assert len(jobs(lab.hosts[name])) == count + 1
    lab.on(name, "sed -i '2d' /usr/bin/nvidia-smi")


def test_work_of_another_run_on_a_host_is_left_alone_and_named(lab: Lab) -> None:
    name = "node04"
    jobs_folder = f"/{STATE}/fleet/jobs/29990101T000000Z-other-1"
    about = '{"who": "eve\\u001b[2J@elsewhere", "since": "2999-01-01T00:00:00Z"}'
    lab.on(name, f"mkdir -p {jobs_folder} && echo '{about}' > {jobs_folder}/about && touch {jobs_folder}/lock")
    held = subprocess.Popen(["ssh", "-F", str(lab.room.config), name, f"flock {jobs_folder}/lock sleep 20"])
    time.sleep(1)
    try:
        ran = lab.fleet(*lab.apply_words(name))
    finally:
        lab.on(name, f"rm -r {jobs_folder}")
        held.kill()
        held.wait()
    assert (ran.code, ran.ends) == (4, {name: "another at work"}), ran
    [host] = ran.document["hosts"]
    assert host["reason"] == "eve\\x1b[2J@elsewhere since 2999-01-01T00:00:00Z"
    assert "\x1b" not in ran.out + ran.err


def test_plan_prints_hosts_with_the_same_plan_once_and_leaves_nothing(lab: Lab) -> None:
    before = {name: (files(lab.hosts[name]), jobs(lab.hosts[name])) for name in NODES[4:]}
    words = ("plan", "--hosts", ",".join(NODES[4:]), "--ssh-config", str(lab.room.config))
    ran = lab.fleet(*words)
    assert ran.code == 0, ran
    assert ran.out.startswith("node[05-06] (2 hosts)\n")
    assert ran.out.count("take /usr/local/cuda-13.0/compat out of LD_LIBRARY_PATH") == 1
    document = json.loads(lab.fleet(*words, "--json").out)
    fits(document, json.loads((ROOT / "src/firstlight/schemas/fleet-plan-1.json").read_text()))
    assert [row["hosts"] for row in document["rows"]] == [["host-a", "host-b"]]
    assert "node05" not in json.dumps(document)
    assert {name: (files(lab.hosts[name]), jobs(lab.hosts[name])) for name in NODES[4:]} == before


def test_a_batch_that_fails_stops_the_next_and_limit_leaves_hosts_out(lab: Lab) -> None:
    [port] = lab.hosts["node05"].ports
    lab.lose("node05", port=free_port())
    words = lab.apply_words("node04", "node05", "node06")
    ran = lab.fleet("apply", "--serial", "1", "--limit", "node05,node06", *words[1:])
    lab.lose("node05", port=port)
    assert (ran.code, ran.ends) == (4, {"node05": "not reached over ssh", "node06": "not asked yet"}), ran
    assert "more than 0 failed (--max-fail); no further host is asked" in ran.err


def test_a_host_that_floods_is_ended(lab: Lab) -> None:
    flood = lab.room.folder / "floods/upper/flood.sh"
    flood.parent.mkdir(parents=True)
    flood.write_text("yes </dev/null | head -c 100000000\n")
    lab.hosts["floods"] = lab.room.start("floods", rules=("ForceCommand sh /flood.sh",))
    ran = lab.fleet(*lab.apply_words("floods"))
    assert (ran.code, ran.ends) == (4, {"floods": "not reached over ssh"}), ran
    assert ran.document["hosts"][0]["reason"] == "ssh: it printed more than 8 MB; nothing of that was read"


def test_a_password_is_written_nowhere(lab: Lab) -> None:
    password = lab.room.folder / "password"
    password.write_text(SECRET)
    words = lab.apply_words("node02")
    ran = lab.fleet("apply", "--become", "--become-password-file", str(password), *words[1:])
    assert (ran.code, ran.ends) == (1, {"node02": "failed"}), ran
    assert "sudo" in ran.document["hosts"][0]["reason"], "these roots have none"
    written = [path for path in lab.state.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert (written, SECRET in ran.out + ran.err) == ([], False)

"""`fleet doctor` over real ssh: many roots that pretend GPU machines, broken and hostile ones among them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apply.stand_ins import can_have_its_own_mounts, fake_torch
from tests.schemas import fits
from tests.system.fleet_hosts import (
    OF_THIS_MACHINE,
    PACKAGES,
    Host,
    Room,
    free_port,
    make_base,
    pretend,
    python_of,
    real_python,
)

ROOT = Path(__file__).parents[2]
FIRSTLIGHT = Path(sys.executable).parent / "firstlight"
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/fleet-1.json").read_text())
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(shutil.which("ssh") is None or shutil.which("gcc") is None, reason="needs ssh and gcc"),
    pytest.mark.skipif(
        not all(Path("/usr/share/doc", name).exists() for name in PACKAGES), reason=f"needs {', '.join(PACKAGES)}"
    ),
]
PYTHON_39, PYTHON_310 = real_python("3.9"), real_python("3.10")
USUAL, ODD, TOO_OLD = "580.95.05", "580.126.09", "570.133.20"
# What a host that means no good does when it is asked; the token stands in the command that it was given.
TOKEN = "token=$(printf %s \"$SSH_ORIGINAL_COMMAND\" | grep -oE '[0-9a-f]{16}' | head -n 1)\n"
BAD_HOSTS = {
    "hangs": "exec cat >/dev/null\n",
    "dies": TOKEN + 'echo "firstlight-$token-begin"\necho "{"\nkill -9 $PPID\n',
    "floods": "yes </dev/null | head -c 100000000\n",
    "bomb": TOKEN
    + 'echo "firstlight-$token-begin"; cat /bomb; echo; echo "firstlight-$token-end"; exec cat >/dev/null\n',
    "deep": TOKEN
    + 'echo "firstlight-$token-begin"; cat /deep; echo; echo "firstlight-$token-end"; exec cat >/dev/null\n',
    "lies": TOKEN
    + 'echo "firstlight-$token-begin"; cat /lies; echo; echo "firstlight-$token-end"; exec cat >/dev/null\n',
}
HOSTILE = "\x1b[2J\x1b]0;owned\x07</script><script>window.hit=1</script>"


@dataclass(frozen=True)
class Ran:
    """What a run of ours said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Fleet:
    """The room and its hosts by name."""

    room: Room
    hosts: dict[str, Host]

    def doctor(self, *names: str, **options: str) -> Ran:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value) if word]
        argv = [str(FIRSTLIGHT), "fleet", "doctor", "--hosts", ",".join(names), "--ssh-config", str(self.room.config)]
        done = subprocess.run([*argv, *words], capture_output=True, text=True, check=False, timeout=120)
        return Ran(done.returncode, done.stdout, done.stderr)

    def document(self, *names: str, **options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the row of each host under its real name."""
        ran = self.doctor(*names, json="", identify="", **options)
        document = json.loads(ran.out)
        fits(document, SCHEMA)
        assert document["exit_code"] == ran.code
        return ran.code, {host: row for row in document["rows"] for host in row["hosts"]}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    room = Room(tmp_path_factory.mktemp("fleet"))
    make_base(room.base)
    python = python_of(room.base)
    drivers = {"node01": USUAL, "node02": USUAL, "node03": USUAL, "odd": ODD, "old": TOO_OLD, "nopython": USUAL,
               "python39": USUAL, "banner": USUAL, "newkey": USUAL}  # fmt: skip
    for name, driver in drivers.items():
        pretend(room.folder / name / "upper", driver=driver, python=python, cuda=12080 if driver == TOO_OLD else 13000)
    _without_python(room, "nopython")
    _without_python(room, "python39")
    _with_python(room, "python39", PYTHON_39)
    pretend(room.folder / "python310/upper", driver=USUAL, python="python3.10")
    _without_python(room, "python310")
    _with_python(room, "python310", PYTHON_310)
    _with_environment(room.folder / "python310/upper/opt/train")
    noisy = room.folder / "banner/upper/root"
    noisy.mkdir(parents=True)
    (noisy / ".bashrc").write_text("echo 'Welcome to the cluster!'; echo firstlight-begin; echo noise >&2\n")
    _bad_files(room.folder / "bad/upper", python)
    hosts: dict[str, Host] = {}
    try:
        for network, name in enumerate((*drivers, "python310"), 1):
            known = "other.key" if name == "newkey" else ""
            hosts[name] = room.start(name, known_key=known, devices=_devices(name), network=network)
        rules = tuple(f"ForceCommand sh /{name}.sh" for name in BAD_HOSTS)
        hosts["bad"] = room.start("bad", ports=len(rules), rules=rules, network=99)
        room.know("gone", free_port(), "ssh-ed25519 AAAA")
        yield Fleet(room, hosts)
    finally:
        for host in hosts.values():
            host.stop()
        shutil.rmtree(room.folder)


def _devices(name: str) -> str:
    """/dev, and the other Python where a host has one: it lies where it lies here."""
    folder = {"python39": PYTHON_39, "python310": PYTHON_310}.get(name)
    if folder is None:
        return OF_THIS_MACHINE
    return f'{OF_THIS_MACHINE} && mount --bind "{folder}" "$2/root{folder}"'


def _with_python(room: Room, name: str, python: Path | None) -> None:
    """Let a host have another Python; where there is none here, one that says of itself that it is too old."""
    program = room.folder / name / "upper/usr/bin/python3"
    program.unlink()
    if python is None:
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        return
    (room.folder / name / f"upper{python}").mkdir(parents=True)
    program.symlink_to(python / "bin/python3")


def _with_environment(folder: Path) -> None:
    """An environment of Python 3.10 with a stand-in for torch."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text(f"home = {PYTHON_310}/bin\ninclude-system-site-packages = false\n")
    fake_torch(folder / "lib/python3.10/site-packages", version="2.11.0", cuda="13.0")


def _without_python(room: Room, name: str) -> None:
    """Let the interpreters of the common layer be gone on this host, as overlayfs writes it."""
    folder = room.folder / name / "upper/usr/bin"
    for path in (room.base / "usr/bin").glob("python3*"):
        os.mknod(folder / path.name, 0o000, os.makedev(0, 0))


def _bad_files(upper: Path, python: str) -> None:
    pretend(upper, driver=USUAL, python=python)
    for name, script in BAD_HOSTS.items():
        (upper / f"{name}.sh").write_text(script)
    machine = json.loads((ROOT / "tests/machines/h200/machine.json").read_text())
    machine["host"] = {**machine["host"], "hostname": f"node01{HOSTILE}"}
    machine["paths"]["/etc/os-release"] = {"text": f'PRETTY_NAME="{HOSTILE}"\n'}
    (upper / "lies").write_text(json.dumps(_with_hostile_gpu(machine)))
    (upper / "deep").write_text("[" * 200_000 + "]" * 200_000)
    (upper / "bomb").write_text(
        '{"schema": "firstlight.machine/1", "a": ' + '{"b": [' * 60_000 + "1" + "]}" * 60_000 + "}"
    )


def _with_hostile_gpu(document: dict[str, Any]) -> dict[str, Any]:
    """The recording with codes and markup in the name of its GPU, wherever that stands."""
    text = json.dumps(document)
    changed: dict[str, Any] = json.loads(text.replace('"NVIDIA H200"', json.dumps(f"NVIDIA H200{HOSTILE}")))
    return changed


BAD_NAMES = {name: f"bad{number + 1}" for number, name in enumerate(BAD_HOSTS)}


def test_equal_hosts_are_one_row_and_all_is_good(fleet: Fleet) -> None:
    ran = fleet.doctor("node01", "node02", "node03")
    assert ran.code == 0, ran
    assert ran.out.splitlines()[0] == "3 hosts: 3 healthy"
    assert re.search(r"(?m)^node\[01-03\]  NVIDIA H200  580\.95\.05  13\.0 +2\.11\.0\+cu130  healthy$", ran.out), (
        ran.out
    )
    assert ran.err == ""


def test_the_odd_one_comes_first_with_what_it_differs_in(fleet: Fleet) -> None:
    ran = fleet.doctor("node01", "node02", "odd", "node03")
    assert ran.code == 3, ran
    lines = ran.out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("odd "))
    assert lines[first + 1 : first + 3] == [
        "    differs from node[01-03]:",
        f"      driver: {ODD} (there {USUAL})",
    ]
    assert first < next(number for number, line in enumerate(lines) if line.startswith("node[01-03]"))
    assert lines[-1] == f"  firstlight doctor --host odd --ssh-config {fleet.room.config}"


def test_every_kind_of_host_has_its_verdict_and_the_worst_exit_code_wins(fleet: Fleet) -> None:
    """Blocked, out of reach, hanging, dying, changed key, no Python, a banner: one run over all of them."""
    good = ("node01", "node02", "node03", "banner", "nopython", "python39", "odd")
    bad = ("gone", BAD_NAMES["hangs"], BAD_NAMES["dies"], "newkey")
    code, rows = fleet.document(*good, *bad, timeout="20")
    assert code == 4, [(name, row["verdict"], row["primary"], row["reason"]) for name, row in rows.items()]
    assert set(rows["node01"]["hosts"]) == {"banner", "node01", "node02", "node03"}
    assert set(rows["nopython"]["hosts"]) == {"nopython", "python39"}
    assert rows["banner"]["verdict"] == "healthy"
    assert [rows[name]["asked_by"] for name in ("node01", "odd")] == ["python", "python"]
    for name in ("nopython", "python39"):
        assert rows[name]["driver"] == USUAL
        assert rows[name]["gpus"] == "NVIDIA H200"
        assert (rows[name]["asked_by"], rows[name]["verdict"]) == ("sh", "partly judged")
        assert rows[name]["torch"] == "not asked"
    assert [each["name"] for each in rows["odd"]["differs"]] == ["version"]
    assert {rows[name]["verdict"] for name in bad} == {"not looked at"}
    assert "Connection refused" in rows["gone"]["reason"]
    assert rows[BAD_NAMES["hangs"]]["reason"] == "it gave no answer within 20 s"
    assert rows[BAD_NAMES["dies"]]["reason"].startswith(("ssh: ", "it stopped in the middle of its answer"))
    assert fleet.document(*good, *bad[:1], "old")[0] == 1  # something blocks: before out of reach, before odd


@pytest.mark.skipif(PYTHON_310 is None, reason="needs a Python 3.10 beside the one that runs")
def test_the_oldest_python_that_is_accepted_is_asked_as_the_others_are(fleet: Fleet) -> None:
    code, rows = fleet.document("python310", python="/opt/train/bin/python3")
    row = rows["python310"]
    assert (code, row["asked_by"], row["verdict"]) == (0, "python", "healthy"), row
    assert (row["driver"], row["torch"]) == (USUAL, "2.11.0+cu130")


def test_a_changed_key_stops_that_host_with_both_fingerprints_and_one_command(fleet: Fleet) -> None:
    code, rows = fleet.document("node01", "newkey")
    assert code == 4, [(name, row["verdict"], row["primary"], row["reason"]) for name, row in rows.items()]
    prints = [_fingerprint(fleet.room.key(name)) for name in ("other.key", "newkey.key")]
    assert f"(known: {prints[0]}; sent: {prints[1]})" in rows["newkey"]["reason"]
    [port], address = fleet.hosts["newkey"].ports, fleet.hosts["newkey"].address
    config, known = fleet.room.config, fleet.room.folder / "known_hosts"
    assert rows["newkey"]["do"] == (
        f"ssh-keygen -R '[{address}]:{port}' -f {known} && ssh -F {config} -o StrictHostKeyChecking=ask newkey true"
    )
    assert f"      {rows['newkey']['do']}\n" in fleet.doctor("node01", "newkey").out  # alone on its line


def _fingerprint(key: Path) -> str:
    said = subprocess.run(["ssh-keygen", "-l", "-f", f"{key}.pub"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def test_hostile_hosts_harm_nothing_and_are_named(fleet: Fleet, tmp_path: Path) -> None:
    page, junit = tmp_path / "fleet.html", tmp_path / "fleet.xml"
    names = [BAD_NAMES[name] for name in ("floods", "bomb", "deep", "lies")]
    before = time.monotonic()
    ran = fleet.doctor("node01", "node02", *names, html=str(page), junit=str(junit), timeout="30")
    assert time.monotonic() - before < 60
    assert ran.code in (1, 4), ran
    assert f"{BAD_NAMES['floods']} " in ran.out
    assert "it printed more than 8 MB; nothing of that was read" in ran.out
    assert ran.out.count("its answer is not JSON") == 2
    assert "\x1b" not in ran.out
    assert "</script><script>" not in page.read_text()
    assert re.search(rf"(?m)^{BAD_NAMES['lies']} ", ran.out), ran.out  # under the name that it was asked by
    cases = ET.parse(junit).getroot().findall(".//testcase")
    assert len(cases) == 6
    assert sum(case.find("error") is not None for case in cases) == 3
    healthy = next(line for line in ran.out.splitlines() if line.startswith("node[01-02]"))
    assert healthy.endswith("healthy")


def test_reports_carry_pseudonyms(fleet: Fleet, tmp_path: Path) -> None:
    page, junit = tmp_path / "fleet.html", tmp_path / "fleet.xml"
    ran = fleet.doctor("node01", "odd", "gone", "newkey", json="", html=str(page), junit=str(junit))
    for text in (ran.out, page.read_text(), junit.read_text()):
        assert not re.search(r"node01|newkey|gone\b.*refused", text), text
        assert "host-a" in text


def test_nothing_is_left_on_any_host(fleet: Fleet) -> None:
    before = {name: host.files() for name, host in fleet.hosts.items()}
    assert all(len(files) > 10 for files in before.values())
    everything = [name for name in fleet.hosts if name not in ("bad", "newkey")]
    assert fleet.doctor(*everything, *BAD_NAMES.values(), timeout="20").code == 1
    time.sleep(1.0)  # sshd ends its sessions after ours is gone
    _nothing_left(fleet, before)


def test_nothing_is_left_after_kill_9_in_the_middle(fleet: Fleet) -> None:
    before = {name: host.files() for name, host in fleet.hosts.items()}
    names = ("node01", "node02", "node03", BAD_NAMES["lies"], "nopython")
    argv = [str(FIRSTLIGHT), "fleet", "doctor", "--hosts", ",".join(names), "--ssh-config", str(fleet.room.config)]
    for moment in (0.2, 0.5, 1.0):
        ours = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not any(fleet.hosts[name].processes() for name in names[:3]) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(moment)
        ours.send_signal(signal.SIGKILL)
        ours.wait()
        _nothing_left(fleet, before, patience_s=15.0)


def _nothing_left(fleet: Fleet, before: dict[str, Any], *, patience_s: float = 10.0) -> None:
    deadline = time.monotonic() + patience_s
    left = _running(fleet)
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = _running(fleet)
    assert not left
    for name, host in fleet.hosts.items():
        assert host.files() == before[name], name


def _running(fleet: Fleet) -> list[str]:
    """What still runs on a host, and every ssh here that was given the config of these tests."""
    there = [f"{name}: {line}" for name, host in fleet.hosts.items() for line in host.processes()]
    here = subprocess.run(["pgrep", "-af", f"ssh.*-F {fleet.room.config}"], capture_output=True, text=True, check=False)
    return there + [line for line in here.stdout.splitlines() if "pgrep" not in line]


def test_one_host_is_judged_as_a_recording_of_it_is(fleet: Fleet, tmp_path: Path) -> None:
    """`doctor --host`, `facts --host --record` and `doctor --facts` of that agree."""
    where = ("--host", "old", "--ssh-config", str(fleet.room.config))
    over_ssh = _call("doctor", "--json", *where)
    assert over_ssh.code == 1
    assert _call("facts", "--json", "--record", str(tmp_path / "old"), *where).code == 0
    recorded = _call("doctor", "--json", "--facts", str(tmp_path / "old"))
    assert json.loads(over_ssh.out)["primary"] == json.loads(recorded.out)["primary"] == "driver-too-old-for-wheel"
    assert _call("plan", "--json", *where).code == 0
    assert _call("doctor", "--host", "gone", "--ssh-config", str(fleet.room.config)).code == 4


def _call(*argv: str) -> Ran:
    done = subprocess.run([str(FIRSTLIGHT), *argv], capture_output=True, text=True, check=False, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)

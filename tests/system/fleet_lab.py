"""Hosts for the tests of `fleet apply`: roots with a real sshd and something that `apply` mends in a file of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apply.stand_ins import build_libcuda
from tests.schemas import fits
from tests.system.fleet_hosts import WITH_A_GPU, Host, Room, make_base, pretend, python_of

ROOT = Path(__file__).parents[2]
FIRSTLIGHT = Path(sys.executable).parent / "firstlight"
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/fleet-run-1.json").read_text())
COMPAT = "/usr/local/cuda-13.0/compat"
BASHRC = f"alias ll='ls -l'\nexport LD_LIBRARY_PATH={COMPAT}\nexport EDITOR=vi"  # no newline at its end
STATE = "root/.local/state/firstlight"


@dataclass(frozen=True)
class Ran:
    """What a call of ours said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        fits(found, SCHEMA)
        return found

    @property
    def ends(self) -> dict[str, str]:
        return {host["name"]: host["end"] for host in self.document["hosts"]}


@dataclass(frozen=True)
class Lab:
    """The room, its hosts by name, and the state folder of the operator."""

    room: Room
    hosts: dict[str, Host]
    state: Path

    def argv(self, *words: str) -> list[str]:
        """The call; documents of runs have the real names, which is what the tests know hosts by."""
        named = ("--identify",) if "--json" in words and words[0] != "plan" else ()
        return [str(FIRSTLIGHT), "fleet", words[0], *named, *words[1:]]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FIRSTLIGHT_STATE_DIR": str(self.state),
            "ANSIBLE_HOME": str(self.room.folder / "ansible"),
        }

    def fleet(self, *words: str) -> Ran:
        done = subprocess.run(
            self.argv(*words), capture_output=True, text=True, check=False, timeout=150, env=self.environment
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def on(self, name: str, command: str) -> None:
        """Run a command on a host, past everything that is tested."""
        subprocess.run(["ssh", "-F", str(self.room.config), name, command], check=True, timeout=30)

    def lose(self, name: str, *, port: int) -> None:
        """Let ssh look for a host at another port."""
        known = f"Host {name}\n    HostName 127.0.0.1\n    Port "
        before, _, after = self.room.config.read_text().partition(known)
        self.room.config.write_text(f"{before}{known}{port}\n{after.partition(chr(10))[2]}")

    def apply_words(self, *names: str) -> tuple[str, ...]:
        hosts = ("--hosts", ",".join(names), "--ssh-config", str(self.room.config))
        return ("apply", "--yes", "--json", *hosts, "--", "--no-verify")

    def begun(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )


def make_lab(folder: Path, names: tuple[str, ...], *, failing: str) -> Lab:
    """Start the hosts; each has a stale compat folder in its start-up file, and one has no room for a journal."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200g", "fleet", str(folder)], check=True)  # gone in a moment
    room = Room(folder)
    make_base(room.base)
    lab = Lab(room, {}, folder / "state")
    for name in names:
        upper = room.folder / name / "upper"
        pretend(upper, driver="580.159.04", python=python_of(room.base))
        build_libcuda(upper / COMPAT.lstrip("/"), version="580.95.05", cuda=13000, answer="803")
        (upper / "sys/module/nvidia_uvm").mkdir()
        (upper / "root").mkdir(exist_ok=True)
        (upper / "root/.bashrc").write_text(BASHRC)
        if name == failing:
            (upper / STATE).mkdir(parents=True)
            (upper / STATE / "machines").write_text("a file where a folder has to be\n")
        lab.hosts[name] = room.start(name, devices=WITH_A_GPU)
    return lab


def stop(lab: Lab) -> None:
    for host in lab.hosts.values():
        host.stop()
    subprocess.run(["umount", "--lazy", str(lab.room.folder)], check=True)


def files(host: Host) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file of the host, less what firstlight keeps about itself and Python's bytecode."""
    found = {}
    for path in sorted(host.upper.rglob("*")):
        inside = str(path.relative_to(host.upper))
        left_out = inside.startswith((STATE, "tmp", "run", "var", "etc/ssh")) or "__pycache__" in path.parts
        if not left_out and path.is_file() and not path.is_symlink():
            found[inside] = (path.lstat().st_mode, path.read_bytes())
    return found


def journal(host: Host) -> bytes:
    """What apply wrote down on the host; b"" where it wrote nothing."""
    return b"".join(path.read_bytes() for path in sorted((host.upper / STATE).glob("machines/*/journal.jsonl")))


def jobs(host: Host) -> list[str]:
    folder = host.upper / STATE / "fleet/jobs"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []


def cut(host: Host) -> int:
    """Kill what serves the host's connections, as a lost network would; how many there were."""
    listener = host.daemon.pid
    [init] = [int(word) for word in Path(f"/proc/{listener}/task/{listener}/children").read_text().split()]
    space, count = os.readlink(f"/proc/{init}/ns/pid"), 0
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid != init and os.readlink(f"/proc/{pid}/ns/pid") == space and command.startswith(b"sshd:"):
                os.kill(pid, signal.SIGKILL)
                count += 1
        except OSError:
            continue
    return count

"""What a machine with one GPU says for a fleet: doctor over ssh to itself, the time of the gate, collectives.

    python -m benchmarks.fleet_on_gpu results/fleet-h200.json

ssh goes to an sshd of its own on the loopback, with keys of its own, all in a folder that is removed. Where there is no
sshd, doctor is asked through a recording of the machine (`--facts`) instead, and the document says so.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.usage import print_usage

ROOT = Path(__file__).parents[1]
GATES = 10
SSHD = shutil.which("sshd") or next((each for each in ("/usr/sbin/sshd", "/sbin/sshd") if os.path.exists(each)), "")


def asked(*argv: str, home: str = "") -> dict[str, Any]:
    """One call of firstlight: exit code, seconds, what it printed."""
    environ = {**os.environ, **({"HOME": home} if home else {})}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", *argv],
        capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env=environ,
    )  # fmt: skip
    return {
        "argv": list(argv),
        "exit_code": done.returncode,
        "wall_s": round(time.perf_counter() - began, 3),
        "stdout": done.stdout,
        "stderr": done.stderr,
    }


@contextmanager
def own_sshd(folder: Path) -> Iterator[str]:
    """A server on the loopback; gives the ssh_config in which it is called 'itself'."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    config = folder / "ssh_config"
    config.write_text(
        f"Host itself\n  HostName 127.0.0.1\n  Port {port}\n  User {pwd.getpwuid(os.getuid()).pw_name}\n"
        f"  IdentityFile {folder}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n"
    )
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield str(config)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=10)


def over_ssh(folder: Path) -> dict[str, Any]:
    """doctor here, and the same over ssh: both must name the same finding."""
    here = asked("doctor", "--json")
    if not SSHD or not shutil.which("ssh"):
        recording = folder / "recording"
        asked("facts", "--record", str(recording))
        return {"way": "--facts of a recording: there is no sshd or no ssh", "here": _verdict(here),
                "there": _verdict(asked("doctor", "--json", "--facts", str(recording)))}  # fmt: skip
    with own_sshd(folder) as config:
        there = [asked("doctor", "--json", "--host", "itself", "--ssh-config", config) for _ in range(3)]
    return {"way": "sshd on the loopback", "here": _verdict(here), "there": [_verdict(each) for each in there]}


def _verdict(done: dict[str, Any]) -> dict[str, Any]:
    """What was found, without the document."""
    try:
        document = json.loads(done["stdout"])
    except ValueError:
        return done
    found = [each.get("code") for each in document.get("findings", [])]
    return {key: done[key] for key in ("argv", "exit_code", "wall_s")} | {
        "findings": found,
    }  # fmt: skip


def main(out: str) -> None:
    from firstlight.bench.about import commit_of, host_of, software_of
    from firstlight.bench.place import describe, device_names, import_torch
    from firstlight.facts.look import Look, look_at
    from firstlight.machine.live import LiveMachine
    from firstlight.records import encode

    facts = look_at(Look())
    gates = [asked("doctor", "--gate", "--unknown", "good") for _ in range(GATES)]
    with tempfile.TemporaryDirectory() as folder:
        ssh = over_ssh(Path(folder))
    torch = import_torch()
    gpus = [describe(name).gpu for name in device_names("all")] if torch.cuda.is_available() else []
    document = {
        "schema": "firstlight.fleet-on-gpu/1",
        "commit": encode(commit_of(LiveMachine())),
        "host": encode(host_of(facts)),
        "software": encode(software_of(facts, torch)),
        "gpus": [encode(gpu) for gpu in gpus],
        "cores": os.cpu_count(),
        "doctor_over_ssh": ssh,
        "gate": {"walls_s": [each["wall_s"] for each in gates], "exit_codes": [each["exit_code"] for each in gates],
                 "said": gates[0]["stdout"].strip()},
        "collective_here": asked("bench", "--only", "collective"),
    }  # fmt: skip
    Path(out).write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(Path(out).read_text())


if __name__ == "__main__":
    print_usage(__doc__, least=1)
    main(sys.argv[1])

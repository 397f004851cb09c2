"""What a command over ssh sees: a real sshd in network and mounts of the test's own, asked by the real ssh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apply.stand_ins import can_have_its_own_mounts

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(SSHD is None or shutil.which("ip") is None, reason="needs openssh-server and iproute2"),
]
SCRIPT = """
set -e
ip link set lo up
mkdir -p /root/.ssh /run/sshd
mount --bind {keys} /root/.ssh
{sshd} -f {config} -E {keys}/log
exec {python} -m firstlight verify --only import,here,ssh --json
"""


def _verified(folder: Path, *, environment: str = "") -> dict[str, Any]:
    """The results of verify beside an sshd that lets root in and gives its commands `environment`."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    (keys / "authorized_keys").write_text((keys / "id_ed25519.pub").read_text())
    config = folder / "sshd_config"
    config.write_text(
        f"Port 22\nListenAddress 127.0.0.1\nHostKey {keys}/host\nPermitRootLogin prohibit-password\nUsePAM no\n"
        f"AuthorizedKeysFile {keys}/authorized_keys\nStrictModes no\nPidFile none\n{environment}"
    )
    script = SCRIPT.format(keys=keys, sshd=SSHD, config=config, python=sys.executable)
    done = subprocess.run(
        ["unshare", "-mn", "--kill-child", "--pid", "--fork", "sh", "-c", script],
        capture_output=True, text=True, check=False, timeout=180, env={**os.environ, "HOME": "/root"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return {result["check"]: result for result in document["results"]}


def test_a_command_over_ssh_sees_what_is_seen_here(tmp_path: Path) -> None:
    results = _verified(tmp_path)
    assert results["ssh"]["outcome"] == "ok", results["ssh"]


def test_an_environment_that_sshd_spoils_is_found(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('a folder named torch lies in the way')\n")
    results = _verified(tmp_path, environment=f"SetEnv PYTHONPATH={tmp_path}\n")
    assert results["here"]["outcome"] == "ok", results["here"]
    assert results["ssh"]["outcome"] == "failed", results["ssh"]

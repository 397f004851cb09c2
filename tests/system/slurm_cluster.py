"""A real Slurm of one node in a folder: munge, slurmctld and slurmd, ended by their own process numbers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEEDED = ("sbatch", "srun", "slurmctld", "slurmd", "munged")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=500 Gres=gpu:1
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}"""


MARKS = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd needs root"),
    pytest.mark.skipif(
        not all(shutil.which(name, path=PATH) for name in NEEDED), reason="needs slurm-client, slurmctld, slurmd, munge"
    ),
]


class Cluster:
    """One node with one GPU by name; what was started is ended by its own process numbers."""

    def __init__(self, folder: Path, more: str = "", cpus: int = 1) -> None:
        self.folder, self.host = folder, socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir()
        ports = dict(zip(("controller", "daemon"), _free_ports(2), strict=True))
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=self.host, more=more, cpus=cpus, **ports))
        os.mknod(folder / "gpu0", 0o20666, os.makedev(1, 3))
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu0\n")
        version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
        (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v{version}\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": f"{folder}/slurm.conf"}

    def start(self) -> str:
        """Start everything; "" where the node is ready, else why it is not."""
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{name}={self.folder}/{file}" for name, file in files.items()]
        self.call("munged", "--force", f"--seed-file={self.folder}/munge.seed", *options)
        self.call("slurmctld", "-c")
        started = self.call("slurmd", "-N", self.host)
        for _ in range(60):
            state = self.call("sinfo", "--noheader", "--format=%T").stdout.strip()
            if state == "idle":
                return ""
            time.sleep(0.5)
        return f"the node is {state or 'not there'}; slurmd: {started.stderr[-200:]}"

    def stop(self) -> None:
        for name in ("slurmd", "slurmctld", "munge"):
            pid = self.folder / f"{name}.pid"
            if pid.exists():
                subprocess.run(["kill", pid.read_text().strip()], check=False)

    def call(self, *argv: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=240, cwd=cwd, env={**self.env, **environ}
        )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def started(made: Cluster) -> Iterator[Cluster]:
    """The cluster at work; the tests of it are skipped where it does not run."""
    try:
        if why := made.start():
            pytest.skip(f"Slurm does not run here: {why}")
        yield made
    finally:
        made.stop()

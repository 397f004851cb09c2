"""`doctor --gate` in a real Slurm of one node: Prolog and HealthCheckProgram drain a node with a planted fault.

The node is a recorded machine: this one has no GPU. The fault is another recording in its place.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.slurm_cluster import MARKS, PATH, Cluster, started

MACHINES = Path(__file__).parents[1] / "machines"
GATE = f"{Path(sys.executable).parent / 'firstlight'} doctor --gate --facts"
pytestmark = MARKS
CONF = """\
Prolog={folder}/prolog
PrologFlags=Alloc
HealthCheckProgram={folder}/health
HealthCheckInterval=1
HealthCheckNodeState=ANY
"""
HEALTH = """\
#!/bin/sh
export PATH='{path}' SLURM_CONF='{folder}/slurm.conf'
line=$({gate} '{folder}/by-health' 2>&1) && exit 0
scontrol update NodeName="$(hostname -s)" State=DRAIN Reason="$line"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("by-prolog", "by-health"):
        shutil.copytree(MACHINES / "h200", folder / name)
    (folder / "prolog").write_text(f"#!/bin/sh\nexec {GATE} '{folder}/by-prolog'\n")
    (folder / "health").write_text(HEALTH.format(path=PATH, folder=folder, gate=GATE))
    for name in ("prolog", "health"):
        (folder / name).chmod(0o755)
    with started(Cluster(folder, CONF.format(folder=folder))) as made:
        yield made


def _becomes(cluster: Cluster, machine: str, name: str) -> None:
    shutil.copyfile(MACHINES / machine / "machine.json", cluster.folder / "new.json")
    os.replace(cluster.folder / "new.json", cluster.folder / name / "machine.json")


def _node(cluster: Cluster) -> tuple[str, str]:
    """(state, reason)."""
    state, _, reason = cluster.call("sinfo", "--noheader", "--format=%T|%E").stdout.strip().partition("|")
    return state, reason


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _resumed(cluster: Cluster) -> None:
    cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=RESUME")
    _until(lambda: _node(cluster)[0] == "idle")


def test_a_prolog_lets_a_healthy_node_run_and_drains_one_with_a_fault(cluster: Cluster) -> None:
    assert cluster.call("srun", "--immediate=60", "echo", "ran").stdout == "ran\n"
    _becomes(cluster, "cudnn-mix", "by-prolog")
    ran = cluster.folder / "ran"
    job = cluster.call("sbatch", "--parsable", "--output=/dev/null", f"--wrap=touch {ran}").stdout.strip()
    _until(lambda: _node(cluster)[0] in ("drained", "draining"))
    assert "prolog" in _node(cluster)[1].lower()
    assert not ran.exists()
    cluster.call("scancel", job)
    _becomes(cluster, "h200", "by-prolog")
    _until(lambda: cluster.call("squeue", "--noheader").stdout == "")
    _resumed(cluster)
    assert cluster.call("srun", "--immediate=60", "echo", "again").stdout == "again\n"


def test_a_health_check_drains_a_node_with_a_fault_and_says_which(cluster: Cluster) -> None:
    time.sleep(2.5)  # it was asked twice by then
    assert _node(cluster)[0] == "idle"
    _becomes(cluster, "cudnn-mix", "by-health")
    _until(lambda: _node(cluster)[0] == "drained")
    assert "firstlight gate: bad: " in _node(cluster)[1]
    assert "[cudnn-mix]" in _node(cluster)[1]
    _becomes(cluster, "h200", "by-health")
    _resumed(cluster)
    time.sleep(2.5)
    assert _node(cluster)[0] == "idle"

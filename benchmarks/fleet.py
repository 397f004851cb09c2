"""What `fleet doctor` costs: one host over ssh against local, 16 hosts against one, 500 recorded machines.

    python -m benchmarks.fleet results/fleet-doctor.json

Needs root, sshd and gcc: the hosts are the roots of the tests, on this machine. Wall times are the least of several
runs, since whoever else works here makes them longer; processor time is that of our process, without its ssh children.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.usage import print_usage

from tests.system.fleet_hosts import Host, Room, make_base, pretend, python_of

ROOT = Path(__file__).parents[1]
HOSTS, RUNS, MACHINES = 16, 5, 500
# Runs the command line in this process, then prints what it cost: seconds of its own and of its children, peak memory.
MEASURED = """\
import resource, sys
from firstlight.cli.main import run
code = run(sys.argv[1:])
own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
print("@", code, own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime, own.ru_maxrss, file=sys.stderr)
"""


def measured(*argv: str) -> dict[str, float]:
    """One run: wall and processor seconds, peak MB."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *argv], capture_output=True, text=True, check=True, timeout=600, cwd=ROOT
    )
    wall = time.perf_counter() - began
    _, code, own, children, peak = done.stderr.splitlines()[-1].split()
    return {
        "exit_code": int(code), "wall_s": round(wall, 3), "own_cpu_s": round(float(own), 3),
        "children_cpu_s": round(float(children), 3), "peak_mb": round(int(peak) / 1024, 1),
    }  # fmt: skip


def least(*argv: str, runs: int = RUNS) -> dict[str, Any]:
    """The least of each figure over several runs, and all wall times."""
    every = [measured(*argv) for _ in range(runs)]
    return {name: min(run[name] for run in every) for name in every[0]} | {"walls_s": [run["wall_s"] for run in every]}


def over_ssh(folder: Path) -> dict[str, Any]:
    room = Room(folder)
    make_base(room.base)
    names = [f"node{number:02d}" for number in range(1, HOSTS + 1)]
    for name in names:
        pretend(folder / name / "upper", driver="580.95.05", python=python_of(room.base))
    hosts: list[Host] = []
    try:
        hosts = [room.start(name) for name in names]
        where = ("--ssh-config", str(room.config))
        return {
            "local": least("facts"),
            "one_host": least("facts", "--host", names[0], *where),
            "fleet_of_1": least("fleet", "doctor", "--hosts", names[0], *where),
            f"fleet_of_{HOSTS}": least("fleet", "doctor", "--hosts", ",".join(names), *where, runs=3),
        }
    finally:
        for host in hosts:
            host.stop()


def recorded(folder: Path) -> dict[str, Any]:
    """500 machines: the recorded ones again and again under other names."""
    machines = sorted((ROOT / "tests/machines").glob("*/machine.json"))
    for number in range(MACHINES):
        shutil.copy(machines[number % len(machines)], folder / f"m{number:03d}.json")
    return least("fleet", "doctor", "--facts", str(folder), runs=3)


def main() -> None:
    out: dict[str, Any] = {"schema": "firstlight.benchmark/fleet-doctor", "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        out["recorded_500"] = recorded(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        out |= over_ssh(Path(folder))
    one, many = out["fleet_of_1"], out[f"fleet_of_{HOSTS}"]
    out["own_cpu_ms_a_host"] = round(1000 * (many["own_cpu_s"] - one["own_cpu_s"]) / (HOSTS - 1), 1)
    out["wall_of_16_over_1"] = round(many["wall_s"] / one["wall_s"], 2)
    out["one_host_over_local_s"] = round(out["one_host"]["wall_s"] - out["local"]["wall_s"], 3)
    out["load_average"] = os.getloadavg()[0]
    text = json.dumps(out, indent=1) + "\n"
    Path(sys.argv[1]).write_text(text)
    print(text)


if __name__ == "__main__":
    print_usage(__doc__, least=1)
    main()

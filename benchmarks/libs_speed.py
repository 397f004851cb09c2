"""How long the closure of torch's libraries takes: ours in process, `ldd`, and auditwheel's lddtree.

    python benchmarks/libs_speed.py --out results/libs-speed.json [--torch FOLDER ...] [--lddtree PYTHON]

The root is torch/_C of each torch folder (this Python's own unless given). One run: the three are taken in turn, so
that a slow spell hits all of them; medians of 21 rounds. lddtree runs inside PYTHON, a Python with auditwheel, and is
timed there without its start and import. Processor times are told beside the wall's: other programs change
them less.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from firstlight.elf.closure import closure
from firstlight.elf.version_gaps import version_gaps
from firstlight.machine.live import LiveMachine

ROUNDS = 21
LDDTREE = """
import sys, time
from pathlib import Path
from auditwheel.lddtree import ldd
print(__import__("importlib.metadata").metadata.version("auditwheel"), flush=True)
for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    found = ldd(Path(line.strip()))
    print(time.perf_counter() - wall, time.process_time() - cpu, len(found.libraries), flush=True)
"""
Seconds = tuple[float, float]  # wall, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--torch", action="append", default=[], help="a folder of an installed torch")
    parser.add_argument("--lddtree", default="", help="a Python with auditwheel")
    options = parser.parse_args()
    peer = _start_lddtree(options.lddtree) if options.lddtree else None
    folders = options.torch or [_own_torch()]
    document: dict[str, Any] = {
        "schema": "firstlight.speed/1",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, "
        f"glibc {platform.libc_ver()[1]}",
        "auditwheel": "" if peer is None else _ask(peer[1]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "method": f"closure of torch/_C, files in the page cache; median of {ROUNDS} rounds taken in turn; ours and "
        "lddtree in process, their imports not counted, ldd as the process it is",
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "torch": [_measured(folder, peer) for folder in folders],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for each in document["torch"]:
        print(json.dumps({key: value for key, value in each.items() if "samples" not in key}, indent=1))


def _own_torch() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("torch is not installed in this Python; give --torch FOLDER")
    return spec.submodule_search_locations[0]


def _start_lddtree(python: str) -> tuple[IO[str], IO[str]]:
    child = subprocess.Popen([python, "-c", LDDTREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    return child.stdin, child.stdout


def _ask(stream: IO[str]) -> str:
    return stream.readline().strip()


def _measured(folder: str, peer: tuple[IO[str], IO[str]] | None) -> dict[str, Any]:
    [root] = [str(path) for path in Path(folder).glob("_C.cpython-*.so")]
    cases: dict[str, Callable[[], Seconds]] = {
        "firstlight": lambda: _own(root, _closure_alone),
        "firstlight with version gaps": lambda: _own(root, _closure_and_gaps),
        "ldd": lambda: _ldd(root),
    }
    if peer is not None:
        cases["auditwheel lddtree"] = lambda: _lddtree(root, peer)
    samples: dict[str, list[Seconds]] = {name: [] for name in cases}
    for number in range(ROUNDS + 1):
        for name, case in cases.items():
            took = case()
            if number:  # the first round warms the page cache
                samples[name].append(took)
    wall = {name: statistics.median(each[0] for each in taken) for name, taken in samples.items()}
    cpu = {name: statistics.median(each[1] for each in taken) for name, taken in samples.items()}
    version = re.search(r"^__version__ = '(.+)'", Path(folder, "version.py").read_text(), re.MULTILINE)
    found = closure(LiveMachine(), root)
    return {
        "torch": version[1] if version else "",
        "libraries": 0 if found is None else len(found.objects),
        "median_ms": {name: round(value * 1e3, 2) for name, value in wall.items()},
        "median_cpu_ms": {name: round(value * 1e3, 2) for name, value in cpu.items()},
        "times_firstlight": {name: round(value / wall["firstlight"], 2) for name, value in wall.items()},
        "samples_ms": {name: [round(each[0] * 1e3, 3) for each in taken] for name, taken in samples.items()},
        "samples_cpu_ms": {name: [round(each[1] * 1e3, 3) for each in taken] for name, taken in samples.items()},
    }


def _own(root: str, work: Callable[[str], None]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    work(root)
    return time.perf_counter() - wall, time.process_time() - cpu


def _closure_alone(root: str) -> None:
    assert closure(LiveMachine(), root) is not None


def _closure_and_gaps(root: str) -> None:
    machine = LiveMachine()
    found = closure(machine, root)
    assert found is not None
    version_gaps(machine, found)


def _ldd(root: str) -> Seconds:
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(["ldd", root], stdout=subprocess.DEVNULL, check=True)
    took, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _lddtree(root: str, peer: tuple[IO[str], IO[str]]) -> Seconds:
    peer[0].write(root + "\n")
    peer[0].flush()
    wall, cpu, _ = _ask(peer[1]).split()
    return float(wall), float(cpu)


if __name__ == "__main__":
    main()

"""What the start file costs a start of Python, and the hook a start of a shell: medians of 21 starts, taken in turn.

python benchmarks/start_file_cost.py --out results/start-file-cost.json [--library FOLDER-WITH-LIBCUDA]

Needs root: the kernel driver is a file in mounts of its own. Without --library a stand-in libcuda of a few KB is
loaded, which says what deciding costs and not what the real library's own loading does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import Wiring, run_script, wire_script
from tests.apply.stand_ins import build_libcuda

ROUNDS = 21
DRIVER = Path("/sys/module/nvidia/version")
VERSION = "570.133.20"
Samples = dict[str, list[tuple[float, float]]]  # without it, with it


@dataclass(frozen=True)
class Case:
    """One command with what is put in place before each of its starts, and the case it is compared with."""

    argv: tuple[str, ...]
    prepare: Callable[[], None]
    against: str
    environ: tuple[tuple[str, str], ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--library", type=Path, help="a folder with a real compat libcuda.so.1")
    options = parser.parse_args()
    if os.environ.get("FIRSTLIGHT_OWN_MOUNTS") != "yes":
        environ = {**os.environ, "FIRSTLIGHT_OWN_MOUNTS": "yes"}
        os.execvpe("unshare", ["unshare", "-m", sys.executable, *sys.argv], environ)
    subprocess.run(["mount", "-t", "tmpfs", "t", "/sys/module"], check=True)
    DRIVER.parent.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        cases = _cases(Path(folder), options.library)
        wall, cpu = _measured(cases)
    document = _document(cases, wall, cpu, str(options.library or "stand-in of a few KB"))
    options.out.write_text(json.dumps(document) + "\n")
    print(json.dumps(document["costs_ms"], indent=1))


def _cases(folder: Path, library: Path | None) -> dict[str, Case]:
    compat = library or build_libcuda(folder / "cuda-13.0/compat", version="580.95.05", cuda=13000).parent
    here = folder / "state"
    here.mkdir()
    wiring = Wiring(str(compat), "13.0", (570,), sys.executable, str(here))
    Path(wiring.wire).write_text(wire_script(wiring))
    Path(wiring.run).write_text(run_script(wiring))
    plain, wired, never_compiled = (_environment(folder / name) for name in ("plain", "wired", "never compiled"))
    for environment in (wired, never_compiled):
        [site] = Path(environment).parents[1].glob("lib/python3*/site-packages")
        (site / f"{MODULE}.py").write_text(start_module(wiring))
        (site / LINE_FILE).write_text(START_LINE)
    found = (compat / "libcuda.so.1").stat()
    proof, proved = here / f"works-{VERSION}", f"{found.st_size} {int(found.st_mtime)}\n"
    hook = f". '{wiring.wire}'"

    def without_driver() -> None:
        DRIVER.unlink(missing_ok=True)

    def unproved() -> None:
        DRIVER.write_text(VERSION + "\n")
        proof.unlink(missing_ok=True)

    def with_proof() -> None:
        DRIVER.write_text(VERSION + "\n")
        proof.write_text(proved)

    off = (("FIRSTLIGHT_COMPAT", "off"),)
    keep_none = (("PYTHONDONTWRITEBYTECODE", "1"),)
    return {
        "python": Case((plain, "-c", "pass"), with_proof, ""),
        "python, start file, off": Case((wired, "-c", "pass"), with_proof, "python", off),
        "python, start file, no driver": Case((wired, "-c", "pass"), without_driver, "python"),
        "python, start file, no proof": Case((wired, "-c", "pass"), unproved, "python"),
        "python, start file, loads": Case((wired, "-c", "pass"), with_proof, "python"),
        "python, start file not compiled, loads": Case((never_compiled, "-c", "pass"), with_proof, "python", keep_none),
        "shell": Case(("sh", "-c", ":"), with_proof, ""),
        "shell, hook, no driver": Case(("sh", "-c", hook), without_driver, "shell"),
        "shell, hook, proof": Case(("sh", "-c", hook), with_proof, "shell"),
        "shell, hook, asks cuInit": Case(("sh", "-c", hook), unproved, "shell"),
    }


def _environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin/python")


def _measured(cases: dict[str, Case]) -> tuple[Samples, Samples]:
    """Milliseconds of each start and of the one it is compared with just before it; the first round is not kept."""
    wall: Samples = {name: [] for name, case in cases.items() if case.against}
    cpu: Samples = {name: [] for name in wall}
    for turn in range(ROUNDS + 1):
        for name in wall:
            plain, given = _start(cases[cases[name].against]), _start(cases[name])
            if turn:
                wall[name].append((plain[0], given[0]))
                cpu[name].append((plain[1], given[1]))
    return wall, cpu


def _start(case: Case) -> tuple[float, float]:
    case.prepare()
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/", **dict(case.environ)}
    begun = time.perf_counter()
    process = os.posix_spawnp(case.argv[0], case.argv, environ)
    _, status, used = os.wait4(process, 0)
    took = time.perf_counter() - begun
    assert status == 0, f"{case.argv}: {status}"
    return round(took * 1e3, 3), round((used.ru_utime + used.ru_stime) * 1e3, 3)


def _document(cases: dict[str, Case], wall: Samples, cpu: Samples, library: str) -> dict[str, object]:
    costs = {
        name: {"wall": _cost(wall[name]), "cpu": _cost(cpu[name]), "against": cases[name].against} for name in wall
    }
    return {
        "schema": "firstlight.speed/1",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, no GPU; "
        "the kernel driver is a file in mounts of its own",
        "library": library,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "method": f"milliseconds of a whole start; {ROUNDS} starts of each, each just after one of what it is compared "
        "with; costs are medians of the differences; cpu is what the process itself used, which other programs on the "
        "machine change less than the clock",
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "costs_ms": costs,
        "median_wall_ms": {name: _medians(pairs) for name, pairs in wall.items()},
        "median_cpu_ms": {name: _medians(pairs) for name, pairs in cpu.items()},
        "samples_wall_ms": wall,
        "samples_cpu_ms": cpu,
    }


def _cost(pairs: list[tuple[float, float]]) -> float:
    return round(statistics.median(given - plain for plain, given in pairs), 2)


def _medians(pairs: list[tuple[float, float]]) -> list[float]:
    return [round(statistics.median(each), 2) for each in zip(*pairs, strict=True)]


if __name__ == "__main__":
    main()

"""The time left that `firstlight build --status` tells, held against the time it took.

    python -m benchmarks.build_eta live FOLDER     builds a stand-in of 60 units below FOLDER and watches its status
    python -m benchmarks.build_eta replay NINJA_LOG BUILD_NINJA JOBS     a recorded build through the same code

Each prints one JSON object: what was told after a quarter, a half and three quarters of the units, and what was left.
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

from firstlight.build.ninja_output import kind_of_unit, read_ninja_log
from firstlight.build.ninja_units import units_of_ninja_file
from firstlight.build.progress import read_status, time_left
from tests.build.standin import make_environment, make_standin

QUARTERS = (0.25, 0.5, 0.75)


def replay(log: Path, ninja: Path, jobs: int) -> list[dict[str, Any]]:
    """A build's own log, cut where a quarter, a half and three quarters of the units had ended."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ninja, f"{folder}/build.ninja")
        head, *lines = log.read_text().splitlines()
        rows = sorted((line.split("\t") for line in lines if line.count("\t") >= 3), key=lambda row: int(row[1]))
        named = {each.output for each in units_of_ninja_file(folder)}
        units = [row for row in rows if kind_of_unit(row[3]) is not None and row[3] in named]
        end = max(int(row[1]) for row in units)
        found = []
        for share in QUARTERS:
            at = int(units[max(0, round(len(units) * share) - 1)][1])
            ended = [row for row in rows if int(row[1]) <= at]
            Path(f"{folder}/.ninja_log").write_text("\n".join((head, *("\t".join(row) for row in ended))) + "\n")
            done = sum(int(row[1]) <= at for row in units)
            told, basis = time_left(folder, done, len(units), jobs)
            found.append(_compared(done, len(units), told=told, took=(end - at) / 1000, basis=basis))
        return found


def live(folder: Path, units: int = 60) -> dict[str, Any]:
    """A stand-in whose units include <regex>, built by the command itself; its status is read from here."""
    tree = make_standin(folder / "tree", units=units, header="regex")
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(folder / "state")}
    argv = [sys.executable, "-m", "firstlight", "build", str(tree), "--python", str(make_environment(folder / "env")),
            "--wheel-only", "--yes"]  # fmt: skip
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen: dict[float, tuple[float, int, int, int, str]] = {}
    last = 0.0
    while process.poll() is None:
        time.sleep(0.2)
        place = next((folder / "state").glob("builds/*"), None)
        status = read_status(str(place)) if place else None
        if status is None or status.stage.value != "compile" or not status.total:
            continue
        last = status.changed_at
        for share in QUARTERS:
            if share not in seen and status.done >= status.total * share:
                seen[share] = (status.written_at, status.done, status.total, status.seconds_left, status.basis)
    told = [
        _compared(done, total, told=left, took=last - at, basis=basis) for at, done, total, left, basis in seen.values()
    ]
    logs = [read_ninja_log(str(each)) for each in (folder / "state").glob("builds/*/build")]
    return {"exit_code": process.returncode, "units": sum(map(len, logs)), "told": told}


def _compared(done: int, total: int, *, told: int, took: float, basis: str) -> dict[str, Any]:
    wrong = round((told - took) / took, 3) if took > 0 else None
    return {"done": done, "of": total, "told_s": told, "took_s": round(took, 1), "off_by": wrong, "basis": basis}


def main() -> None:
    kind, *words = sys.argv[1:]
    found = live(Path(words[0])) if kind == "live" else replay(Path(words[0]), Path(words[1]), int(words[2]))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    print_usage(__doc__, least=2)
    main()

"""What going on with a killed build costs before its compiler starts: old and new trees of firstlight in turns.

    python -m benchmarks.build_restart OLD/src RESULT [ROUNDS]

The stand-in of the kill tests is compiled once by each; then, in turns, one object is taken away and the command is
given again. Measured are the time from its start to the start of ninja, which fails there, and the processor time of
all its processes: the machine may have other work. Needs root (a lock folder of its own).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.build_case import LOCK_OF_ITS_OWN
from benchmarks.usage import print_usage

from tests.build.kills import LOCAL
from tests.build.standin import make_environment, make_standin

NEW = Path(__file__).parents[1] / "src"
UNITS = 250
WRAPPER = """#!/bin/sh
case " $* " in *" -n "*) exec {ninja} "$@";; esac
[ -e {whole} ] && exec {ninja} "$@"
date +%s.%N > {mark}
exit 1
"""


class Restarts:
    """One built stand-in, and its environment with a ninja that says when it was started."""

    def __init__(self, base: Path) -> None:
        self._mark, self._states, self._whole = base / "started", base / "states", base / "whole"
        tree = make_standin(base / "tree", units=UNITS, header="cstddef", submodule=True)
        python = make_environment(base / "env")
        ninja = python.parent / "ninja"
        real = os.path.realpath(ninja)
        ninja.unlink()
        ninja.write_text(WRAPPER.format(ninja=real, mark=self._mark, whole=self._whole))
        ninja.chmod(0o755)
        self._words = ["build", f"git+file://{tree}@main", "--python", str(python), "--yes", "--target", "_standin"]

    def start(self, source: Path) -> subprocess.Popen[bytes]:
        env = {**os.environ, **LOCAL, "FIRSTLIGHT_STATE_DIR": str(self._state(source)), "PYTHONPATH": str(source)}
        argv = [*LOCK_OF_ITS_OWN, sys.executable, "-m", "firstlight", *self._words]
        return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def whole(self, source: Path) -> None:
        self._whole.touch()
        assert self.start(source).wait() == 0
        self._whole.unlink()

    def once(self, source: Path) -> dict[str, float]:
        """Take an object away and give the command again; ninja says when it was started, and fails."""
        folder = next(self._state(source).glob("builds/*"))
        (folder / "done/compile.json").unlink(missing_ok=True)
        for each in folder.glob("build/**/unit_3.cpp.o"):
            each.unlink()
        self._mark.unlink(missing_ok=True)
        begun, used = time.time(), _processor_s()
        assert self.start(source).wait() == 1
        wall = float(self._mark.read_text()) - begun
        return {"seconds": round(wall, 3), "processor_seconds": round(_processor_s() - used, 3)}

    def _state(self, source: Path) -> Path:
        return self._states / ("now" if source == NEW else "before")


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    old, result = Path(sys.argv[1]), Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with tempfile.TemporaryDirectory(prefix="firstlight-restart-") as folder:
        builds = Restarts(Path(folder))
        for source in (old, NEW):
            builds.whole(source)
        samples: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for _ in range(rounds):
            samples["before"].append(builds.once(old))
            samples["now"].append(builds.once(NEW))
    medians = {
        name: {kind: statistics.median(each[kind] for each in found) for kind in found[0]}
        for name, found in samples.items()
    }
    document = {
        "what": "seconds from the start of the same command to the start of ninja, in a build that was killed",
        "how": "python -m benchmarks.build_restart OLD/src RESULT", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} processors shared with other work, load {os.getloadavg()[0]:.0f}",
        "samples": samples, "medians": medians,
    }  # fmt: skip
    result.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    print_usage(__doc__, least=2)
    main()

"""How long a person waits for `firstlight doctor` here, this tree and another in turns, and what it waits for.

    python3 -m benchmarks.doctor_live OTHER_TREE --out RESULT [--runs 12] [--commit TEXT] [--machine TEXT]

Wall time of the whole process under the interpreter that this one runs with. What doctor starts is timed once more in
one run of its own: each child with the moment it was begun and the moment its answer was there, from the start of the
process on; and cuInit's child alone, up to its answer and up to its end.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Run in a process of its own: begun as `python -m firstlight` begins, with a clock around what starts processes.
_WATCHED = """
import sys, time
begun = float(sys.argv.pop(1))
from firstlight import ahead
ahead.begin_for(["doctor"])
import atexit, json
import firstlight.machine.spawn as spawn
seen = [("ahead.begin_for done", round(time.time() - begun, 3), 0)]
def watched(work, name):
    def run(*given, **named):
        first = round(time.time() - begun, 3)
        try:
            return work(*given, **named)
        finally:
            seen.append((name(*given), first, round(time.time() - begun, 3)))
    return run
import firstlight.machine.live as live
live.run_child = watched(spawn.run_child, lambda script, *_: f"child {script.name}")
live.run_bounded = watched(spawn.run_bounded, lambda argv, *_: " ".join(argv[:3]))
from firstlight.cli.main import run
seen.append(("main imported", round(time.time() - begun, 3), 0))
import firstlight.diagnosis.judge as judging
sys.argv = ["firstlight", "doctor"]
judging.judge = watched(judging.judge, lambda *_: "judge")
code = run(["doctor"])
seen.append(("end", round(time.time() - begun, 3), code))
sys.stderr.write(json.dumps(seen))
"""
_CHILD = """
import json, os, sys, time
from firstlight import ahead
begun = time.perf_counter()
ahead.begin("libcuda", "8", env=os.environ)
child = ahead._unasked.pop()[1]
while os.read(child.answers, 65536): pass
answered = time.perf_counter() - begun
child.process.wait()
print(json.dumps([round(answered, 4), round(time.perf_counter() - begun, 4)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--commit", default="")
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    trees = {"this": ROOT, "other": options.other.resolve()}
    for tree in trees.values():  # as an installed package is: nobody compiles at each start
        compileall.compile_dir(tree / "src", quiet=2, workers=0)
    samples = _in_turns(trees, options.runs)
    document = {
        "what": "seconds of wall time of `firstlight doctor` on this machine, the trees in turns",
        "machine": options.machine or f"{platform.machine()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "commits": options.commit,
        "samples_s": samples,
        "median_s": {name: round(statistics.median(each), 3) for name, each in samples.items()},
        "least_s": {name: min(each) for name, each in samples.items()},
        "cuinit_child_answered_and_ended_s": [_told(_CHILD, ())[0] for _ in range(4)],
        "what_it_waits_for_s": [_told(_WATCHED, (str(time.time()),))[1] for _ in range(2)],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({key: document[key] for key in document if key != "samples_s"}, indent=1))


def _in_turns(trees: dict[str, Path], runs: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in ("pass", "help", *trees)}
    for number in range(runs + 1):  # the first round only warms the caches
        for name, tree, argv in (
            ("pass", ROOT, ("-c", "pass")),
            ("help", ROOT, ("-m", "firstlight", "--help")),
            *((name, tree, ("-m", "firstlight", "doctor")) for name, tree in trees.items()),
        ):
            begun = time.perf_counter()
            subprocess.run((sys.executable, *argv), env=_env(tree), stdout=subprocess.DEVNULL, check=False)
            if number:
                samples[name].append(round(time.perf_counter() - begun, 3))
    return samples


def _env(tree: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [each for each in before if each and not (Path(each) / "firstlight").exists()]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), *kept])}


def _told(script: str, args: tuple[str, ...]) -> tuple[object, object]:
    """What a script prints as JSON, on stdout and as the last line of stderr."""
    done = subprocess.run((sys.executable, "-c", script, *args), env=_env(ROOT), capture_output=True, text=True)
    return _last(done.stdout), _last(done.stderr)


def _last(text: str) -> object:
    try:
        return json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return text[-600:]


if __name__ == "__main__":
    main()

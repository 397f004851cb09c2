"""CPU time of `firstlight doctor`, this tree and another in turns: python -m benchmarks.doctor_speed OTHER_TREE

Both trees run under the interpreter that this one runs with, on this machine and on a recorded one. User and system
time of the child and of its children are taken, not the clock: others may use the machine meanwhile. Writes
results/doctor-speed.json.
"""

from __future__ import annotations

import compileall
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.usage import print_usage

ROOT = Path(__file__).parents[1]
_ROUNDS = 15
_RECORDED = "h100-driver-570"


def cpu_seconds(tree: Path, *arguments: str) -> float:
    """What one run of doctor of a tree takes of the processors, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = (sys.executable, "-m", "firstlight", "doctor", *arguments)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    subprocess.run(argv, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(trees: dict[str, Path], arguments: tuple[str, ...], rounds: int) -> dict[str, list[float]]:
    """The samples of each tree, taken in turns; the first round only warms the caches of the disk and of Python."""
    samples: dict[str, list[float]] = {name: [] for name in trees}
    for tree in trees.values():  # as an installed package is: nobody compiles at each start
        compileall.compile_dir(tree / "src", quiet=2)
    for number in range(rounds + 1):
        for name, tree in trees.items():
            seconds = cpu_seconds(tree, *arguments)
            if number:
                samples[name].append(round(seconds, 3))
    return samples


def main() -> None:
    trees = {"this": ROOT, "other": Path(sys.argv[1]).resolve()}
    commits = {
        name: subprocess.run(
            ("git", "-C", str(tree), "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=True
        ).stdout.strip()
        for name, tree in trees.items()
    }
    cases = {"live": (), "recorded": ("--facts", str(trees["other"] / "tests" / "machines" / _RECORDED))}
    document = {
        "what": "CPU seconds (user and system) of `firstlight doctor`, the trees in turns",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, no GPU, Python {platform.python_version()}",
        "commits": commits,
        "cases": {
            case: {
                name: {"median_s": statistics.median(samples), "least_s": min(samples), "samples_s": samples}
                for name, samples in measured(trees, arguments, _ROUNDS).items()
            }
            for case, arguments in cases.items()
        },
    }
    path = ROOT / "results" / "doctor-speed.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    for case, found in document["cases"].items():  # type: ignore[attr-defined]
        told = ", ".join(f"{name} {each['median_s']} s (least {each['least_s']})" for name, each in found.items())
        print(f"{case}: {told}")


if __name__ == "__main__":
    print_usage(__doc__, least=1)
    main()

"""The tests of `make test`, beside one another: as many processes as there are processors, each about as long.

    python -m tools.run_tests                 all that need neither root nor an index
    python -m tools.run_tests --record        and what each file took, into tests/seconds.json

By the processor seconds that each file took when they were last recorded; a new file counts as the average one. Files
stay in the order of their folders, for what a process keeps (a machine's facts and options) serves the whole folder.
pytest-xdist took more: each of its workers collects every test, and each of 33,000 is told of three times.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = ROOT / "tests/seconds.json"
CHOSEN = "not system and not network"
MOST = 4  # each takes a gigabyte, and those under the lock are a quarter of all
# These act on environments under the one lock that a machine has, in one process one after the other.
UNDER_THE_LOCK = ("tests/apply/*", "tests/build/*", "tests/lock/*", "tests/cli/test_libs_*")


def files() -> tuple[str, ...]:
    """Every file of tests, in the order of folders."""
    return tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")))


def parts(names: Sequence[str], seconds: Mapping[str, float], count: int) -> tuple[tuple[str, ...], ...]:
    """The files in so many parts that take about as long; those under the lock are all in the first."""
    average = sum(seconds.values()) / len(seconds) if seconds else 1.0
    takes = {name: seconds.get(name, average) for name in names}
    locked = [name for name in names if any(fnmatch.fnmatch(name, each) for each in UNDER_THE_LOCK)]
    rest = [name for name in names if name not in set(locked)]
    found: list[tuple[str, ...]] = []
    part, left = locked, sum(takes.values())
    for still in range(count, 1, -1):
        aim, spent = left / still, sum(map(takes.__getitem__, part))
        while rest and spent + takes[rest[0]] / 2 < aim:
            spent += takes[rest[0]]
            part.append(rest.pop(0))
        found.append(tuple(part))
        part, left = [], left - spent
    return tuple(each for each in (*found, (*part, *rest)) if each)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {SECONDS.relative_to(ROOT)} anew")
    given = parser.parse_args(arguments)
    count = min(len(os.sched_getaffinity(0)), MOST)
    split = parts(files(), json.loads(SECONDS.read_text()), count)
    with tempfile.TemporaryDirectory() as folder:
        code = _run(split, Path(folder))
        if given.record:
            _record([Path(folder) / f"{number}.json" for number in range(len(split))])
    return code


def _run(split: Sequence[Sequence[str]], folder: Path) -> int:
    """All parts beside one another; the last is seen while it runs, the others when they are through."""
    logs = [folder / f"{number}.log" for number in range(len(split) - 1)]
    started = [
        _started(names, folder / f"{number}.json", log)
        for number, (names, log) in enumerate(zip(split, logs, strict=False))
    ]
    started.append(_started(split[-1], folder / f"{len(logs)}.json", None))
    try:
        codes = [each.wait() for each in reversed(started)]
    except KeyboardInterrupt:
        for each in started:
            each.terminate()
        return 130
    for number, log in enumerate(logs, 1):
        print(f"== part {number} of {len(split)}, run beside the last", flush=True)
        sys.stdout.write(log.read_text(errors="replace"))
    return max(codes, key=abs)


def _started(names: Sequence[str], seconds: Path, log: Path | None) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "pytest", "-p", "tests.seconds", "-m", CHOSEN, *names]
    env = {**os.environ, "FIRSTLIGHT_TEST_SECONDS": str(seconds)}
    if log is None:
        return subprocess.Popen(argv, cwd=ROOT, env=env)
    with log.open("wb") as file:
        return subprocess.Popen(argv, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT)


def _record(found: Sequence[Path]) -> None:
    """Of files that were run; what ended early has written nothing, and keeps its old figures."""
    there = set(files())
    seconds = json.loads(SECONDS.read_text())
    for path in found:
        seconds |= json.loads(path.read_text()) if path.exists() else {}
    kept = {name: spent for name, spent in sorted(seconds.items()) if name in there}
    SECONDS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

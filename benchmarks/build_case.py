"""One real build of a run: carried out, killed while it compiles where that is asked for, and measured unit by unit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from firstlight.apply.lock import FOLDERS
from firstlight.build.memory_watch import processes, under
from firstlight.build.ninja_output import BuiltUnit, read_ninja_log
from firstlight.frozen import dataclass

ROOT = Path(__file__).parents[1]
# A machine takes one firstlight at a time: beside each other each gets a mount namespace.
LOCK_OF_ITS_OWN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs lock "$0" && exec "$@"', FOLDERS[0])
_KEPT_CHARACTERS = 4000
_EDGE = re.compile(r"build (\S+\.o): \S+ (\S+)")


@dataclass(frozen=True, slots=True)
class Case:
    """One project, and the words of its build beside the sdist."""

    name: str
    sdist: str
    words: tuple[str, ...]
    called: str  # what the line of a call on the GPU says
    killed: int = 0  # when so many units are compiled


@dataclass(frozen=True, slots=True)
class Place:
    """Where a build runs, whose environment gets the wheel, when it has to end, whether others run beside it."""

    folder: Path
    python: str
    ends: float
    beside: bool


def can_stand_beside() -> bool:
    """Whether builds can run beside each other, each with a lock folder of its own; else one after the other."""
    Path(FOLDERS[0]).mkdir(parents=True, exist_ok=True)
    try:
        return subprocess.run([*LOCK_OF_ITS_OWN, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def built(case: Case, words: list[str], place: Place) -> dict[str, Any]:
    """Build it, once or with a kill between, and say what came of it."""
    folder, ends = place.folder, place.ends
    argv = [*LOCK_OF_ITS_OWN] if place.beside else []
    argv += [sys.executable, "-m", "firstlight", "build", *words, "--python", place.python, "--yes", "--json"]
    begun = time.time()
    cut = _killed(argv, folder, ends, case.killed) if case.killed else {}
    resumed = time.time()
    before = _objects(folder)
    status, said = _run(argv, folder, ends)
    wall = time.time() - begun
    after = _objects(folder)
    answer: dict[str, Any] = json.loads(said) if said.strip().startswith("{") else {"ending": said[-2000:]}
    proofs = [str(each) for each in answer.get("proofs", [])]
    again = [each for each, at in before.items() if after.get(each) != at]
    return {
        "command": "firstlight build " + " ".join(os.path.relpath(each, ROOT) if each.startswith(str(ROOT)) else each
                                                  for each in words),
        "exit_code": status, "ending": answer.get("ending"), "jobs": answer.get("needs", {}).get("jobs"),
        "faults": answer.get("faults", []), "wheel": os.path.basename(answer.get("wheel") or ""), "proofs": proofs,
        "killed": {**cut, "compiled_again": again, "goes_on_s": round(time.time() - resumed, 1)} if cut else None,
        "wall_s": round(wall, 1), "compile_minutes": answer.get("minutes"),
        "units_compiled": len(after), "units_a_minute": round(len(after) / (wall / 60), 2), "units": units_of(folder),
        "right": status == 0 and any(case.called in each for each in proofs) and not again
                 and bool(cut) == bool(case.killed),
        **({} if status == 0 else {"log": _end_of_logs(folder)}),
    }  # fmt: skip


def units_of(folder: Path) -> list[dict[str, Any]]:
    """Each unit with its kind, the most memory it was seen to hold, its bytes and, of ninja, its seconds."""
    seconds = {os.path.basename(each.output): each.seconds for each in _logged(folder)}
    sources = _sources(folder)
    peaks: list[dict[str, Any]] = []
    for file in (folder / "state").glob("builds/*/units.json"):
        peaks = json.loads(file.read_text())
    sizes = {each.name: each.stat().st_size for each in _made(folder, "*.o")}
    found = []
    for each in peaks:
        name = os.path.basename(each["unit"])
        is_cuda = sources.get(name, name).endswith(".cu") or name.endswith("_cuda.o")
        found.append(
            {"unit": name, "kind": "cuda" if is_cuda else "c++", "peak_bytes": each["bytes"],
             "object_bytes": sizes.get(name), "seconds": seconds.get(name)}
        )  # fmt: skip
    return found


def _start(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(ROOT / "src")}
    with (folder / "out").open("wb") as out, (folder / "err").open("ab") as err:
        return subprocess.Popen(argv, env=env, cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)


def _run(argv: list[str], folder: Path, ends: float) -> tuple[int, str]:
    process = _start(argv, folder)
    try:
        status = process.wait(timeout=max(1.0, ends - time.time()))
    except subprocess.TimeoutExpired:
        _kill(process)
        status = -1
    return status, (folder / "out").read_text(errors="replace")


def _killed(argv: list[str], folder: Path, ends: float, units: int) -> dict[str, Any]:
    """Start the build, and kill everything of it when so many units are compiled; {} where it ended before that."""
    begun = time.time()
    process = _start(argv, folder)
    while process.poll() is None and time.time() < ends:
        if len(_logged(folder)) >= units:
            _kill(process)
            said = {"done": len(_logged(folder)), "of": len(_sources(folder))}
            return {"after_s": round(time.time() - begun, 1), **said}
        time.sleep(0.2)
    _kill(process)
    return {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    for each in (*under(process.pid, processes()), None):
        try:
            os.kill(each.number if each else process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _made(folder: Path, name: str) -> list[Path]:
    """Files that a backend made: setuptools in the tree, CMake beside it."""
    return [
        each for place in ("tree/build", "build") for each in (folder / "state").glob(f"builds/*/{place}/**/{name}")
    ]


def _logged(folder: Path) -> tuple[BuiltUnit, ...]:
    logs = _made(folder, ".ninja_log")
    return tuple(each for log in logs for each in read_ninja_log(str(log.parent)) if each.output.endswith(".o"))


def _sources(folder: Path) -> dict[str, str]:
    """Objects that ninja was asked for, each with the file it is made of."""
    files = _made(folder, "build.ninja")
    edges = (match for file in files for line in file.read_text().splitlines() if (match := _EDGE.match(line)))
    return {os.path.basename(match[1]): match[2] for match in edges}


def _objects(folder: Path) -> dict[str, int]:
    """Finished objects with their times: of ninja those in its log, else those that are there."""
    logged = tuple(each.output for each in _logged(folder))
    objects = {str(each): each.stat().st_mtime_ns for each in _made(folder, "*.o")}
    return {os.path.basename(path): at for path, at in objects.items() if not logged or path.endswith(logged)}


def _end_of_logs(folder: Path) -> dict[str, str]:
    files = [folder / "err", *sorted((folder / "state").glob("**/*.log"))]
    return {each.name: each.read_text(errors="replace")[-_KEPT_CHARACTERS:] for each in files}

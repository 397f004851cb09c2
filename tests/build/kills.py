"""Kills builds for real and counts what that cost: python -m tests.build.kills FOLDER RESULT [SEED] [KILLS] [HEADER].

A stand-in of 250 C++ and 15 CUDA units, cloned from a local remote with its submodule, is built once without a stop,
and a second shell asks how long it will take when a quarter is compiled; then with kill -9 of everything at random
points of compiling and at once after each stage; then without a stop again, and with one kill half-way. Each compiler
that starts and each that ends well is counted by a launcher; processor time is that of a cgroup, killed processes
included, because the machine may have other work. firstlight's own bytecode is kept, as an installed one has it. HEADER
is what each C++ unit includes: cstddef makes units of a moment, heavy.h such of a second and a half of one processor,
which is as long as a kill and the start after it; with that it takes some 20 minutes of two idle processors. Needs
root (a lock folder of its own), nvcc, a cgroup with cpuacct or cpu.stat.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import firstlight
from firstlight.build.memory_watch import processes, under
from tests.build.standin import make_environment, make_standin

UNITS, KERNELS = 250, 15
BEFORE, BEHIND = ("fetch", "submodules", "configure"), ("compile", "wheel", "install", "prove")
LOCAL = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
COUNTER = '#!/bin/sh\necho start >> %(log)s\n"$@"; rc=$?\n[ $rc -eq 0 ] && echo done >> %(log)s\nexit $rc\n'


class Builds:
    """One stand-in with its environment and state folder, built again and again."""

    def __init__(self, base: Path, header: str = "cstddef") -> None:
        self.base = base
        self.log = base / "compilers.log"
        self.counter = base / "count.sh"
        self.counter.write_text(COUNTER % {"log": self.log})
        self.counter.chmod(0o755)
        self.tree = make_standin(base / "tree", units=UNITS, kernels=KERNELS, header=header, submodule=True)
        self.python = make_environment(base / "env")

    def anew(self) -> None:
        """Forget every build; the tree stays."""
        shutil.rmtree(self.base / "state", ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def warm(self) -> None:
        """firstlight's bytecode, where its processes look for it."""
        argv = [sys.executable, "-m", "compileall", "-q", str(Path(firstlight.__file__).parent)]
        subprocess.run(argv, env={**os.environ, **self._bytecode}, check=True)

    @property
    def _bytecode(self) -> dict[str, str]:
        return {"PYTHONPYCACHEPREFIX": str(self.base / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}

    def start(self) -> subprocess.Popen[bytes]:
        launchers = [f"--flag=CMAKE_{each}_COMPILER_LAUNCHER={self.counter}" for each in ("CXX", "CUDA")]
        argv = [
            sys.executable, "-m", "firstlight", "build", f"git+file://{self.tree}@main", "--python", str(self.python),
            "--yes", "--archs", "9.0", "--flag", "USE_CUDA=ON", *launchers,
        ]  # fmt: skip
        env = {**os.environ, **LOCAL, "FIRSTLIGHT_STATE_DIR": str(self.base / "state")}
        env |= self._bytecode
        return subprocess.Popen(argv, env=env, stdout=(self.base / "out").open("ab"), stderr=subprocess.STDOUT)

    def counted(self) -> tuple[int, int]:
        """(compilers started, compilers that ended well) so far."""
        words = self.log.read_text().split() if self.log.exists() else []
        return words.count("start"), words.count("done")

    def ended(self, stage: str) -> bool:
        text = "".join(each.read_text() for each in (self.base / "state").glob("machines/*/journal.jsonl"))
        return any(f'"{stage}"' in line and '"step-done"' in line for line in text.splitlines())


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the command and of everything below it, as the kernel or a lost node does."""
    for each in (*under(process.pid, processes()), None):
        try:
            os.kill(each.number if each else process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def until(builds: Builds, process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> bool:
    """Whether something came to hold while the build ran."""
    while process.poll() is None:
        if holds():
            return True
        time.sleep(0.02)
    return False


def whole(builds: Builds) -> float:
    begun = time.monotonic()
    status = builds.start().wait()
    assert status == 0, (builds.base / "out").read_text()[-2000:]
    return time.monotonic() - begun


class Costs:
    """Seconds, processor seconds and compilers of one phase, with the load beside it."""

    def __init__(self, builds: Builds) -> None:
        self._builds, self._begun, self._used, self._load = builds, time.monotonic(), _processor_s(), os.getloadavg()[0]

    def taken(self) -> dict[str, Any]:
        started, compiled = self._builds.counted()
        return {
            "seconds": round(time.monotonic() - self._begun, 1),
            "processor_seconds": round(_processor_s() - self._used, 1),
            "load_before_and_behind": [round(self._load, 1), round(os.getloadavg()[0], 1)],
            "started": started, "compiled": compiled,
        }  # fmt: skip


def _cgroup() -> Path:
    first = next(each for each in (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")) if each.is_dir())
    return first / f"firstlight-kills-{os.getpid()}"


def _enter_cgroup() -> None:
    _cgroup().mkdir()
    (_cgroup() / "cgroup.procs").write_text(str(os.getpid()))


def _processor_s() -> float:
    old = _cgroup() / "cpuacct.usage"
    if old.exists():
        return int(old.read_text()) / 1e9
    return int(dict(each.split() for each in (_cgroup() / "cpu.stat").read_text().splitlines())["usage_usec"]) / 1e6


def foretold(builds: Builds) -> dict[str, Any]:
    """An unbroken build: what `--status` in another shell says of its time when a quarter is compiled."""
    process = builds.start()
    assert until(builds, process, lambda: builds.counted()[1] >= (UNITS + KERNELS) // 4)
    time.sleep(3)  # the status is written every two seconds
    asked = time.monotonic()
    argv = [sys.executable, "-m", "firstlight", "build", "--status", "--json"]
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(builds.base / "state")}
    status = json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)["status"]
    until(builds, process, lambda: builds.ended("compile"))
    took = time.monotonic() - asked
    assert process.wait() == 0, (builds.base / "out").read_text()[-2000:]
    said = {name: status[name] for name in ("done", "total", "seconds_left", "basis", "alive")}
    return said | {"seconds_it_took": round(took, 1), "off_by": round(status["seconds_left"] / took - 1, 3)}


def killed_when(builds: Builds, holds: Callable[[], bool]) -> bool:
    process = builds.start()
    if not until(builds, process, holds):
        return False
    kill_all(process)
    return True


def with_kills(builds: Builds, points: list[int], *, stages: bool = True) -> list[str]:
    """Build to the end with kills when so many units are compiled, and after each stage; what was killed when."""
    said: list[str] = []

    def boundaries(stages: tuple[str, ...]) -> None:
        for stage in stages:
            if killed_when(builds, lambda stage=stage: builds.ended(stage)):  # type: ignore[misc]
                said.append(f"after the stage {stage}")

    boundaries(BEFORE if stages else ())
    for point in sorted(points):
        if killed_when(builds, lambda point=point: builds.counted()[1] >= point):  # type: ignore[misc]
            said.append(f"after {builds.counted()[1]} units")
    boundaries(BEHIND if stages else ())
    whole(builds)
    return said


def apart(seed: int, kills: int) -> None:
    """Go on in a place with a lock folder of its own."""
    if "LOCKED_APART" in os.environ:
        return
    argv = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run/lock; exec "$@"', "sh", sys.executable, "-m",
            "tests.build.kills", *sys.argv[1:3], str(seed), str(kills), *sys.argv[5:]]  # fmt: skip
    sys.exit(subprocess.call(argv, env={**os.environ, "LOCKED_APART": "1"}))


def main() -> None:
    base, result = Path(sys.argv[1]), Path(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    kills = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    header = sys.argv[5] if len(sys.argv) > 5 else "cstddef"
    print(f"seed {seed}")
    apart(seed, kills)
    base.mkdir(parents=True)
    _enter_cgroup()
    builds = Builds(base, header)
    builds.warm()
    document = {
        "what": "a stand-in of 250 C++ and 15 CUDA units killed with SIGKILL and gone on with",
        "how": f"python -m tests.build.kills DIR RESULT {seed} {kills} {header}",
        "machine": "2 processors shared with other work, nvcc 13.0, g++ 12.2",
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "seed": seed, "units": UNITS + 1 + KERNELS,
    }  # fmt: skip
    chosen = random.Random(seed)
    points = [chosen.randrange(1, UNITS) for _ in range(kills)]
    for name, phase in (
        ("unbroken", lambda: {"status_from_a_second_shell_at_a_quarter": foretold(builds)}),
        ("many_kills", lambda: {"kills": with_kills(builds, points)}),
        ("unbroken_again", lambda: {"seconds_of_it": round(whole(builds), 1)}),
        ("one_kill_half_way", lambda: {"kills": with_kills(builds, [UNITS // 2], stages=False)}),
    ):
        builds.anew()
        costs = Costs(builds)
        said = phase()
        document[name] = {**costs.taken(), **said}
        result.write_text(json.dumps({**document, **ratios(document)}, indent=1) + "\n")
    print(result.read_text())


def ratios(document: dict[str, Any]) -> dict[str, Any]:
    """What was killed against the mean of the unbroken builds before and behind it."""
    whole_ones = [document[name] for name in ("unbroken", "unbroken_again") if name in document]
    found = {}
    for name in ("many_kills", "one_kill_half_way"):
        for what in ("compiled", "seconds", "processor_seconds"):
            if name in document:
                mean = sum(each[what] for each in whole_ones) / len(whole_ones)
                found[f"{what}_ratio_of_{name}"] = round(document[name][what] / mean, 4)
    return found


if __name__ == "__main__":
    main()

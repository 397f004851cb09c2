"""Builds where the disk fills up at each stage, memory ends, or the environment refuses the wheel: they go on."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.build.spec import Stage
from tests.build.kills import LOCAL
from tests.build.standin import git, make_environment, make_standin

pytestmark = pytest.mark.system
UNITS, SIZE = 3, "256m"
COUNTER = '#!/bin/sh\n"$@"; rc=$?\n[ $rc -eq 0 ] && echo "$*" >> %s\nexit $rc\n'
LIMIT, HEAVY = 3400 << 20, 12_000_000  # bytes for everything, numbers in a heavy unit
STAGES = (Stage.FETCH, Stage.SUBMODULES, Stage.CONFIGURE, Stage.COMPILE, Stage.WHEEL, Stage.INSTALL, Stage.PROVE)


class SmallDisk:
    """State folder and environment on a disk of its own; the remote and the count of compilers are elsewhere."""

    def __init__(self, base: Path) -> None:
        self.disk, self.log = base / "disk", base / "compilers.log"
        self.tree = make_standin(base / "tree", units=UNITS, header="cstddef", submodule=True)
        self.counter = base / "count.sh"
        self.counter.write_text(COUNTER % self.log)
        self.counter.chmod(0o755)
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(self.disk)], check=True)
        self.python = make_environment(self.disk / "env")

    def argv(self, *more: str) -> list[str]:
        launcher = f"--flag=CMAKE_CXX_COMPILER_LAUNCHER={self.counter}"
        target = f"git+file://{self.tree}@main"
        how = ("--python", str(self.python), "--yes", launcher, *more)
        return [sys.executable, "-m", "firstlight", "build", target, *how]

    def build(self, *more: str, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **LOCAL, "FIRSTLIGHT_STATE_DIR": str(self.disk / "state"), "TMPDIR": str(self.disk)}
        return subprocess.run([*within, *self.argv(*more)], env=env, capture_output=True, text=True, check=False)

    def begun(self, stage: Stage) -> bool:
        journals = self.disk.glob("state/machines/*/journal.jsonl")
        lines = "".join(each.read_text(errors="replace") for each in journals).splitlines()
        return any('"command-started"' in line and f'"{stage.value}"' in line for line in lines)

    def fill(self) -> None:
        with (self.disk / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
            try:
                while True:
                    file.write(bytes(1))
            except OSError:
                pass

    def compiled(self) -> int:
        """Units that ended well; what CMake compiles to try the compiler is none."""
        return sum("/_standin.dir/" in line for line in self.log.read_text().splitlines())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk.disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.value)
def test_a_disk_that_fills_up_in_a_stage_stops_it_and_the_same_command_goes_on(small: SmallDisk, stage: Stage) -> None:
    ended = threading.Event()

    def fill_at_the_stage() -> None:
        while not ended.is_set() and not small.begun(stage):
            time.sleep(0.002)
        if not ended.is_set():
            small.fill()

    filling = threading.Thread(target=fill_at_the_stage)
    filling.start()
    first = small.build()
    ended.set()
    filling.join()
    assert (small.disk / "filler").exists(), first.stderr
    assert first.returncode in (1, 4), first.stderr
    assert "No space left on device" in first.stderr, first.stderr
    assert "Traceback" not in first.stderr, first.stderr
    (small.disk / "filler").unlink()
    again = small.build()
    assert again.returncode == 0, again.stderr
    # A full disk takes no line of ninja's log either: what ended well just then is compiled again, one unit a job.
    unwritten = (os.cpu_count() or 1) if stage is Stage.COMPILE else 0
    assert UNITS + 1 <= small.compiled() <= UNITS + 1 + unwritten


def test_an_environment_that_refuses_the_wheel_costs_no_unit(small: SmallDisk) -> None:
    site = next((small.disk / "env").glob("lib/python3*/site-packages"))
    subprocess.run(["mount", "--bind", str(site), str(site)], check=True)
    try:
        ended = threading.Event()

        def refuse_from_the_wheel_on() -> None:
            while not ended.is_set() and not small.begun(Stage.WHEEL):
                time.sleep(0.002)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(site)], check=True)

        refusing = threading.Thread(target=refuse_from_the_wheel_on)
        refusing.start()
        first = small.build()
        ended.set()
        refusing.join()
        assert first.returncode == 1, first.stderr
        assert "The wheel is there and nothing has to be compiled again" in first.stderr
        assert small.compiled() == UNITS + 1
        subprocess.run(["mount", "-o", "remount,bind,rw", str(site)], check=True)
        again = small.build()
        assert again.returncode == 0, again.stderr
        assert small.compiled() == UNITS + 1
        assert stat.S_ISDIR((site / "standin").stat().st_mode)
    finally:
        subprocess.run(["umount", "--lazy", str(site)], check=True)


@pytest.fixture
def cgroup(tmp_path: Path) -> Iterator[Path]:
    """A memory cgroup (v1 or v2) that may hold too little for two heavy units and enough for one."""
    first = next(each for each in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if each.is_dir())
    folder = first / f"firstlight-{os.getpid()}"
    try:
        folder.mkdir()
        limit = next(each for each in ("memory.limit_in_bytes", "memory.max") if (folder / each).exists())
        (folder / limit).write_text(str(LIMIT))
    except (OSError, StopIteration) as error:
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    yield folder
    folder.rmdir()


@pytest.mark.slow
def test_units_that_are_killed_for_memory_are_got_over_at_fewer_jobs(small: SmallDisk, cgroup: Path) -> None:
    numbers = ",".join("1" for _ in range(HEAVY))
    for name in ("first", "second"):
        (small.tree / f"src/{name}.cpp").write_text(f"char {name}[] = {{{numbers}}};\n")
    git(small.tree, "add", ".")
    git(small.tree, "commit", "-m", "heavy units")
    inside = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh")
    done = small.build("--jobs", "2", within=inside)
    logs = "".join(each.read_text() for each in small.disk.glob("state/machines/*/logs/*compile*"))
    assert done.returncode == 0, done.stderr
    assert "killed for memory" in logs, logs[-2000:]
    assert "they continue, 1 at a time" in logs
    assert small.compiled() == UNITS + 3

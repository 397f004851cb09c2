"""The wiring steps carried out in a real environment under an old driver, repeated, and taken back to the last byte."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.cli.plan_files import extras_of
from firstlight.facts.collect import collect
from firstlight.machine.live import LiveMachine
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import WireCompat
from firstlight.ways.step import Step, StepKind
from tests.apply.acting import acting, tree
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts, under_driver
from tests.ways.machines import at, made

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
]
BRANCHES = (535, 550, 565, 570, 575)
ROOT = Path(__file__).parents[2]
WHICH = (
    "import ctypes; ctypes.CDLL('libcuda.so.1'); "
    "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libcuda.so' in line})"
)


def _steps(python: str, compat: str) -> tuple[Step, ...]:
    facts = collect(LiveMachine(), python=python)
    steps = made(at(facts, extras=extras_of(LiveMachine(), facts)), WireCompat(compat, CudaVersion(13, 0), BRANCHES))
    # how programs are started is told, and not for apply to do
    return tuple(replace(step, optional=False) for step in steps if step.kind is not StepKind.MANUAL)


def main(verb: str, folder: str, python: str, compat: str) -> None:
    """What runs under the driver: apply or undo, in a process of its own."""
    doing = acting(Path(folder))
    if verb == "apply":
        steps = _steps(python, compat)
        ran = act(doing, Asked(steps, "d", "o", "t"))
        print(*(step.id for step in steps), "done" if ran else "nothing to do")
    else:
        for run in newest_to_undo(doing):
            undo(doing, run)


class Place:
    """An environment, the driver's own libcuda and a compat folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.venv = folder, folder / "venv"
        self.own, self.compat = folder / "driver", folder / "cuda-13.0/compat"
        build_libcuda(self.own, version="570.133.20", cuda=12080)
        build_libcuda(self.compat, version="580.95.05", cuda=13000)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True)
        (folder / "home").mkdir()

    def started(self, *argv: str) -> str:
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "home/.state"),
            "LD_LIBRARY_PATH": str(self.own),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        }
        done = under_driver("570.133.20", *argv, env=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def does(self, verb: str) -> str:
        code = "import sys; from tests.system.test_start_file_step import main; main(*sys.argv[1:])"
        given = (str(self.folder), str(self.venv / "bin/python"), str(self.compat))
        return self.started(sys.executable, "-B", "-c", code, verb, *given)

    def loaded(self) -> str:
        return self.started(str(self.venv / "bin/python"), "-c", WHICH)


def test_the_steps_wire_python_hold_the_second_time_and_are_taken_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.loaded() == f"{place.own}/libcuda.so.570.133.20"
    before = {**tree(place.venv), **tree(tmp_path / "home")}
    said = place.does("apply")
    assert "wire-compat-at-start" in said
    assert said.endswith("wire-compat-in-python done")
    assert place.loaded() == f"{place.compat}/libcuda.so.580.95.05"
    assert place.does("apply").endswith("nothing to do")
    place.does("undo")
    assert place.loaded() == f"{place.own}/libcuda.so.570.133.20"
    assert {**tree(place.venv), **tree(tmp_path / "home")} == before

"""Environments that are made in no time, whose pip can be killed at a point of its own code."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import Quiet, acting, step
from tests.apply.wheels import make_wheel

# Runs at every start of the environment's Python; only a pip at work takes notice, and dies once where it is told to.
KILL = """\
import os, sys
place = os.path.join(os.path.dirname(__file__), "kill-at")
if os.path.exists(place) and {"install", "uninstall"} & set(sys.orig_argv):
    from pip._internal.operations.install import wheel
    from pip._internal.req import req_uninstall
    point, _, count = open(place).read().partition(" ")
    owner, name = {
        "moving": (req_uninstall.StashedUninstallPathSet, "stash"),
        "moved": (req_uninstall.UninstallPathSet, "remove"),
        "writing": (wheel.ZipBackedFile, "save"),
        "removing": (req_uninstall.StashedUninstallPathSet, "commit"),
    }[point]
    plain = getattr(owner, name)
    passed = 0
    def dying(*args, **kwargs):
        global passed
        done = plain(*args, **kwargs) if point != "removing" else None
        passed += 1
        if passed == int(count or 1):
            os.unlink(place)
            os.kill(os.getpid(), 9)
        return done if point != "removing" else plain(*args, **kwargs)
    setattr(owner, name, dying)
"""


class Pip:
    """An environment without pip in it, which finds one in a folder beside; wheels of demo, which wants part."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels, self.beside = folder, folder / "wheels", folder / "beside"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        self.python = str(folder / "venv/bin/python")
        [self.site] = (folder / "venv/lib").glob("python3*/site-packages")
        self.beside.mkdir()
        # not by `import pip`: setuptools then gives this whole process the old distutils, and Inductor fails
        (self.beside / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
        (self.beside / "kill_pip_for_tests.py").write_text(KILL)
        (self.site / "beside.pth").write_text(f"{self.beside}\nimport kill_pip_for_tests\n")
        for version in ("1.0", "2.0"):
            wants = (f"part=={version}", *(("extra",) if version == "2.0" else ()))
            make_wheel(self.wheels, "demo", version, requires=wants)
            make_wheel(self.wheels, "part", version)
        make_wheel(self.wheels, "extra", "0.1")
        self.install("demo==1.0")

    def install(self, *wanted: str) -> None:
        """By uv, which takes a tenth of pip's time."""
        uv = str(Path(sys.executable).with_name("uv"))
        argv = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            self.python,
            "--no-index",
            "--find-links",
            str(self.wheels),
        ]
        subprocess.run([*argv, *wanted], check=True)

    def step(self, *wanted: str) -> Step:
        """A step that installs with pip."""
        argv = (self.python, "-m", "pip", "install", "--no-index", "--find-links", str(self.wheels), *wanted)
        done = Condition(CheckKind.DISTRIBUTIONS, self.python, "\n".join(wanted))
        return step("01-install", kind=StepKind.PIP, commands=(argv,), done_when=(done,))

    def kill_at(self, point: str) -> None:
        """The next pip dies there: moving N, moved, writing N, removing."""
        (self.beside / "kill-at").write_text(point)

    def apply(self, *wanted: str) -> None:
        act(acting(self.folder), Asked((self.step(*wanted),), "d", "o", "t"))

    def go_on(self) -> None:
        """The next call of apply: goes on with what was interrupted."""
        doing = acting(self.folder)
        for run in interrupted(doing):
            finish(doing, run)

    def undo(self) -> list[str]:
        """What was said while the newest run was taken back."""
        doing = acting(self.folder)
        for each in newest_to_undo(doing):
            undo(doing, each)
        assert isinstance(doing.watcher, Quiet)
        return doing.watcher.heard

    @property
    def debris(self) -> list[str]:
        return sorted(str(each.relative_to(self.site)) for each in self.site.rglob("~*"))

    def files(self) -> dict[str, bytes]:
        """Every file of every package; not bytecode, nor who asked for a package and who installed it."""
        skipped = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json", "uv_cache.json")
        return {
            str(path.relative_to(self.site)): path.read_bytes()
            for path in sorted(self.site.rglob("*"))
            if path.is_file() and path.suffix != ".pyc" and path.name not in skipped
        }

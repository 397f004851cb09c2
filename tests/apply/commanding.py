"""The real command line in a home of its own, with an environment whose pip can be held up from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.apply.wheels import make_wheel
from tests.environments import environment_with_pip

# Runs at the start of every Python of the environment; only pip at work takes notice, and only when it is told to.
HOLD = """\
import os, signal, sys, time
place = os.environ.get("HOLD_PIP", "")
if place and {"install", "uninstall"} & set(sys.orig_argv) and not os.path.exists(place + "/go"):
    def heard(number, frame):
        open(place + "/heard", "w").write(str(number))
        sys.exit(1)
    signal.signal(signal.SIGINT, heard)
    open(place + "/" + str(os.getpid()), "w").close()
    os.rename(place + "/" + str(os.getpid()), place + "/started")
    while not os.path.exists(place + "/go"):
        time.sleep(0.05)
"""
WANT = ("--want", "torch==2.9.0+cpu")
ANOTHER_IS_ACTING = 4


class Person:
    """Somebody with a home, a state folder, a folder of wheels and an environment."""

    def __init__(self, folder: Path, venv: Path) -> None:
        self.folder, self.venv, self.cwd = folder, venv, folder
        self.home, self.state, self.wheels, self.hold = (folder / each for each in ("home", "state", "wheels", "hold"))
        for each in (self.home, self.wheels, self.hold):
            each.mkdir()
        make_wheel(self.wheels, "torch", "2.9.0+cpu", requires=("sympy",))
        make_wheel(self.wheels, "sympy", "1.13.3")

    @property
    def python(self) -> str:
        return str(self.venv / "bin/python")

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        return {
            **kept, "HOME": str(self.home), "FIRSTLIGHT_STATE_DIR": str(self.state),
            "XDG_STATE_HOME": str(self.folder / "xdg"), **more,
        }  # fmt: skip

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """`firstlight WORDS`, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "firstlight", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=self.environ(**more), cwd=self.cwd,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`firstlight WORDS` to its end; the machine has one lock, so another test at work is waited for."""
        for _ in range(100):
            process = self.start(*words, **more)
            out, err = process.communicate(timeout=300)
            assert "Traceback" not in err, err
            if process.returncode != ANOTHER_IS_ACTING:
                break
            time.sleep(1)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def apply(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`firstlight apply` of the wanted torch from the folder of wheels, without asking and without proof."""
        given = (*WANT, "--offline", str(self.wheels), "--python", self.python, "--yes", "--no-verify", *words)
        return self.run("apply", *given, **more)

    def start_apply(self, **more: str) -> subprocess.Popen[str]:
        given = (*WANT, "--offline", str(self.wheels), "--python", self.python, "--yes", "--no-verify")
        return self.start("apply", *given, HOLD_PIP=str(self.hold), **more)

    def wait_for(self, name: str) -> None:
        """Until the held pip left a sign of this name."""
        until = time.monotonic() + 120
        while not (self.hold / name).exists():
            assert time.monotonic() < until, f"no sign {name!r}"
            time.sleep(0.05)

    def journal(self) -> list[dict[str, Any]]:
        [path] = self.state.rglob("journal.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def make_environment(folder: Path) -> Path:
    """A virtual environment with pip that can be held up."""
    environment_with_pip(folder)
    site = next((folder / "lib").glob("python3*/site-packages"))
    (site / "hold_pip_for_tests.py").write_text(HOLD)
    (site / "hold_pip_for_tests.pth").write_text("import hold_pip_for_tests\n")
    return folder

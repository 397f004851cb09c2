"""Lock, drift, `firstlight apply`, lock: the same bytes, whoever installed the packages before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apply.wheels import make_wheel
from tests.lock.test_hold import UV
from tests.lock.test_live_drifts import Machine

pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs uv beside the interpreter")
LOCKED = ("torch==2.9.0+cpu", "nvidia-cudnn-cu12==9.10.2.21")
DRIFTED = ("torch==2.10.0+cpu", "nvidia-cudnn-cu12==9.1.0.70")


def _machine(folder: Path) -> Machine:
    """A machine whose torch pins an NVIDIA wheel and brings a program, as the real one does."""
    machine = Machine(folder)
    for torch, cudnn in (("2.9.0+cpu", "9.10.2.21"), ("2.10.0+cpu", "9.10.2.21")):
        needs = (f"nvidia-cudnn-cu12=={cudnn}",)
        make_wheel(machine.wheels, "torch", torch, requires=needs, more=("entry_points.txt", "torch/lib/notes"))
    for version in ("9.10.2.21", "9.1.0.70"):
        make_wheel(machine.wheels, "nvidia-cudnn-cu12", version)
    return machine


def test_lock_then_a_drift_then_apply_then_lock_gives_the_same_bytes(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    installed = machine.uv(*LOCKED)
    assert installed.returncode == 0, installed.stderr
    assert machine.lock_live().returncode == 0
    text = machine.text
    wanted = ("--python", str(machine.venv), "--offline", str(machine.wheels), "--want", LOCKED[0])
    for tool in (machine.pip, machine.uv):
        assert tool("--no-deps", *DRIFTED).returncode == 0
        code, drifts = machine.check()
        both = [("packages", "nvidia-cudnn-cu12", "changed"), ("packages", "torch", "changed")]
        assert (code, sorted(drifts)) == (3, both)
        assert machine.lock_live().returncode == 2, "what verify said was of another torch"

        applied = machine.firstlight("apply", "--yes", "--no-verify", *wanted)
        assert applied.returncode == 0, applied.stdout + applied.stderr
        assert machine.check() == (0, [])
        assert machine.lock_live().returncode == 0
        assert machine.text == text

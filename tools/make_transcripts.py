"""Command lines and all that they print, to be read by people and compared by tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "transcripts"
DOCTOR = (
    "h100-driver-570", "h100-driver-550-cu130", "h100-driver-570-compat", "h200", "h200-compat-first", "gpu-less",
    "thor-missing-libraries", "rtx5090-source-build", "l40s-driver-570-compat-12-9", "rtx4090-compat-image",
    "h100-driver-595-compat-580", "v100-torch-cu130", "gb10-torch-cu130", "wsl2-healthy", "b200-driver-610",
    "h100-mig-slice", "l4-vgpu", "gpu-box-cpu-wheel", "ubuntu-half-upgraded", "h100-no-fabric-manager",
    "cuda-lib64-first", "mixed-gpus",
)  # fmt: skip
NARROW = ("h100-driver-570", "thor-missing-libraries", "v100-torch-cu130", "h200-compat-first", "gpu-box-cpu-wheel")
PLAN = ("h100-driver-570", "h200-compat-first", "h100-no-fabric-manager")
_80 = "-80"  # the end of a name that is played at 80 columns; all others at 110
TRANSCRIPTS = {
    **{f"doctor-{name}": f"firstlight doctor --facts tests/machines/{name}" for name in DOCTOR},
    **{f"doctor-{name}{_80}": f"firstlight doctor --facts tests/machines/{name}" for name in NARROW},
    **{f"plan-{name}": f"firstlight plan --facts tests/machines/{name}" for name in PLAN},
    **{f"plan-{name}{_80}": f"firstlight plan --facts tests/machines/{name}" for name in PLAN},
    "plan-diff": "firstlight plan --diff --facts tests/machines/h200-compat-first",
    "plan-options": "firstlight plan --options --facts example:h100-driver-570 --rate 2.69",
    "plan-options-80": "firstlight plan --options --facts example:h100-driver-570 --rate 2.69",
    "doctor-all": "firstlight doctor --all --facts tests/machines/h100-driver-570",
    "plan-help": "firstlight plan --help",
    "facts-h100-driver-570": "firstlight facts --facts example:h100-driver-570",
    "help": "firstlight --help",
    "doctor-help": "firstlight doctor --help",
    "libs-thor": "firstlight libs --facts tests/machines/thor-missing-libraries",
    "libs-help": "firstlight libs --help",
    "emit-help": "firstlight emit --help",
    "lint-help": "firstlight lint --help",
    "lint-planted": "firstlight lint tests/lint/files/compat-first.Dockerfile --for 'H100, driver 570'",
    "doctor-build": "firstlight doctor --facts tests/machines/h100-driver-550-cu128 --goal build-extensions",
    "doctor-want": 'firstlight doctor --facts tests/machines/h200 --want "torch==2.9.0+cu130"',
    "doctor-want-nothing-here": 'firstlight doctor --facts tests/machines/gpu-less --want "torch==2.9.0+cu130"',
    "doctor-why-not": "firstlight doctor --facts tests/machines/h200 --why-not compat-stale",
    "doctor-explain-rule": "firstlight doctor --explain-rule compat-stale",
    "explain-803": 'firstlight explain "Error 803: system has unsupported display driver / cuda driver combination"',
    "explain-unknown": 'firstlight explain "something else went wrong"',
    "tables-compat": "firstlight tables compat_accepts",
    "check-drifted": "firstlight check --lock tests/lock/h200.lock --facts tests/machines/h200-compat-first",
    "check-drifted-80": "firstlight check --lock tests/lock/h200.lock --facts tests/machines/h200-compat-first",
    "check-as-locked": "firstlight check --lock tests/lock/h200.lock --facts tests/machines/h200 --set driver=590.48",
    "check-no-class": "firstlight check --lock tests/lock/h200.lock --facts tests/machines/mixed-gpus",
    "check-help": "firstlight check --help",
    "lock-help": "firstlight lock --help",
    "bad-rule": "firstlight doctor --explain-rule compat-stail",
    "bad-want": "firstlight doctor --facts tests/machines/h200 --want numpy",
    "bad-goal": "firstlight doctor --goal win",
    "facts-help": "firstlight facts --help",
    "bad-verb": "firstlight docter",
    "bad-option": "firstlight facts --jsn",
    "bad-set": "firstlight facts --facts example:h100-driver-570 --set driver=new",
    "bad-file": "firstlight facts --facts no-such-file.json",
}


def made() -> dict[Path, str]:
    """Every transcript with its place; no other file is in that folder."""
    return {FOLDER / f"{name}.txt": played(name) for name in TRANSCRIPTS}


def stored(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


def played(name: str) -> str:
    """The command line, what it prints on both streams, and its exit code."""
    line = TRANSCRIPTS[name]
    argv = [sys.executable, "-m", *shlex.split(line)]
    columns = "80" if name.endswith(_80) else "110"
    environ = {**os.environ, "NO_COLOR": "1", "COLUMNS": columns, "TERM": "dumb", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        argv, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return f"$ {line}\n{done.stdout}[exit {done.returncode}]\n"

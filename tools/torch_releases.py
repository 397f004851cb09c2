"""Runs the library's tests that need no GPU on several torch releases; network, minutes and gigabytes for each.

    python -m tools.torch_releases --releases 2.8.0,2.10.0 --venvs /tmp/torch --out results/kernels-torch-releases.json

Each release gets a virtual environment of its own below --venvs, which is left there and taken again by the next run.
The tests are those of the kernels: autograd, torch.compile, torch.func and FlexAttention on the processor, and Triton's
kernels in its interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = "firstlight.torch-releases/1"
OURS = ("click", "rich", "packaging", "nvidia-ml-py", "jinja2", "tomlkit", "pyyaml", "numpy", "pytest", "hypothesis")
TESTS = "tests/kernels"
LEFT_OUT = {
    "tests/kernels/gpu": "needs a GPU",
    "tests/kernels/sm90": "CUDA C++ and the driver, no torch kernels",
    "tests/kernels/sanitizer": "a tool around CUDA programs",
    "tests/kernels/test_kernels_command.py": "the command line",
    "tests/kernels/triton_backend/test_launch.py": "the launcher of Triton 3.6; others take kernel[grid]",
    "tests/kernels/block_attention/test_att_triton_launch.py": "the same",
    "tests/kernels/triton_backend/test_compiled.py": "registers and instructions that one release of Triton chooses",
    "tests/kernels/block_attention/test_att_triton_compiled.py": "the same",
}
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


def environment(folder: Path, release: str) -> Path:
    """The Python of a virtual environment that has this torch, e.g. /tmp/torch/2.8.0/bin/python."""
    python = folder / release / "bin" / "python"
    if not python.exists():
        venv.create(folder / release, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", f"torch=={release}", *OURS]
    subprocess.run(install, check=True)
    return python


def judged(python: Path, release: str) -> dict[str, Any]:
    """What pytest said of one release, e.g. {'torch': '2.8.0', 'passed': 1290, 'failed': []}."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    version = [str(python), "-c", "import torch, triton; print(torch.__version__, triton.__version__)"]
    found = subprocess.run(version, check=True, capture_output=True, text=True).stdout.split()
    ignored = [f"--ignore={path}" for path in LEFT_OUT]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS, *ignored]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    counts = {name.rstrip("s"): int(count) for count, name in _COUNT.findall(done.stdout.splitlines()[-1])}
    failed = _FAILED.findall(done.stdout)
    return {
        "torch": found[0], "triton": found[1], "asked": release, "python": platform.python_version(),
        "exit": done.returncode, "passed": counts.get("passed", 0), "skipped": counts.get("skipped", 0),
        "failed": sorted(failed),
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Writes one row for each release, in place of an older row of the same release; 1 where a test failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--releases", required=True, help="e.g. 2.8.0,2.10.0")
    parser.add_argument("--venvs", required=True, type=Path, help="a folder with some 8 GB of room for each release")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args(arguments)
    rows = {}
    if given.out.exists():
        rows = {row["asked"]: row for row in json.loads(given.out.read_text(encoding="utf-8"))["releases"]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    worst = 0
    for release in given.releases.split(","):
        row = judged(environment(given.venvs, release), release) | {"commit": commit.strip()}
        print(f"torch {row['torch']}: {row['passed']} passed, {len(row['failed'])} failed", *row["failed"], sep="\n  ")
        worst = max(worst, row["exit"])
        rows[release] = row
        ordered = [rows[name] for name in sorted(rows, key=lambda name: [int(part) for part in name.split(".")])]
        text = json.dumps({"schema": SCHEMA, "tests": TESTS, "left_out": LEFT_OUT, "releases": ordered}, indent=1)
        given.out.write_text(text + "\n", encoding="utf-8")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

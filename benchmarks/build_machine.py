"""What a run of real builds needs of the machine, and what it says about it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NEEDED = ("click", "rich", "packaging", "nvidia-ml-py", "jinja2", "tomlkit", "pyyaml", "build", "setuptools", "wheel",
          "ninja", "einops")  # fmt: skip
_TORCH = "import torch; print(torch.__version__); print(torch.cuda.is_available() and torch.cuda.get_device_name())"


def bring(python: str, wheels: Path) -> None:
    """What is missing in the environment, from the carried wheels, by the carried pip."""
    pip = next(wheels.glob("pip-*.whl"))
    argv = [python, f"{pip}/pip", "install", "--quiet", "--no-index", "--find-links", str(wheels)]
    subprocess.run([*argv, *NEEDED], check=True, timeout=120)
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False, timeout=60).returncode:
        subprocess.run([*argv, "pip"], check=True, timeout=120)


def about(python: str) -> dict[str, Any]:
    """Date, commit, versions, processors: what figures are worth nothing without."""
    told = _said([python, "-c", _TORCH]).splitlines() or ["torch was not imported"]
    nvcc = _said(["nvcc", "--version"]).splitlines()
    return {
        "what": "real CUDA projects built by firstlight build on a GPU machine, beside each other",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": os.environ.get("COMMIT") or _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]),
        "torch": told[0], "gpu": told[1] if len(told) > 1 else "", "nvcc": nvcc[-1] if nvcc else "",
        "compiler": (_said(["g++", "--version"]).splitlines() or [""])[0],
        "python": platform.python_version(), "cores": os.cpu_count(),
    }  # fmt: skip


def _said(argv: list[str]) -> str:
    try:
        asked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""

"""nvcc as a subprocess: the compiler for machines with a toolkit and without NVRTC."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firstlight.kernels.sm90 import nvrtc

LIMIT_S = 300.0
_VERSION = re.compile(r"release [\d.]+, V([\d.]+)")


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A compiler that was found and answered, e.g. Nvcc('/usr/local/cuda/bin/nvcc', '13.0.88', 'nvcc 13.0.88')."""

    path: str
    version: str
    identity: str


def find_nvcc() -> Nvcc | None:
    """The first nvcc that runs in: CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    wanted = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    for path in (*wanted, shutil.which("nvcc"), f"{nvrtc.TOOLKITS}/cuda/bin/nvcc"):
        if path and os.access(path, os.X_OK) and (version := _version(path)):
            return Nvcc(path, version, f"nvcc {version}")
    return None


@functools.lru_cache(maxsize=8)
def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = _VERSION.search(done.stdout)
    return match.group(1) if done.returncode == 0 and match else ""


def compile_file(command: Sequence[str]) -> nvrtc.Built:
    """Runs `command -o FILE` and returns the cubin; an empty one when nvcc failed or took longer than five minutes."""
    with tempfile.TemporaryDirectory(prefix="firstlight-nvcc-") as folder:
        out = Path(folder) / "kernel.cubin"
        try:
            done = subprocess.run(
                [*command, "-o", str(out)], capture_output=True, text=True, timeout=LIMIT_S, check=False
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            return nvrtc.Built(b"", f"error: {error}")
        log = (done.stdout + done.stderr).strip()
        if done.returncode or not out.is_file():
            return nvrtc.Built(b"", log or f"error: nvcc ended with {done.returncode} and said nothing")
        return nvrtc.Built(out.read_bytes(), log)

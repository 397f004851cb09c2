"""Real ELF files, built with gcc while the tests run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build() -> Build:
    """build(path, *flags, source=...): a shared library without libc; its folder is made where needed."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")

    def run(path: Path, *flags: str, source: str = "", language: str = "c") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [gcc, "-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", "-o", str(path), "-x", language, "-"]
        subprocess.run([*command, "-x", "none", *flags], input=source, text=True, check=True)
        return path

    return run

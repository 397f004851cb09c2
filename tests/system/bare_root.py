"""A root with one Python, its standard library and the shared libraries of both, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.cli.test_zipapp import bare_pythons


def make_bare_root(root: Path) -> str:
    """Fill a folder; gives the path of the Python in it."""
    python = Path(os.path.realpath(bare_pythons()[0]))
    code = "import sys, sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = Path(
        subprocess.run([str(python), "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    )
    _copy_with_libraries(python, root)
    shutil.copytree(
        stdlib,
        root / str(stdlib).lstrip("/"),
        ignore=shutil.ignore_patterns("test", "site-packages", "__pycache__", "idlelib"),
    )
    for extension in (stdlib / "lib-dynload").glob("*.so"):
        _copy_with_libraries(extension, root)
    return str(python)


def _copy_with_libraries(program: Path, root: Path) -> None:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    paths = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    for path in [str(program), *paths]:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(os.path.realpath(path), target)

"""Virtual environments with pip as `python -m venv` makes them, which takes three seconds of processor time each."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def _made_once() -> Path:
    place = Path(tempfile.mkdtemp(prefix="environment-with-pip-")).resolve()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder = place / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


def environment_with_pip(folder: Path) -> Path:
    """One of its own at that place: made without pip, and given the files of one that ensurepip filled."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    model = _made_once()
    shutil.copytree(model / "lib", folder / "lib", symlinks=True, dirs_exist_ok=True)
    for script in (model / "bin").glob("pip*"):
        copied = folder / "bin" / script.name
        copied.write_text(script.read_text().replace(str(model), str(folder)))
        copied.chmod(0o755)
    return folder

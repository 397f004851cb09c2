"""Environments with a small torch: the files that `import torch` opens, with its names and search paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from firstlight.libraries.analysis import Analysis, analyse
from firstlight.libraries.closing import Closing, close
from firstlight.libraries.target import Surroundings, find_target, surroundings
from firstlight.machine.live import LiveMachine
from firstlight.tables import load
from tests.libraries.add_needed import add_needed
from tests.libraries.library_wheels import build_library

CU13 = "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
# What torch/__init__.py does that matters here; the real one is held against in test_libs_for_real.py.
INIT = """\
import ctypes, os
here = os.path.dirname(__file__) + "/lib/"
ctypes.CDLL(here + "libtorch_global_deps.so", mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(here + "libtorch_python.so", mode=ctypes.RTLD_GLOBAL)
"""


class Tree:
    """An environment without pip that grows as a test needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True)
        self.site = next((self.venv / "lib").glob("python3*/site-packages"))

    @property
    def lib(self) -> Path:
        return self.site / "torch/lib"

    def torch(self, *, lacks: tuple[str, ...] = (), rpath: str = "", runpath: str = "", cuda: str = "13.0") -> None:
        """torch 2.11.0 whose libtorch_python asks for names that are not there."""
        small_torch(self.site, lacks=lacks, rpath=rpath, runpath=runpath, cuda=cuda)

    def library(self, path: str, *, needs: tuple[Path, ...] = (), rpath: str = "", runpath: str = "") -> Path:
        """A library under site-packages."""
        return build_library(self.site / path, needs=needs, rpath=rpath, runpath=runpath)

    def installed(self, name: str, version: str, *files: str) -> None:
        """The record of a distribution."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(f"{each},,\n" for each in files))

    def around(self, **environ: str) -> Surroundings:
        machine = LiveMachine(environ={"PATH": "/usr/bin:/bin", **environ})
        return surroundings(machine, python=str(self.venv))

    def look(self, target: str = "torch", *, arch: str = "", **environ: str) -> Analysis:
        around, found = find_target(self.around(**environ), target, arch=arch)
        return analyse(around, found)

    def close(self, target: str = "torch", **environ: str) -> Closing:
        around, found = find_target(self.around(**environ), target)
        return close(around, analyse(around, found), load())


def small_torch(
    site: Path, *, lacks: tuple[str, ...] = (), rpath: str = "", runpath: str = "", cuda: str = "13.0"
) -> None:
    """The files of a small torch under a site-packages folder."""
    lib = site / "torch/lib"
    first = build_library(lib / "libtorch_global_deps.so", rpath=rpath, runpath=runpath)
    own = build_library(lib / "libc10.so", rpath=rpath, runpath=runpath)
    last = build_library(lib / "libtorch_python.so", needs=(own,), rpath=rpath, runpath=runpath)
    assert first.exists()
    if lacks:
        add_needed(last, *lacks)
    said = f"cuda = {cuda!r}" if cuda else "cuda = None"
    (site / "torch/__init__.py").write_text(INIT)
    (site / "torch/version.py").write_text(f"__version__ = '2.11.0'\n{said}\nhip = None\ngit_version = 'abc'\n")
    info = site / "torch-2.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")

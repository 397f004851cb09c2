"""What `make dist` builds: complete, clean, and at work on every Python that is here and supported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from firstlight import __version__

ROOT = Path(__file__).parents[1]
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Every module that needs no torch; children are run by other interpreters, __main__ acts.
IMPORTS = """
import importlib, pkgutil, firstlight
read = 0
for module in pkgutil.walk_packages(firstlight.__path__, "firstlight.", onerror=lambda name: None):
    if ".children" not in module.name and not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name == "torch", error
        read += 1
assert read > 800, read
"""


def test_the_citation_names_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (found["version"], found["license"]) == (__version__, "Apache-2.0")


def pythons() -> list[Path]:
    """One interpreter of each supported release that is on this machine, on PATH or beside the one that runs this."""
    beside = sorted(Path(sys.base_prefix).parent.glob("3.*/bin/python3"))
    on_path = [Path(found) for each in SUPPORTED if (found := shutil.which(f"python{each}")) is not None]
    by_release: dict[str, Path] = {}
    for python in (*beside, *on_path):
        said = subprocess.run([python, "--version"], capture_output=True, text=True, check=False).stdout
        release = re.match(r"Python (3\.\d+)\.", said)
        if release and release[1] in SUPPORTED:
            by_release.setdefault(release[1], python)
    return list(by_release.values())


def built(folder: Path) -> Path:
    """The wheel of this tree, built as `make dist` does it."""
    out = folder / "dist"
    build = [sys.executable, "-m", "build", "--quiet", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, timeout=600, capture_output=True)
    [wheel], [_] = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel


@pytest.mark.network
def test_pipx_and_uvx_run_the_wheel_without_an_install(tmp_path: Path) -> None:
    wheel, tools = built(tmp_path), tmp_path / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True, timeout=300)
    subprocess.run([tools / "bin/pip", "install", "--quiet", "pipx", "uv"], check=True, timeout=600)
    folders = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "UV_CACHE_DIR": "uv", "XDG_STATE_HOME": "state"}
    env = {**os.environ, **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    calls = [[tools / "bin/pipx", "run", "--spec", wheel]]
    calls += [[tools / "bin/uvx", "--python", python, "--from", wheel] for python in pythons()]
    for call in calls:
        words = [*map(str, call), "firstlight", "doctor", "--short", "--facts", "example:h100-driver-570"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, env=env, cwd=tmp_path)
        assert (done.returncode, done.stdout[:8]) == (1, "BLOCKED "), (call, done.stderr)


@pytest.mark.network
def test_the_wheel_is_clean_and_runs_on_every_supported_python_that_is_here(tmp_path: Path) -> None:
    """An index is needed for the build backend and the dependencies."""
    wheel = built(tmp_path)
    found = pythons()
    assert found
    for python in found:
        home = tmp_path / f"venv-{python.parent.parent.name}"
        subprocess.run([python, "-m", "venv", home], check=True, timeout=300)
        subprocess.run([home / "bin/pip", "install", "--quiet", wheel], check=True, timeout=600)
        ours = [str(home / "bin/firstlight"), "doctor", "--short", "--facts", "example:h100-driver-570"]
        done = subprocess.run(ours, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
        assert (done.returncode, done.stdout[:8], done.stderr) == (1, "BLOCKED ", ""), python
        subprocess.run([home / "bin/python", "-m", "pip", "check"], check=True, timeout=60)
        [ours_there] = home.glob("lib/*/site-packages/firstlight")
        strictly = [str(home / "bin/python"), "-W", "error"]
        subprocess.run([*strictly, "-c", IMPORTS], check=True, timeout=600)
        subprocess.run([*strictly, "-m", "compileall", "-qf", str(ours_there)], check=True, timeout=600)

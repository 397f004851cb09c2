"""A uv project keeps what `apply` chose: `uv run` does not put the locked torch back, and undo does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from tests.apply.commanding import WANT, Person
from tests.apply.index import Index, serving
from tests.apply.wheels import make_wheel
from tests.environments import environment_with_pip

pytestmark = [
    pytest.mark.skipif(not Path(sys.executable).with_name("uv").exists(), reason="needs uv beside the interpreter"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate"),
]
MANIFEST = """\
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = [
    "torch>=2.8",  # whatever is new
]

[tool.uv]
package = false
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    wheels = tmp_path / "index"
    for version in ("2.9.0+cpu", "2.10.0"):
        make_wheel(wheels, "torch", version)
    with serving(wheels, tmp_path) as found:
        yield found


class Project(Person):
    """Somebody with a uv project."""

    def __init__(self, folder: Path, index: Index) -> None:
        super().__init__(folder, folder / "app/.venv")
        self.index, self.app = index, folder / "app"
        self.cwd = self.app
        self.app.mkdir()
        (self.app / "pyproject.toml").write_text(MANIFEST)

    def environ(self, **more: str) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"PATH": path, "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy"}
        caches = {"UV_CACHE_DIR": str(self.folder / "cache")}
        return {**super().environ(), **self.index.environ(), **ours, **caches, **more}

    def uv(self, *words: str) -> str:
        done = subprocess.run(
            ["uv", *words], cwd=self.app, env=self.environ(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def torch(self) -> str:
        """The torch that `uv run` uses, after it has put the environment as it wants it."""
        return self.uv("run", "python", "-c", "import torch; print(torch.VERSION)")


OLDER = "uv.lock.before-firstlight"  # of a run long ago


@pytest.mark.parametrize(
    "kept", [("pyproject.toml", "uv.lock", OLDER), ("pyproject.toml",)], ids=["locked", "not locked"]
)
def test_uv_run_keeps_what_apply_chose_and_undo_gives_back_what_was_locked(
    tmp_path: Path, index: Index, kept: tuple[str, ...]
) -> None:
    project = Project(tmp_path, index)
    project.uv("sync")
    assert project.torch() == "2.10.0"
    if "uv.lock" not in kept:
        (project.app / "uv.lock").unlink()
    if OLDER in kept:
        (project.app / OLDER).write_text("version = 0\n")
    files = {name: (project.app / name).read_bytes() for name in kept}
    packages = installed_distributions(project.python)
    done = project.run("apply", *WANT, "--python", project.python, "--yes", "--no-verify", "--json")
    assert done.returncode == 0, done.stderr
    assert [step["kind"] for step in json.loads(done.stdout)["steps"]] == ["project"]
    assert project.torch() == "2.9.0+cpu"
    assert 'url = "https://download.pytorch.org/whl/cpu"' in (project.app / "pyproject.toml").read_text()
    assert "# whatever is new" in (project.app / "pyproject.toml").read_text()
    assert (project.app / f"{OLDER}-2").exists() == (OLDER in kept), "a name of its own"
    again = project.run("apply", *WANT, "--python", project.python, "--yes", "--no-verify")
    assert "nothing to do" in again.stdout, again.stderr
    undone = project.run("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert {name: (project.app / name).read_bytes() for name in files} == files
    assert sorted(each.name for each in project.app.iterdir()) == sorted([".venv", *files])
    assert installed_distributions(project.python) == packages
    assert project.torch() == "2.10.0"


def test_pip_goes_through_the_proxy_and_the_index_of_the_plan_stays_explicit(tmp_path: Path, index: Index) -> None:
    project = Project(tmp_path, index)
    environment_with_pip(tmp_path / "plain")
    python = str(tmp_path / "plain/bin/python")
    done = project.run(
        "apply", *WANT, "--python", python, "--yes", "--no-verify", PIP_INDEX_URL="https://pypi.org/private/"
    )
    assert done.returncode == 0, done.stderr
    assert "torch==2.9.0+cpu" in (installed_distributions(python) or ())
    assert any(each.startswith("download.pytorch.org/whl/cpu/torch") for each in index.asked)
    assert not any("private" in each for each in index.asked)

"""A held stack: the real pip and uv refuse a package that wants another torch, and without the hold they replace it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.apply.wheels import make_wheel
from tests.schemas import fits

SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"
UV = Path(sys.executable).with_name("uv")
pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs uv beside the interpreter")
MANIFEST = """\
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["torch"]  # as it is

[tool.uv]
package = false
"""


class Team:
    """An environment with torch 2.9.0+cu128, a folder of wheels, and a home of its own for journals."""

    def __init__(self, folder: Path, *, venv: str = "venv") -> None:
        self.folder, self.wheels, self.venv = folder, folder / "wheels", folder / venv
        self.venv.parent.mkdir(parents=True, exist_ok=True)
        (folder / "home/.config/uv").mkdir(parents=True)
        (folder / "home/.config/uv/uv.toml").write_text(f'no-index = true\nfind-links = ["{self.wheels}"]\n')
        make_wheel(self.wheels, "torch", "2.9.0+cu128")
        make_wheel(self.wheels, "torch", "2.10.0")
        make_wheel(self.wheels, "lpips", "0.1.4", requires=("torch>=2.10",))
        make_wheel(self.wheels, "plain", "1.0", requires=("torch",))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True)
        [site] = self.venv.glob("lib/python3*/site-packages")
        (site / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
        assert self.uv("torch==2.9.0+cu128").returncode == 0
        self.site = site

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "XDG_"))}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "PATH": f"{UV.parent}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_CACHE_DIR": str(self.folder / "cache"), "UV_LINK_MODE": "copy", "UV_PYTHON": sys.executable,
        }  # fmt: skip

    def run(
        self, *argv: str, cwd: Path | None = None, more: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        env = {**self.environ, **(more or {})}
        return subprocess.run(argv, cwd=cwd or self.folder, env=env, capture_output=True, text=True, check=False)

    def pip(self, *wanted: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.venv / "bin/python"), "-m", "pip", "install", *wanted)

    def uv(self, *wanted: str) -> subprocess.CompletedProcess[str]:
        """Without an activated environment."""
        return self.run(str(UV), "pip", "install", "--python", str(self.venv / "bin/python"), *wanted)

    def uv_activated(self, *wanted: str) -> subprocess.CompletedProcess[str]:
        words = f'. "{self.venv}/bin/activate"; unset UV_PYTHON; uv pip install "$@"'
        return self.run("bash", "-c", words, "bash", *wanted)

    def firstlight(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = self.run(sys.executable, "-m", "firstlight", *words, cwd=cwd)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def lock(self, cwd: Path | None = None) -> None:
        """The stack of this environment, locked from its facts: a stand-in torch cannot be proved."""
        facts = self.firstlight("facts", "--python", str(self.venv), "--json", cwd=cwd)
        (self.folder / "facts.json").write_text(facts.stdout)
        done = self.firstlight("lock", "--facts", str(self.folder / "facts.json"), cwd=cwd)
        assert done.returncode == 0, done.stderr

    def hold(self, cwd: Path | None = None) -> str:
        done = self.firstlight("lock", "--hold", "--yes", "--python", str(self.venv), cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def torch(self) -> str:
        [found] = self.site.glob("torch-*.dist-info")
        return found.name.removeprefix("torch-").removesuffix(".dist-info")

    def files(self) -> dict[str, bytes]:
        """Every file but caches, the journal's home and what packages hold."""
        skipped = (self.folder / "home", self.folder / "cache", self.site)
        return {
            str(path): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not any(each in path.parents for each in skipped)
        }


@pytest.mark.parametrize("tool", ["pip", "uv_activated"])
def test_without_the_hold_a_package_replaces_torch_and_with_it_the_tool_refuses(tool: str, tmp_path: Path) -> None:
    free, held = Team(tmp_path / "free"), Team(tmp_path / "held")
    assert getattr(free, tool)("lpips").returncode == 0
    assert free.torch == "2.10.0"
    held.lock()
    held.hold()
    refused = getattr(held, tool)("lpips")
    assert refused.returncode != 0
    assert held.torch == "2.9.0+cu128"
    assert getattr(held, tool)("plain").returncode == 0
    assert held.torch == "2.9.0+cu128"


def test_undo_brings_every_file_back_to_the_byte_and_pip_replaces_torch_again(tmp_path: Path) -> None:
    team = Team(tmp_path)
    (team.venv / "pip.conf").write_text("# ours\n[global]\ntimeout = 60\n\n[install]\nno-warn-script-location = true")
    team.lock()
    before = team.files()
    said = team.hold()
    assert "gets past" in said
    assert "--no-deps" in said
    assert team.files() != before
    assert team.pip("lpips").returncode != 0
    assert "held already" in team.hold()
    done = team.firstlight("undo", "--yes")
    assert done.returncode == 0, done.stderr
    assert team.files() == before
    assert team.pip("lpips").returncode == 0
    assert team.torch == "2.10.0"


def test_what_a_hold_does_not_stop_is_as_the_screen_says(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.lock()
    team.hold()
    assert team.uv("lpips").returncode == 0  # its environment is not activated
    assert team.torch == "2.10.0"


def test_deactivating_takes_the_variables_with_it(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.lock()
    team.hold()
    words = f'. "{team.venv}/bin/activate"; echo "$PIP_CONSTRAINT"; deactivate; echo "[$PIP_CONSTRAINT$UV_CONSTRAINT]"'
    done = team.run("bash", "-c", words)
    assert done.stdout.splitlines() == [str(team.folder / "firstlight-constraints.txt"), "[]"]


def test_a_uv_project_is_constrained_in_its_own_file_and_undo_restores_both_files(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(MANIFEST.replace('"torch"', '"torch==2.9.0+cu128"'))
    team = Team(tmp_path, venv="app/.venv")
    assert team.run(str(UV), "lock", cwd=app).returncode == 0
    (app / "pyproject.toml").write_text(MANIFEST)
    assert team.run(str(UV), "lock", cwd=app).returncode == 0
    team.lock(cwd=app)
    before = {name: (app / name).read_bytes() for name in ("pyproject.toml", "uv.lock")}
    team.hold(cwd=app)
    text = (app / "pyproject.toml").read_text()
    assert '"torch==2.9.0+cu128"' in text.partition("constraint-dependencies")[2]
    assert 'dependencies = ["torch"]  # as it is' in text
    assert team.run(str(UV), "lock", "--check", cwd=app).returncode == 0
    kept = team.firstlight("check", "--locked", "--python", str(team.venv), cwd=app)
    assert (kept.returncode, "no drift" in kept.stdout) == (0, True), kept.stdout
    refused = team.run(str(UV), "add", "--no-sync", "lpips", cwd=app)
    assert refused.returncode != 0
    assert team.firstlight("undo", "--yes", cwd=app).returncode == 0
    assert {name: (app / name).read_bytes() for name in before} == before
    assert team.run(str(UV), "add", "--no-sync", "lpips", cwd=app).returncode == 0


def test_an_answer_is_asked_for_and_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.lock()
    before = team.files()
    shown = team.firstlight("lock", "--hold", "--dry-run", "--python", str(team.venv))
    assert (shown.returncode, team.files()) == (0, before)
    asked = team.firstlight("lock", "--hold", "--python", str(team.venv))
    assert (asked.returncode, team.files()) == (2, before)
    assert "Give --yes" in asked.stderr


def test_the_stack_of_conda_is_pinned_and_told_as_one_document_and_undo_takes_it_back(tmp_path: Path) -> None:
    team = Team(tmp_path)
    records = ("pytorch-2.9.0-py3.12_cuda12.8_0", "cuda-nvcc-12.8.93-0", "cudnn-9.10.0-h1", "zlib-1.3.1-h2")
    meta = team.venv / "conda-meta"
    meta.mkdir()
    (team.venv / "pyvenv.cfg").unlink()  # what tells a venv from an environment of conda
    for record in records:
        (meta / f"{record}.json").write_text("{}")
    (meta / "pinned").write_text("zlib ==1.3.1\n")
    team.lock()
    before = team.files()
    done = team.firstlight("lock", "--hold", "--yes", "--json", "--python", str(team.venv))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    fits(document, json.loads((SCHEMAS / "lock-1.json").read_text()))
    assert document["hold"]["held"] == "done"
    pinned = (meta / "pinned").read_text()
    assert pinned.startswith("zlib ==1.3.1\n")
    assert {line.split()[0] for line in pinned.splitlines() if line[:1] not in ("", "#")} == {
        "zlib", "pytorch", "cuda-nvcc", "cudnn",
    }  # fmt: skip
    again = team.firstlight("lock", "--hold", "--yes", "--json", "--python", str(team.venv))
    assert json.loads(again.stdout)["hold"] == {"held": "nothing to do", "run": 0, "steps": []}
    assert team.firstlight("undo", "--yes").returncode == 0
    assert team.files() == before

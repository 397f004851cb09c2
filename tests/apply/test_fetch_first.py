"""What is installed is fetched before anything is removed; of two copies one comes back. By the real pip and uv."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.fetch_first import fetched_first
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, step
from tests.apply.wheels import make_wheel
from tests.environments import environment_with_pip

UV = str(Path(sys.executable).with_name("uv"))
TOOLS = pytest.mark.parametrize("tool", ["pip", "uv"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of demo, and an environment in which demo 1.0 and demo 2.0 lie over one another."""
    folder = tmp_path_factory.mktemp("model")
    environment_with_pip(folder / "venv")
    for version in ("1.0", "2.0", "3.0"):
        make_wheel(folder / "wheels", "demo", version)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-index"]
    pip += ["--find-links", str(folder / "wheels")]
    subprocess.run([*pip, "demo==1.0"], check=True)
    [info] = (folder / "venv").glob("lib/*/site-packages/demo-1.0.dist-info")
    shutil.copytree(info, folder / "kept")
    subprocess.run([*pip, "demo==2.0"], check=True)
    shutil.copytree(folder / "kept", info)
    return folder


@pytest.fixture
def python(tmp_path: Path, model: Path) -> str:
    """The interpreter of a copy of that environment."""
    shutil.copytree(model, tmp_path, symlinks=True, dirs_exist_ok=True)
    return str(tmp_path / "venv/bin/python")


def _steps(python: str, folder: Path, tool: str, *source: str) -> tuple[Step, ...]:
    """Both copies out, then demo 3.0, as a chain of two ways makes them."""
    pip = (python, "-m", "pip")
    of_uv = (UV, "pip", "uninstall", "--python", python, "demo")
    remove = (*pip, "uninstall", "--yes", "demo") if tool == "pip" else of_uv
    install = (*pip, "install") if tool == "pip" else (UV, "pip", "install", "--python", python)
    kind = StepKind.PIP if tool == "pip" else StepKind.UV
    back = (*install, "--no-deps", "demo==2.0", *source)
    gone = Condition(CheckKind.DISTRIBUTIONS_ABSENT, python, "demo")
    there = Condition(CheckKind.DISTRIBUTIONS, python, "demo==3.0")
    steps = (
        step("01-remove", kind=kind, commands=(remove, remove), done_when=(gone,), undo=(back,)),
        step("02-install", kind=kind, commands=((*install, "demo==3.0", *source),), done_when=(there,)),
    )
    return fetched_first(steps, str(folder))


@TOOLS
def test_where_no_index_has_it_nothing_is_removed(tmp_path: Path, python: str, tool: str) -> None:
    before = installed_distributions(python)
    (tmp_path / "nothing").mkdir()
    steps = _steps(python, tmp_path / "fetched", tool, "--no-index", "--find-links", str(tmp_path / "nothing"))
    with pytest.raises(StepFailed, match="command 1 of 3"):
        act(acting(tmp_path), Asked(steps, "d", "o", "t"))
    assert installed_distributions(python) == before
    assert {"demo==1.0", "demo==2.0"} <= set(before)


@TOOLS
def test_it_is_installed_what_was_fetched_goes_again_and_one_copy_comes_back(
    tmp_path: Path, python: str, tool: str
) -> None:
    before = set(installed_distributions(python))
    steps = _steps(python, tmp_path / "fetched", tool, "--no-index", "--find-links", str(tmp_path / "wheels"))
    [run] = act(acting(tmp_path), Asked(steps, "d", "o", "t"))
    assert run.done
    assert set(installed_distributions(python)) == {*before, "demo==3.0"} - {"demo==1.0", "demo==2.0"}
    assert not (tmp_path / "fetched").exists()
    doing = acting(tmp_path)
    for each in newest_to_undo(doing):
        undo(doing, each)
    assert set(installed_distributions(python)) == before - {"demo==1.0"}, "the copy that the way back named"
    assert newest_to_undo(acting(tmp_path)) == ()


def test_pip_installs_the_file_it_fetched_where_the_index_is_gone_by_then(tmp_path: Path, python: str) -> None:
    served = tmp_path / "served"
    shutil.copytree(tmp_path / "wheels", served)
    first, second = _steps(python, tmp_path / "fetched", "pip", "--no-index", "--find-links", str(served))
    act(acting(tmp_path), Asked((first,), "d", "o", "t"))
    shutil.rmtree(served)
    [run] = act(acting(tmp_path), Asked((second,), "e", "o", "t"))
    assert run.done
    assert "demo==3.0" in installed_distributions(python)

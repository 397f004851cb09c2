"""A package that is compiled here replaces another build of the same number. By the real pip and uv."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import is_done
from firstlight.apply.session import Asked, act
from firstlight.facts.known import Known
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.ways.kinds import InstallWheels, Manner, Package
from firstlight.ways.step import CheckKind, Step
from firstlight.ways.way import Reversible
from firstlight.ways.way_back import comes_back
from tests.apply.acting import acting
from tests.apply.wheels import make_wheel
from tests.diagnosis.rule_case import facts_of
from tests.environments import environment_with_pip
from tests.ways.machines import TABLES, at, made

UV = Path(sys.executable).with_name("uv")
FLASH = InstallWheels((Package("flash-attn", "2.8.3"),), manner=Manner.COMPILED)
BACKEND = """import shutil, os
def build_wheel(folder, *_):
    name = "flash_attn-2.8.3-py3-none-any.whl"
    shutil.copy(name, os.path.join(folder, name))
    return name
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment with flash-attn 2.8.3 from a wheel; its index has the source of the same number."""
    wheel = make_wheel(tmp_path / "built", "flash-attn", "2.8.3", more=("flash_attn/made_here.txt",))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "flash-attn"\nversion = "2.8.3"\n'
    )
    (tmp_path / "src/backend.py").write_text(BACKEND)
    (tmp_path / "src" / wheel.name).write_bytes(wheel.read_bytes())
    (tmp_path / "src/PKG-INFO").write_text("Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n")
    (tmp_path / "index").mkdir()
    with tarfile.open(tmp_path / "index/flash_attn-2.8.3.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "src", "flash_attn-2.8.3")
    other = make_wheel(tmp_path / "index", "flash-attn", "2.8.3")
    environment_with_pip(tmp_path / "venv")
    interpreter = str(tmp_path / "venv/bin/python")
    subprocess.run([interpreter, "-m", "pip", "install", "--quiet", "--no-index", str(other)], check=True)
    monkeypatch.setenv("PATH", f"{UV.parent}:/usr/bin:/bin")
    return interpreter


def _step(kind: EnvironmentKind, python: str, index: Path) -> Step:
    facts = facts_of("flash-attn-cu12")
    environments = tuple(
        replace(each, kind=kind, interpreter=Known(python, "a test")) for each in facts.python.environments
    )
    [step] = made(at(replace(facts, python=replace(facts.python, environments=environments))), FLASH)
    source = ("--no-index", "--find-links", str(index))
    return replace(step, commands=tuple((*argv, *source) for argv in step.commands))


@pytest.mark.parametrize("kind", [EnvironmentKind.VENV, EnvironmentKind.UV_VENV], ids=["pip", "uv"])
def test_the_same_number_in_another_build_is_compiled_once(tmp_path: Path, python: str, kind: EnvironmentKind) -> None:
    step = _step(kind, python, tmp_path / "index")
    assert not is_done((step,)), "the number that is there says nothing of its build"
    [run] = act(acting(tmp_path), Asked((step,), "d", "o", "t"))
    assert run.done
    [found] = (tmp_path / "venv").glob("lib/*/site-packages/flash_attn/made_here.txt")
    assert found.read_text() == "2.8.3"


def test_the_build_of_before_is_not_promised_back() -> None:
    [step] = made(at("flash-attn-cu12"), FLASH)
    assert step.undo == ()
    assert "does not come back" in step.note
    assert comes_back(FLASH, facts_of("flash-attn-cu12"), TABLES) is Reversible.PARTLY
    assert CheckKind.ONCE in [each.kind for each in step.done_when]

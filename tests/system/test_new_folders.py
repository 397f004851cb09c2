"""Undo of packages takes away the folders they brought, and leaves those that were there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.apply.session import Asked, act
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, step, undo_in
from tests.libraries.library_wheels import library_wheel

pytestmark = pytest.mark.system


def _pip(python: str, wheels: Path, *wanted: str) -> Step:
    argv = (python, "-m", "pip", "install", "--no-index", "--no-compile", "--find-links", str(wheels), *wanted)
    return step("01-install", kind=StepKind.PIP, commands=(argv,), done_when=(_holds(python, *wanted),))


def _uv(python: str, wheels: Path, *wanted: str) -> Step:
    uv = str(Path(sys.executable).with_name("uv"))
    argv = (uv, "pip", "install", "--python", python, "--no-index", "--find-links", str(wheels), *wanted)
    return step("01-install", kind=StepKind.UV, commands=(argv,), done_when=(_holds(python, *wanted),))


def _holds(python: str, *wanted: str) -> Condition:
    return Condition(CheckKind.DISTRIBUTIONS, python, "\n".join(wanted))


@pytest.mark.parametrize("install", [_pip, _uv], ids=["pip", "uv"])
def test_folders_that_two_packages_share_go_with_them(tmp_path: Path, install: Callable[..., Step]) -> None:
    """Real wheels of NVIDIA share nvidia/cu13/lib: pip leaves it, whoever goes last."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv/bin/python")
    site = next((tmp_path / "venv/lib").glob("python3*/site-packages"))
    for folder in ("mine/empty/deep", "nvidia/mine", "shared"):
        (site / folder).mkdir(parents=True)
    (site / "shared/file").write_text("mine")
    wheels = tmp_path / "wheels"
    for name in ("one", "two"):
        files = {f"nvidia/cu13/{place}/lib{name}.so": b"" for place in ("lib", "include/deep", "lib/stubs")}
        files[f"shared/{name}/data"] = b""
        library_wheel(wheels, name, "1.0", files=files, tag="py3-none-any")
    before = _folders(site)
    [run] = act(acting(tmp_path), Asked((install(python, wheels, "one==1.0", "two==1.0"),), "d", "o", "t"))
    assert run.done
    assert (site / "nvidia/cu13/lib/libtwo.so").exists()
    undo_in(tmp_path)
    assert _folders(site) == before


def _folders(site: Path) -> set[str]:
    return {str(path.relative_to(site)) for path in site.rglob("*") if path.is_dir() and path.name != "__pycache__"}

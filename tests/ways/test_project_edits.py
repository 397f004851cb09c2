"""Edits of project files: the layout stays, the choice is kept, and a real uv agrees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.ways.diffs import FileText
from firstlight.ways.kinds import InstallWheels, Package
from firstlight.ways.project_edits import Chosen, keep_in_pixi_project, keep_in_uv_project
from firstlight.ways.step import FileChange, StepKind
from tests.diagnosis.rule_case import facts_of
from tests.http_server import served_folder
from tests.plan.planning import patched, write_index, write_wheel
from tests.ways.machines import at, made

CU128 = "https://download.pytorch.org/whl/cu128"
TORCH = Package("torch", "2.9.0+cu128")
CHOSEN = Chosen(("torch==2.9.0+cu128", "torchvision==0.24.0+cu128"), ("torch", "torchvision"), CU128)

PYPROJECT = """\
# our model
[project]
name = "app"   # the name
version = "0.1"
requires-python = ">=3.10"
dependencies = [
    "numpy>=2",       # arrays
    "torch>=2.8",     # the heavy one
]

[project.optional-dependencies]
eval = ["Torch[opt-einsum] >=2.4,<3 ; sys_platform == 'linux'"]

[tool.ruff]
line-length = 100
"""


def _read(text: str) -> dict[str, Any]:
    return tomlkit.parse(text).unwrap()


def _kept(text: str, chosen: Chosen = CHOSEN) -> str:
    return keep_in_uv_project(text, chosen, path="/home/user/app/pyproject.toml")


def test_torch_is_pinned_wherever_it_is_named_and_nothing_else_moves() -> None:
    after = _kept(PYPROJECT)
    assert '    "numpy>=2",       # arrays\n    "torch==2.9.0",     # the heavy one\n' in after
    assert "eval = [\"Torch[opt-einsum]==2.9.0 ; sys_platform == 'linux'\"]" in after
    assert after.startswith('# our model\n[project]\nname = "app"   # the name\n')
    assert "[tool.ruff]\nline-length = 100\n" in after


def test_the_index_is_explicit_and_only_what_comes_from_it_is_tied_to_it() -> None:
    uv = _read(_kept(PYPROJECT))["tool"]["uv"]
    assert uv["index"] == [{"name": "pytorch-cu128", "url": CU128, "explicit": True}]
    assert uv["sources"] == {"torch": {"index": "pytorch-cu128"}, "torchvision": {"index": "pytorch-cu128"}}
    assert "torchvision==0.24.0" in _read(_kept(PYPROJECT))["project"]["dependencies"]


def test_editing_twice_changes_nothing_more() -> None:
    once = _kept(PYPROJECT)
    assert _kept(once) == once


def test_an_index_of_the_same_address_is_used_under_its_own_name() -> None:
    text = f'{PYPROJECT}\n[[tool.uv.index]]\nname = "pt"\nurl = "{CU128}/"\n'
    uv = _read(_kept(text))["tool"]["uv"]
    assert uv["index"] == [{"name": "pt", "url": f"{CU128}/", "explicit": True}]
    assert uv["sources"]["torch"] == {"index": "pt"}


def test_another_cuda_in_the_sources_is_replaced_and_what_is_for_a_mac_stays() -> None:
    text = f"""{PYPROJECT}
[tool.uv.sources]
torch = [
  {{ index = "pytorch-cpu", marker = "sys_platform == 'darwin'" }},
  {{ index = "pytorch-cu130", marker = "sys_platform == 'linux'" }},
]
other = {{ path = "../other" }}

[[tool.uv.index]]
name = "pytorch-cu130"
url = "https://download.pytorch.org/whl/cu130"
explicit = true
"""
    uv = _read(_kept(text))["tool"]["uv"]
    assert uv["sources"]["torch"] == [
        {"index": "pytorch-cpu", "marker": "sys_platform == 'darwin'"},
        {"index": "pytorch-cu128", "marker": "sys_platform == 'linux'"},
    ]
    assert uv["sources"]["other"] == {"path": "../other"}
    assert [entry["name"] for entry in uv["index"]] == ["pytorch-cu130", "pytorch-cu128"]


def test_pypis_own_wheel_needs_no_index() -> None:
    after = _kept(PYPROJECT, Chosen(("torch==2.9.0",), (), ""))
    assert "torch==2.9.0" in after
    assert "tool.uv" not in after


def test_windows_line_ends_and_a_missing_last_newline_survive() -> None:
    after = _kept(PYPROJECT.replace("\n", "\r\n"))
    assert "\r\n" in after
    assert "\n" not in after.replace("\r\n", "")
    assert _kept(PYPROJECT.rstrip("\n")).endswith("\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("[project\n", "is not TOML"), ("[tool.uv]\n", "has no [project] table")],
)
def test_a_file_that_cannot_be_edited_is_refused_with_its_path(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=r"pyproject\.toml") as caught:
        _kept(text)
    assert said in str(caught.value)


def test_the_diff_applied_by_patch_gives_the_planned_text(tmp_path: Path) -> None:
    change = FileChange("/home/user/app/pyproject.toml", PYPROJECT, _kept(PYPROJECT))
    assert patched(change, tmp_path) == change.after


PIXI = """\
[workspace]
name = "app"
channels = ["conda-forge"]   # only this
platforms = ["linux-64"]

[dependencies]
python = "3.12.*"
pytorch-gpu = "*"   # conda's torch

[pypi-dependencies]
einops = "*"
"""


def test_a_pixi_project_gets_the_wheel_tied_to_its_index_and_loses_condas_torch() -> None:
    after = keep_in_pixi_project(PIXI, CHOSEN, path="/home/user/app/pixi.toml")
    read = _read(after)
    assert read["pypi-dependencies"]["torch"] == {"version": "==2.9.0+cu128", "index": CU128}
    assert read["pypi-dependencies"]["einops"] == "*"
    assert read["dependencies"] == {"python": "3.12.*"}
    assert "# only this\n" in after
    assert keep_in_pixi_project(after, CHOSEN, path="/home/user/app/pixi.toml") == after


def test_a_pixi_table_inside_pyproject_is_edited_in_place() -> None:
    text = '[project]\nname = "app"\n\n[tool.pixi.dependencies]\npython = "3.12.*"\n'
    read = _read(keep_in_pixi_project(text, CHOSEN, path="/home/user/app/pyproject.toml"))
    assert read["tool"]["pixi"]["pypi-dependencies"]["torchvision"]["index"] == CU128
    assert read["project"] == {"name": "app"}


def test_the_wheel_option_edits_the_project_that_would_undo_it() -> None:
    path = "/home/user/sleap-nn/pyproject.toml"
    [step] = made(at("uv-lock-would-undo", FileText(path, PYPROJECT)), InstallWheels((TORCH,), CU128))
    assert step.kind is StepKind.PROJECT
    assert step.files[0].path == path
    assert step.commands[-2:] == (
        ("uv", "lock", "--project", "/home/user/sleap-nn"),
        ("uv", "sync", "--project", "/home/user/sleap-nn"),
    )
    assert step.undo[-1] == ("uv", "sync", "--frozen", "--project", "/home/user/sleap-nn")
    [unread] = made(at("uv-lock-would-undo"), InstallWheels((TORCH,), CU128))
    assert unread.commands[-1][-2:] == ("--index", f"pytorch-cu128={CU128}")


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real uv: that of the environment, of PATH, or one that pip fetches."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found:
        return found
    folder = tmp_path_factory.mktemp("uv")
    got = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "uv"],
        check=False,
        capture_output=True,
        timeout=120,
    )
    if got.returncode != 0:
        pytest.skip("no uv here, and pip could not fetch one")
    return str(folder / "bin" / "uv")


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[str]:
    """Two indexes on this machine: /pypi with torch 2.8.0 and 2.9.0, /cu128 with 2.9.0+cu128."""
    made = tmp_path / "made"
    small = write_wheel(made, "numpy", "2.1.0")
    write_index(
        tmp_path / "www/pypi", (small, write_wheel(made, "torch", "2.8.0"), write_wheel(made, "torch", "2.9.0"))
    )
    write_index(tmp_path / "www/cu128", (write_wheel(made, "torch", "2.9.0+cu128", requires=("numpy",)),))
    with served_folder(tmp_path / "www") as address:
        yield address


def test_a_real_uv_locks_what_the_edit_says_and_uv_run_keeps_it(uv: str, indexes: str, tmp_path: Path) -> None:
    """The planned file and commands, carried out by uv: locked, synced, still there after `uv run`, and taken back."""
    folder = tmp_path / "app"
    folder.mkdir()
    file = folder / "pyproject.toml"
    before = '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.10"\ndependencies = ["torch<2.9"]\n'
    file.write_text(before)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "PIP_", "VIRTUAL_ENV"))}
    env |= {"UV_DEFAULT_INDEX": f"{indexes}/pypi", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "1"}
    env |= {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never", "PATH": f"{Path(uv).parent}:{env['PATH']}"}

    def run(*argv: str) -> str:
        done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout.strip()

    installed = (uv, "run", "--quiet", "python", "-c", "import importlib.metadata as m; print(m.version('torch'))")
    assert run(*installed) == "2.8.0"
    old_lock = (folder / "uv.lock").read_text()
    way = InstallWheels((TORCH,), f"{indexes}/cu128")
    [step] = made(at(_in_project(folder), FileText(str(file), before)), way)
    file.write_text(step.files[0].after)
    for argv in step.commands:
        run(*argv)
    assert 'version = "2.9.0+cu128"' in (folder / "uv.lock").read_text()
    assert run(*installed) == "2.9.0+cu128"
    run(uv, "lock", "--check", "--offline")
    file.write_text(step.files[0].before)
    for argv in step.undo:
        run(*argv)
    assert (folder / "uv.lock").read_text() == old_lock
    assert run(*installed) == "2.8.0"


def _in_project(folder: Path) -> Facts:
    facts = facts_of("uv-lock-would-undo")
    chosen = replace(
        facts.python.environments[0],
        prefix=f"{folder}/.venv",
        interpreter=Known(f"{folder}/.venv/bin/python3", "test"),
    )
    files = tuple(replace(each, path=f"{folder}/{each.path.rpartition('/')[2]}") for each in facts.python.project_files)
    python = replace(facts.python, environments=(chosen,), project_files=files)
    return replace(facts, python=python)

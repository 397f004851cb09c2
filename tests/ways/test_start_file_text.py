"""The start file as a plan writes it: optional, whole with any folder name, and quiet on a machine without a driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.versions import CudaVersion
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import WireCompat
from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import Wiring
from tests.ways.machines import at, made

COMPAT = "/usr/local/cuda-13.0/compat"
WIRE = WireCompat(COMPAT, CudaVersion(13, 0), (535, 570))


def test_a_compat_plan_ends_with_an_optional_start_file_that_comes_after_its_module() -> None:
    step = made(at("h100-driver-570-compat-unused", extras=Extras(state="/root/state")), WIRE)[-1]
    assert step.id.endswith("wire-compat-in-python")
    assert step.optional
    module, line = step.files
    assert Path(module.path).name == f"{MODULE}.py"
    assert (Path(line.path).name, line.after) == (LINE_FILE, START_LINE)
    assert Path(module.path).parent == Path(line.path).parent
    assert f"FOLDER = '{COMPAT}'" in module.after
    assert "HERE = '/root/state/compat'" in module.after


def test_it_is_not_planned_where_nobody_looked_at_the_files_of_the_machine() -> None:
    steps = made(at("h100-driver-570-compat-unused"), WIRE)
    assert not any(step.id.endswith("wire-compat-in-python") for step in steps)


@pytest.mark.parametrize("folder", ['/opt/it\'s "here"', "/opt/back\\slash", "/opt/{braces} %s", "/opt/größe"])
def test_any_folder_name_gives_a_module_that_runs_and_says_nothing(tmp_path: Path, folder: str) -> None:
    text = start_module(Wiring(folder, "13.0", (570,), sys.executable, f"{folder}/state"))
    (tmp_path / f"{MODULE}.py").write_text(text, encoding="utf-8")
    code = f"import {MODULE} as m; print(ascii(m.FOLDER)); print(ascii(m.HERE))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == f"{folder!a}\n{folder + '/state'!a}\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python -m pip install x", True),
        ("python -Im pip.__main__", True),
        ("python -mvenv folder", True),
        ("python -X dev -W ignore -u /opt/venv/bin/pip3.12 install", True),
        ("python /usr/lib/python3/dist-packages/pip/__pip-runner__.py", True),
        ("python --check-hash-based-pycs never -m ensurepip", True),
        ("python", False),
        ("python -", False),
        ("python -c pip", False),
        ("python -m torch.distributed.run pip", False),
        ("python train.py -m pip", False),
        ("python pipeline.py", False),
        ("python -X", False),
    ],
)
def test_only_pip_uv_and_venv_are_tools(words: str, expected: bool) -> None:  # noqa: FBT001 a table of cases
    names: dict[str, object] = {"__name__": "a test"}
    text = start_module(Wiring("/nowhere", "13.0", (570,), sys.executable, "/nowhere"))
    exec(compile(text, MODULE, "exec"), names)
    is_tool = names["is_tool"]
    assert callable(is_tool)
    assert is_tool(words.split()) is expected

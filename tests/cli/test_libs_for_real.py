"""A real torch, its libtorch_python.so changed to ask for libcudss.so.0, as the wheel of field report 002 did."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.apply.commanding import Person, make_environment
from tests.libraries.add_needed import add_needed
from tests.libraries.library_wheels import cuda_wheels

_NEEDS = (
    "torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec",
    "typing_extensions",
)  # fmt: skip


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """An environment whose torch is this one, file by file a link; one library is a changed copy."""
    if importlib.util.find_spec("torch") is None or shutil.which("gcc") is None:
        pytest.skip("torch or gcc is not installed")
    someone = Person(tmp_path, make_environment(tmp_path / "venv"))
    site = next((someone.venv / "lib").glob("python3*/site-packages"))
    for name in _NEEDS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            _link_tree(Path(spec.origin), site)
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    for record in Path(found.origin).parents[1].glob("torch-*.dist-info"):
        shutil.copytree(record, site / record.name)
    changed = site / "torch/lib/libtorch_python.so"
    real = changed.resolve()
    changed.unlink()
    shutil.copyfile(real, changed)
    add_needed(changed, "libcudss.so.0")
    return someone


def _link_tree(origin: Path, site: Path) -> None:
    """A package as folders of links; a module as one link."""
    if origin.name != "__init__.py":
        (site / origin.name).symlink_to(origin)
        return
    source = origin.parent
    for folder, _, names in os.walk(source):
        made = site / source.name / Path(folder).relative_to(source)
        made.mkdir(parents=True, exist_ok=True)
        for name in names:
            (made / name).symlink_to(Path(folder) / name)


def _imports(person: Person) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [person.python, "-c", "import torch; print(float(torch.ones(3).sum()))"],
        capture_output=True, text=True, check=False, cwd=person.folder,
    )  # fmt: skip


def _fixed(person: Person, *words: str) -> Any:
    done = person.run("libs", "--fix", "--yes", "--json", "--python", person.python, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["fix"]


def test_a_torch_that_asks_for_cudss_is_fixed_from_a_folder_of_wheels_and_taken_back(person: Person) -> None:
    assert "libcudss.so.0: cannot open shared object file" in _imports(person).stderr
    cuda_wheels(person.wheels, person.folder / "built")  # 0.8.0.10 with libcudss.so.0, 1.0.0.35 with libcudss.so.1
    fix = _fixed(person, "--find-links", str(person.wheels))
    assert [(each["what"], each["ok"]) for each in fix["proofs"]] == [("import torch", True)]
    assert "nvidia-cudss-cu13 0.8.0.10" in fix["steps"][0]["title"]
    assert _imports(person).stdout == "3.0\n"
    for _ in fix["runs"]:
        assert person.run("undo", "--yes").returncode == 0
    assert "libcudss.so.0: cannot open shared object file" in _imports(person).stderr


@pytest.mark.network
def test_the_same_torch_is_fixed_from_the_index(person: Person) -> None:
    """Fetches 0.57 GB: nvidia-cudss-cu13 0.8.0.10 and the cuBLAS that it needs."""
    fix = _fixed(person)
    assert [(each["what"], each["ok"]) for each in fix["proofs"]] == [("import torch", True)]
    assert "nvidia-cudss-cu13 0.8.0.10" in fix["steps"][0]["title"]
    assert _imports(person).stdout == "3.0\n"
    for _ in fix["runs"]:
        assert person.run("undo", "--yes").returncode == 0
    assert "libcudss.so.0: cannot open shared object file" in _imports(person).stderr

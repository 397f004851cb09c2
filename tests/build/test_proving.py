"""What is imported to prove a build: compiled modules inside of packages too, torch's libraries first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from firstlight.build import proving
from firstlight.build.proving import compiled_inside, missing_code

MODULE = """
#include <Python.h>
extern "C" int of_another();
static struct PyModuleDef about = {PyModuleDef_HEAD_INIT, "_C", 0, -1, 0};
PyMODINIT_FUNC PyInit__C(void) { return %s ? PyModule_Create(&about) : nullptr; }
"""
CHILD = Path(proving.__file__).parent / "children/prove.py"


def library(path: Path, source: str, *words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "c.cpp").write_text(source)
    include = sysconfig.get_paths()["include"]
    argv = ["g++", "-shared", "-fPIC", f"-I{include}", "-o", str(path), str(path.parent / "c.cpp"), *words]
    subprocess.run(argv, check=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose __init__ imports nothing, and two compiled modules in it: one whole, one that lacks a library."""
    site = tmp_path_factory.mktemp("site")
    library(site / "pkg/_C.abi3.so", MODULE % "1")
    library(site / "broken/_C.abi3.so", MODULE % "of_another()")
    library(site / "no_module.so", "int plain;")
    library(site / "driver/libcuda.so.1", 'extern "C" int of_another() { return 1; }', "-Wl,-soname,libcuda.so.1")
    library(site / "gpu/_C.abi3.so", MODULE % "of_another()", f"{site}/driver/libcuda.so.1")
    for each in ("pkg", "broken", "gpu"):
        (site / each / "__init__.py").touch()
    (site / "first.py").write_text("import sys; sys.first = True")
    (site / "after.py").write_text("import sys; sys.first")
    return site


def asked(site: Path, **question: Any) -> dict[str, Any]:
    whole = {"project": "x", "modules": [], "inside": [], "before": [], **question}
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, str(CHILD), json.dumps(whole)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])[0]
    return answer


def test_compiled_modules_inside_of_packages_are_found_in_a_wheel(site: Path) -> None:
    wheel = site / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("pkg/_C.abi3.so", "no_module.so"):
            file.write(site / name, name)
        file.write(site / "no_module.so", "pkg/no_module.so")
        file.write(site / "pkg/_C.abi3.so", "x-1.data/purelib/pkg/_C.abi3.so")
    assert compiled_inside(str(wheel)) == ["pkg._C"]


def test_a_compiled_module_that_its_package_does_not_import_is_imported(site: Path) -> None:
    whole = asked(site, modules=["pkg"], inside=["pkg._C"])
    assert (whole["holds"], whole["saw"]) == (True, "pkg, pkg._C")
    broken = asked(site, modules=["broken"], inside=["broken._C"])
    assert (broken["holds"], "undefined symbol: of_another" in broken["saw"]) == (False, True)


def test_what_leans_on_another_package_is_imported_after_it(site: Path) -> None:
    assert not asked(site, modules=["after"])["holds"]
    assert asked(site, before=["first"], modules=["after"])["saw"] == "after"


def test_a_module_that_wants_the_driver_is_left_where_there_is_none(site: Path) -> None:
    found = asked(site, modules=["gpu"], inside=["gpu._C"])
    assert (found["holds"], found["saw"]) == (True, "gpu, gpu._C not: libcuda.so.1 comes with the driver")


def test_code_with_a_suffix_does_for_the_architecture_asked_for_and_not_the_other_way_round() -> None:
    assert missing_code(("sm_90", "sm_100"), {"sm_90a", "sm_100f", "sm_80"}) == []
    assert missing_code(("sm_90a", "sm_90"), {"sm_90"}) == ["sm_90a"]

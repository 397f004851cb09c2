"""What kind of project a source tree is: its name and version, its build backend, how many units it may have."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any

from firstlight.build.backend import Backend
from firstlight.build.python_reads import parsed
from firstlight.build.runtime_needs import stated_requirements
from firstlight.build.unit_count import Units, units_and_bytes
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular

_MOST = 4 << 20


@dataclass(frozen=True, slots=True)
class Project:
    """One source tree, e.g. lightgbm 4.7.0, scikit-build-core."""

    root: str
    name: str
    version: str  # "" = made while it is built
    backend: Backend
    requires: tuple[str, ...]  # of [build-system]
    targets: tuple[str, ...]  # that the project itself builds, e.g. _lightgbm
    units: Units
    tree_bytes: int
    cmake_minimum: str  # "" = no CMake
    uses_ninja: bool = True  # of a torch extension: its setup.py may turn it off
    runtime: tuple[str, ...] = ()  # what its wheel requires when it runs, where the tree states it


def read_project(root: str) -> Project:
    """The project in a folder; BadInput where there is none."""
    pyproject = os.path.join(root, "pyproject.toml")
    setup = os.path.join(root, "setup.py")
    if not os.path.isdir(root):
        raise BadInput(f"{root!a}: no such folder. Accepted is a folder with a pyproject.toml or a setup.py.")
    if not os.path.isfile(pyproject) and not os.path.isfile(setup):
        raise BadInput(
            f"{root!a}: no project: accepted is a folder with a pyproject.toml or a setup.py. Name that folder."
        )
    document = _toml(pyproject) if os.path.isfile(pyproject) else {}
    script = read_text(setup) if os.path.isfile(setup) else ""
    system = document.get("build-system", {})
    name, version = _name_and_version(root, document, script)
    tree = parsed(script)
    units, size = units_and_bytes(root, (tree,) if tree is not None else ())
    skbuild = document.get("tool", {}).get("scikit-build", {})
    targets = skbuild.get("build", {}).get("targets", []) if isinstance(skbuild.get("build", {}), dict) else []
    top = os.path.join(root, "CMakeLists.txt")
    return Project(
        root=root,
        name=name,
        version=version,
        backend=_backend(str(system.get("build-backend", "")), script, root),
        requires=tuple(str(each) for each in system.get("requires", ("setuptools", "wheel"))),
        targets=tuple(str(each) for each in targets),
        units=units,
        tree_bytes=size,
        cmake_minimum=_cmake_minimum(read_text(top)) if os.path.isfile(top) else "",
        uses_ninja=re.search(r"use_ninja\s*=\s*False", script) is None,
        runtime=stated_requirements(root, document, script),
    )


def read_text(path: str) -> str:
    """A file as text; BadInput where it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}).") from error


def _backend(named: str, script: str, root: str) -> Backend:
    if named.startswith("scikit_build_core"):
        return Backend.SKBUILD
    if os.path.isfile(os.path.join(root, "caffe2/CMakeLists.txt")) and "cmake_only" in script.lower():
        return Backend.PYTORCH
    if "cpp_extension" in script or "BuildExtension" in script:
        return Backend.TORCH_EXTENSION
    if not named or named.startswith("setuptools"):
        return Backend.SETUPTOOLS
    return Backend.OTHER


def _toml(path: str) -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: dict[str, Any] = toml.loads(read_text(path))
    except ValueError as error:
        raise BadInput(f"{path}: not TOML ({error}). Correct the file.") from error
    return document


def _name_and_version(root: str, document: dict[str, Any], script: str) -> tuple[str, str]:
    project = document.get("project", {})
    name, version = str(project.get("name", "")), str(project.get("version", ""))
    info = os.path.join(root, "PKG-INFO")
    if os.path.isfile(info):
        text = read_text(info)
        name = name or _first(r"(?m)^Name: (\S+)", text)
        version = version or _first(r"(?m)^Version: (\S+)", text)
    if os.path.isfile(os.path.join(root, "version.txt")) and not version:
        version = (
            read_text(os.path.join(root, "version.txt")).strip().removesuffix("a0")
        )  # so does PyTorch's at its tags
    if os.path.isfile(os.path.join(root, "caffe2/CMakeLists.txt")) and not name:
        name = "torch"
    name = name or _first(r"""\bname\s*=\s*["']([\w.-]+)["']""", script)
    version = version or _first(r"""(?m)^__version__\s*=\s*["']([\w.+-]+)["']""", script)
    return name or os.path.basename(os.path.abspath(root)), version


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _cmake_minimum(text: str) -> str:
    return _first(r"(?i)cmake_minimum_required\s*\(\s*VERSION\s+(\d+(?:\.\d+)+)", text)

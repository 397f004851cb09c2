"""What kind of project a source tree is: its name and version, its build backend, how many units it may have."""

from __future__ import annotations

import ast
import configparser
import os
import re
from typing import Any

from firstlight.build.backend import Backend
from firstlight.build.python_reads import parsed, setup_words
from firstlight.build.runtime_needs import stated_requirements
from firstlight.build.unit_count import Units, units_and_bytes
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular
from firstlight.toml import parse_toml

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
    own_compilers: bool = False  # its setup.py starts them itself, without an extension that setuptools knows
    name_stated: bool = True  # else it is the folder's, until setup.py is asked


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
    tree = parsed(script)
    name, version = _name_and_version(root, document, script, tree)
    units, size = units_and_bytes(root, (tree,) if tree is not None else ())
    skbuild = document.get("tool", {}).get("scikit-build", {})
    targets = skbuild.get("build", {}).get("targets", []) if isinstance(skbuild.get("build", {}), dict) else []
    top = os.path.join(root, "CMakeLists.txt")
    return Project(
        root=root,
        name=name or os.path.basename(os.path.abspath(root)),
        version=version,
        backend=_backend(str(system.get("build-backend", "")), script, root),
        requires=tuple(str(each) for each in system.get("requires", ("setuptools", "wheel"))),
        targets=tuple(str(each) for each in targets),
        units=units,
        tree_bytes=size,
        cmake_minimum=_cmake_minimum(read_text(top)) if os.path.isfile(top) else "",
        uses_ninja=re.search(r"use_ninja\s*=\s*False", script) is None,
        runtime=stated_requirements(root, document, script),
        own_compilers="subprocess" in script and "Extension(" not in script,
        name_stated=name != "",
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
    try:
        document: dict[str, Any] = parse_toml(read_text(path))
    except ValueError as error:
        raise BadInput(f"{path}: not TOML ({error}). Correct the file.") from error
    return document


def _name_and_version(root: str, document: dict[str, Any], script: str, tree: ast.Module | None) -> tuple[str, str]:
    """As pyproject.toml states them, else PKG-INFO, setup.cfg, the call of setup(), PyTorch's version.txt."""
    project, poetry = document.get("project", {}), document.get("tool", {}).get("poetry", {})
    info, config = (_if_there(os.path.join(root, each)) for each in ("PKG-INFO", "setup.cfg"))
    called = setup_words(tree) if tree is not None else {}
    pytorch = os.path.isfile(os.path.join(root, "caffe2/CMakeLists.txt"))
    names = (
        str(project.get("name", "")), str(poetry.get("name", "")), _first(r"(?m)^Name: (\S+)", info),
        _of_config(config, "name"), called.get("name", ""), "torch" if pytorch else "",
        "" if tree is not None else _first(r"""\bname\s*=\s*["']([\w.-]+)["']""", script),
    )  # fmt: skip
    versions = (
        str(project.get("version", "")), str(poetry.get("version", "")), _first(r"(?m)^Version: (\S+)", info),
        _of_config(config, "version"), called.get("version", ""),
        _if_there(os.path.join(root, "version.txt")).strip().removesuffix("a0"),  # so does PyTorch's at its tags
        _first(r"""(?m)^__version__\s*=\s*["']([\w.+-]+)["']""", script),
    )  # fmt: skip
    return next(filter(None, names), ""), next(filter(None, versions), "")


def _if_there(path: str) -> str:
    return read_text(path) if os.path.isfile(path) else ""


def _of_config(text: str, key: str) -> str:
    """A word of [metadata] in setup.cfg; "" where it is taken from elsewhere (attr:, file:)."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(text)
    except configparser.Error:
        return ""
    found = config.get("metadata", key, fallback="").strip()
    return "" if found.startswith(("attr:", "file:")) else found


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _cmake_minimum(text: str) -> str:
    return _first(r"(?i)cmake_minimum_required\s*\(\s*VERSION\s+(\d+(?:\.\d+)+)", text)

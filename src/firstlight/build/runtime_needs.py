"""What a wheel requires when it runs: as its tree or its metadata states it, held against what is installed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement

from firstlight.frozen import dataclass
from firstlight.opening import open_regular
from firstlight.ways.names import normal

if TYPE_CHECKING:
    from firstlight.build.tools import InstalledProject

_MOST = 4 << 20
_KEY = "requires-dist"


@dataclass(frozen=True, slots=True)
class RuntimeGaps:
    """Requirements that are not met: not there at all, or there in a version that does not fit."""

    missing: tuple[str, ...]  # narwhals>=1.15
    unfit: tuple[str, ...]  # numpy>=2.0 (1.26.4 is installed)
    wanted: tuple[str, ...]  # of the unfit ones, as pip takes them: numpy>=2.0


def stated_requirements(root: str, document: dict[str, Any], script: str) -> tuple[str, ...]:
    """The requirements that a tree states; () also where only its build can tell.

    pyproject.toml is asked first, then the PKG-INFO of an sdist, then a list in the call of setup(); nothing is run.
    """
    project = document.get("project", {})
    if "dependencies" in project and "dependencies" not in project.get("dynamic", ()):
        return tuple(str(each) for each in project["dependencies"])
    info = os.path.join(root, "PKG-INFO")
    if os.path.isfile(info) and (found := requirements_of_metadata(_text(info))):
        return found
    return _of_script(script)


def requirements_of_metadata(text: str) -> tuple[str, ...]:
    """Requires-Dist of PKG-INFO or METADATA."""
    found = []
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        if key.lower() == _KEY:
            found.append(value.strip())
    return tuple(found)


def _of_script(script: str) -> tuple[str, ...]:
    """install_requires of setup(), where it is a list of words, by itself or under a name."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError):
        return ()
    lists = {
        target.id: node.value
        for node in ast.walk(tree) if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            value = lists.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            if isinstance(value, (ast.List, ast.Tuple)):
                words = [each.value for each in value.elts if isinstance(each, ast.Constant)]
                return tuple(str(each) for each in words)
    return ()


def applying(requirements: Iterable[str], python: str) -> Iterator[Requirement]:
    """Those that count for a Python, without extras: 3.12 drops what is marked python_version < '3.11'."""
    here = {"extra": "", **({"python_version": ".".join(python.split(".")[:2])} if python else {})}
    if python.count(".") > 1:
        here["python_full_version"] = python
    for text in requirements:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is None or wanted.marker.evaluate(here):
            yield wanted


def gaps_in(
    requirements: Iterable[str], installed: tuple[InstalledProject, ...], *, python: str, by_program: tuple[str, ...]
) -> RuntimeGaps:
    """What is not met; a program of the machine (cmake, ninja) does instead of the project of its name."""
    there = {each.name: each.version for each in installed}
    missing, unfit, asked = [], [], []
    for wanted in applying(requirements, python):
        version = there.get(normal(wanted.name), "")
        words = f"{wanted.name}{wanted.specifier}"
        if not version:
            missing += [words] if normal(wanted.name) not in by_program else []
        elif not wanted.specifier.contains(version, prereleases=True):
            unfit.append(f"{words} ({version} is installed)")
            asked.append(words)
    return RuntimeGaps(tuple(missing), tuple(unfit), tuple(asked))


def _text(path: str) -> str:
    with open_regular(path) as file:
        return file.read(_MOST).decode("utf-8", "replace")

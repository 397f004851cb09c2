"""The readers of lint, one for each kind of file, and the requirements files that a command of theirs names."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.lint.compose import read_compose
from firstlight.lint.installs import LOCK, PIP_PART, installs_of
from firstlight.lint.model import Install, Syntax, Target
from firstlight.lint.read_conda import read_conda
from firstlight.lint.read_devcontainer import read_devcontainer
from firstlight.lint.read_kubernetes import read_kubernetes
from firstlight.lint.read_pixi import read_pixi
from firstlight.lint.read_pyproject import read_pyproject
from firstlight.lint.read_requirements import Listing, add_file, read_requirements
from firstlight.lint.read_slurm import read_slurm
from firstlight.lint.read_uv_lock import read_uv_lock
from firstlight.lint.read_workflow import read_workflow
from firstlight.lint.reading import Reading
from firstlight.lint.run_options import pairs
from firstlight.lint.stages import read_dockerfile


def _read_dockerfile(reading: Reading) -> tuple[Target, ...]:
    given = (*reading.of_platform, *reading.variables)
    return (read_dockerfile(reading.text, reading.file, target=reading.target, given=given),)


READERS: dict[Syntax, Callable[[Reading], tuple[Target, ...]]] = {
    Syntax.DOCKERFILE: _read_dockerfile,
    Syntax.COMPOSE: read_compose,
    Syntax.KUBERNETES: read_kubernetes,
    Syntax.DEVCONTAINER: read_devcontainer,
    Syntax.WORKFLOW: read_workflow,
    Syntax.SHELL: read_slurm,
    Syntax.REQUIREMENTS: read_requirements,
    Syntax.PYPROJECT: read_pyproject,
    Syntax.LOCK: read_uv_lock,
    Syntax.CONDA: read_conda,
    Syntax.PIXI: read_pixi,
}


def read_targets(reading: Reading) -> tuple[Target, ...]:
    """What a file comes to: one image of a Dockerfile, one for each service or job, one for each list of packages."""
    if reading.target and reading.syntax is not Syntax.DOCKERFILE:
        raise BadInput(
            f"--target {reading.target[:40]!a}: {reading.file} is read as a {reading.syntax.value}, which has no "
            "stages. Leave --target out."
        )
    return tuple(_with_lists(target, reading) for target in READERS[reading.syntax](reading))


def _with_lists(target: Target, reading: Reading) -> Target:
    """The target with the requirements files that its commands name, looked for beside the file and above it."""
    found: dict[str, Install] = {}
    for install in installs_of(target):
        folder = posixpath.dirname(install.ran.place.file)
        for name in install.files:
            inside = (name, posixpath.basename(name))[name.startswith("/") :]  # /tmp/x.txt was copied there
            inside = (LOCK, "pyproject.toml") if name == LOCK else inside
            places = [posixpath.normpath(posixpath.join(folder, up, each)) for each in inside for up in _above(folder)]
            read = ((place, text) for place in places if (text := reading.read(place)) is not None)
            path, text = next(read, ("", ""))
            if path:
                with contextlib.suppress(BadInput):  # then it counts as not found, and that is said
                    found.update(_lists(name, replace(reading, file=path, text=text), install))
    others = tuple(_with_lists(other, reading) for other in target.copied_from)
    return replace(target, lists=tuple(found.items()), copied_from=others)


def _above(folder: str) -> tuple[str, ...]:
    """The folders in which a file is looked for; of a workflow, the root of the repository too."""
    return ("../..", "", "..") if folder.endswith(".github/workflows") else ("", "..")


_MANIFESTS = {LOCK: Syntax.LOCK, "pyproject.toml": Syntax.PYPROJECT, "pixi.toml": Syntax.PIXI}


def _lists(name: str, reading: Reading, install: Install) -> Iterator[tuple[str, Install]]:
    """What a file that a command names comes to, under that name; of environment.yml the part of pip beside it."""
    base = posixpath.basename(reading.file)
    if syntax := _MANIFESTS.get(base):
        targets = READERS[syntax](replace(reading, syntax=syntax))
        groups = {value for option, value in pairs(install.ran.words) if option in ("--extra", "--group")}
        chosen = next((each for each in targets if each.name in groups), next(iter(targets), None))
        if chosen is not None:
            parts = (each for each in chosen.events if isinstance(each, Install))
            yield from (
                (f"{name}{PIP_PART}" if base == "pixi.toml" and each.tool != "conda" else name, each) for each in parts
            )
    elif install.tool == "conda":
        (environment,) = read_conda(replace(reading, syntax=Syntax.CONDA))
        for each in environment.events:
            if isinstance(each, Install):
                yield name if each.tool == "conda" else f"{name}{PIP_PART}", each
    else:
        listing = Listing()
        add_file(listing, reading)
        yield name, listing.install(reading)

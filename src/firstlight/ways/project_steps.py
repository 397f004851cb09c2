"""Wheels through a uv or pixi project: its own files are edited, locked and synced, so that `uv run` keeps them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.frozen import dataclass
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, moved_back, removed_file
from firstlight.ways.building import (
    COPY,
    NETWORK,
    blank,
    copy_beside,
    environment_to_change,
    holds,
    interpreter_of,
    slug,
    succeeds,
    written,
)
from firstlight.ways.kinds import InstallWheels, KeepInProject, Package
from firstlight.ways.project_edits import Chosen, keep_in_pixi_project, keep_in_uv_project
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.way_back import is_from_index
from firstlight.ways.words import listed, package_words

_GROUP = "cuda-build"
_COMPILERS = ("cuda-toolkit", "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12")


@dataclass(frozen=True, slots=True)
class Project:
    """A uv or pixi project around the environment, e.g. /home/user/app with uv.lock."""

    folder: str
    tool: str  # uv, pixi
    file: str  # what is edited
    lock: str
    locked: bool  # the lock file is there


def project_of(facts: Facts, environment: PythonEnvironment) -> Project | None:
    """The project whose tool fills this environment and would change it back; None where there is none."""
    paths = tuple(file.path for file in facts.python.project_files)
    for file in facts.python.project_files:
        folder, name = posixpath.split(file.path)
        if not environment.prefix.startswith(f"{folder}/"):
            continue
        if environment.kind is EnvironmentKind.PIXI:
            lock = f"{folder}/pixi.lock"
            edited = file.path if name == "pyproject.toml" else f"{folder}/pixi.toml"
            return Project(folder, "pixi", edited, lock, lock in paths)
        if name in ("uv.lock", "pyproject.toml"):
            lock = f"{folder}/uv.lock"
            return Project(folder, "uv", f"{folder}/pyproject.toml", lock, lock in paths)
    return None


def chosen_by(packages: tuple[Package, ...], index: str) -> Chosen:
    """Packages for a project to keep, told apart by where they come from: one with +cu128 is the index's."""
    pinned = tuple(each for each in packages if each.version)
    from_index = tuple(each.project for each in pinned if index and is_from_index(each))
    return Chosen(tuple(each.requirement for each in pinned), from_index, index)


def keep_steps(way: KeepInProject, at: At) -> Iterator[Step]:
    """What is installed, named in the project; nothing where no project fills the environment."""
    environment = environment_to_change(at.facts)
    project = None if environment is None else project_of(at.facts, environment)
    if project is not None:
        yield _kept(way, project, at)


def through_project(way: InstallWheels, project: Project, at: At) -> Step:
    """The packages as the project's own; a compiler for builds as a group of it, which no program that runs needs."""
    if project.tool == "uv" and any(each.project in _COMPILERS for each in way.packages):
        return _in_group(way, project, at)
    if open_ended := [
        each.project for each in way.packages if not each.version and not each.bounds and is_from_index(each)
    ]:
        raise BadInput(
            f"{' and '.join(open_ended)}: no version is given, and the {project.tool} project {project.folder} keeps "
            f"exact ones. Name the build: --want {open_ended[0]}==VERSION, of a nightly torch 2.16.0.devYYYYMMDD."
        )
    return _kept(KeepInProject(way.packages, way.index), project, at)


def _kept(way: KeepInProject, project: Project, at: At) -> Step:
    chosen, before = chosen_by(way.packages, way.index), at.extras.text_of(project.file)
    pinned = all(each.version for each in way.packages)
    environment = environment_to_change(at.facts)
    step = replace(
        blank(at),
        id=slug(f"keep in {project.tool} project"),
        kind=StepKind.PROJECT,
        title=listed(f"let the {project.tool} project keep", tuple(map(package_words, way.packages))),
        seconds=NETWORK,
        bytes=NETWORK,
        note=f"Installed beside {project.folder}, the next `{project.tool} run` would put the locked packages back.",
    )
    if before is None or not pinned:
        return _by_command(step, project, chosen, tuple(each.requirement for each in way.packages), at)
    edit = keep_in_uv_project if project.tool == "uv" else keep_in_pixi_project
    change = FileChange(project.file, before, edit(before, chosen, path=project.file))
    python = "" if environment is None else interpreter_of(environment)
    return replace(
        step,
        files=(change,),
        commands=(*_save(project, at), *_settle(project)),
        done_when=(written(change), holds(python, chosen.requirements)),
        back=_restore(project, at),
    )


def _save(project: Project, at: At) -> tuple[Argv, ...]:
    return ((*COPY, project.lock, copy_beside(project.lock, at)),) if project.locked else ()


def _settle(project: Project) -> tuple[Argv, ...]:
    if project.tool == "pixi":
        return (("pixi", "install", "--manifest-path", project.file),)
    return (("uv", "lock", "--project", project.folder), ("uv", "sync", "--project", project.folder))


def _restore(project: Project, at: At) -> tuple[Back, ...]:
    if not project.locked:
        return (removed_file(project.lock),)
    lock = moved_back(copy_beside(project.lock, at), project.lock)
    if project.tool == "pixi":
        return (lock, Back(BackKind.SYNC_PIXI, (project.file,)))
    return (lock, Back(BackKind.SYNC_UV, (project.folder,)))


def _by_command(step: Step, project: Project, chosen: Chosen, requirements: tuple[str, ...], at: At) -> Step:
    """The same through the tool's own command, where the file's text or a version is not known: no diff is shown."""
    public = tuple(each.partition("+")[0] for each in requirements)
    if project.tool == "uv":
        source = ("--index", f"{chosen.index_name}={chosen.index}") if chosen.index else ()
        add: Argv = ("uv", "add", "--project", project.folder, *public, *source)
    else:
        add = ("pixi", "add", "--manifest-path", project.file, "--pypi", *public)
    environment = environment_to_change(at.facts)  # its file may name that number already, and of another index
    there = () if environment is None else (holds(interpreter_of(environment), requirements),)
    return replace(
        step,
        commands=((*COPY, project.file, copy_beside(project.file, at)), *_save(project, at), add),
        done_when=(succeeds("grep", "--quiet", "--fixed-strings", public[0], project.file), *there),
        back=(moved_back(copy_beside(project.file, at), project.file), *_restore(project, at)),
        note=f"The tool's own command edits {project.file}: no diff can be shown."
        + (" Make the index explicit afterwards: explicit = true." if chosen.index else ""),
    )


def _in_group(way: InstallWheels, project: Project, at: At) -> Step:
    """As a group of the project: `uv sync` would take wheels away that its lock does not have."""
    folder, files = project.folder, (project.file, *((project.lock,) if project.locked else ()))
    again = Back(BackKind.SYNC_UV, (folder,)) if project.locked else removed_file(project.lock)
    return replace(
        blank(at),
        id="add-toolkit-to-project",
        kind=StepKind.PROJECT,
        title=listed("add to the uv project", tuple(map(package_words, way.packages))),
        commands=(
            *((*COPY, each, copy_beside(each, at)) for each in files),
            ("uv", "add", "--project", folder, "--group", _GROUP, *(each.requirement for each in way.packages)),
        ),
        done_when=(succeeds("grep", "--quiet", _GROUP, files[0]),),
        back=(*(moved_back(copy_beside(each, at), each) for each in files), again),
        seconds=NETWORK,
        bytes=NETWORK,
        note="uv keeps a group only where it is asked for: uv sync --group cuda-build, uv run --group cuda-build.",
    )

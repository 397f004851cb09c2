"""Wheels as steps: into the judged environment, a new one, or through the project that would undo it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.ways.at import At
from firstlight.ways.back import Argv, removed_folder, shown
from firstlight.ways.building import (
    NETWORK,
    blank,
    environment_to_change,
    exists,
    expanded,
    holds,
    installed_versions,
    interpreter_of,
    new_environment_of,
    python_of,
    slug,
    started_with,
    succeeds,
)
from firstlight.ways.kinds import InstallWheels, MakeEnvironment, Manner, Package, RemoveDistributions
from firstlight.ways.project_steps import project_of, through_project
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from firstlight.ways.user_site import folder_of_copy, put_back, taken_out, user_site_of
from firstlight.ways.way_back import (
    built_anew,
    copies,
    index_of,
    is_compiled,
    is_from_index,
    replaced_of_condas,
    what_is_lost,
)
from firstlight.ways.words import title_of

_WITH_TORCH = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_WITH_IT = "The NVIDIA libraries that torch pins come with it; `firstlight undo` takes those back too."
_WITH_UV = "uv fetches that Python where it is not here."
_WITH_VENV = "Debian and Ubuntu: python3-venv has to be installed; `uv venv --seed` makes the same."
_ONCE = "By hand, run it once: a second run takes out the {names} that lies behind. `firstlight apply` looks first."
_HERE = "--no-build-isolation"  # pip and uv hide the torch that is installed from a build otherwise

# Their setup.py takes a wheel of its release page, made for another build of torch maybe, unless it is told to build.
_BUILT_BY = {
    "flash-attn": "FLASH_ATTENTION_FORCE_BUILD",
    "causal-conv1d": "CAUSAL_CONV1D_FORCE_BUILD",
    "mamba-ssm": "MAMBA_FORCE_BUILD",
}


def wheel_steps(way: InstallWheels, at: At) -> Iterator[Step]:
    """Everything that puts the packages in place and keeps them there; nothing where they are there already."""
    environment = environment_to_change(at.facts)
    project = None if environment is None else project_of(at.facts, environment)
    have = installed_versions(environment)
    twice = {name for name, _ in copies(environment)}
    there = all(have.get(each.project) == each.version and each.project not in twice for each in way.packages)
    if way.manner is Manner.PLAIN and project is None and there:
        return
    if project is not None and way.manner in (Manner.PLAIN, Manner.EARLY):
        yield through_project(way, project, at)
        return
    if environment is None:
        yield environment_step(MakeEnvironment(), at)
    yield _install(way, at)


def environment_step(way: MakeEnvironment, at: At) -> Step:
    """A virtual environment of our own, where the judged one is not to be changed."""
    judged, folder = at.facts.environment, expanded(way.folder, at) or new_environment_of(at)
    own = judged is None or judged.kind is EnvironmentKind.TOOL
    python = "python3" if judged is None or own else interpreter_of(judged)
    why = "no Python environment was found" if judged is None else f"{judged.prefix} {_why_not(judged, way)}"
    return replace(
        blank(at),
        id="make-environment",
        kind=StepKind.VENV,
        title=title_of(replace(way, folder=folder), at.platform),
        commands=(("uv", "venv", "--seed", "--python", way.python, folder),)
        if way.python
        else ((python, "-m", "venv", folder),),
        done_when=(exists(f"{folder}/bin/python"), succeeds(f"{folder}/bin/python", "-m", "pip", "--version")),
        back=(removed_folder(folder),),
        note=f"Because {why}. {_WITH_UV if way.python else _WITH_VENV}",
    )


def _why_not(environment: PythonEnvironment, way: MakeEnvironment) -> str:
    if way.python:
        return "has another Python"
    if way.no_room:
        return "is on a disk without room for it"
    if environment.externally_managed:
        return "is managed by the distribution (PEP 668)"
    if environment.kind is EnvironmentKind.TOOL:
        return "belongs to one program"
    return "does not exist" if environment.kind is EnvironmentKind.MISSING else "is not to be changed"


def removal_steps(way: RemoveDistributions, at: At) -> Iterator[Step]:
    """The packages out of the environment, those of one folder at a time: pip takes the copy that it sees first."""
    environment = at.facts.environment
    folders: dict[str, tuple[str, ...]] = {}
    for name in way.projects:
        folder = way.folder or folder_of_copy(environment, name)
        folders[folder] = (*folders.get(folder, ()), name)
    for folder, names in folders.items():
        yield _removal(replace(way, projects=names, folder=folder), at, have=_versions_in(environment, folder))


def _versions_in(environment: PythonEnvironment | None, folder: str) -> dict[str, str]:
    """Project -> version of what lies in a folder, "" for all that the environment sees."""
    if environment is None or not folder:
        return installed_versions(environment)
    return installed_versions(
        replace(environment, distributions=tuple(each for each in environment.distributions if each.folder == folder))
    )


def _removal(way: RemoveDistributions, at: At, *, have: dict[str, str]) -> Step:
    """A run of the tool for each copy: it takes one at a time."""
    environment, names = at.facts.environment, way.projects
    python = python_of(at) if environment is None else expanded(interpreter_of(environment), at)
    uses_uv, tool = _tool(at, python)
    argv, note = _uninstall(tool, *names), what_is_lost(at.facts, at.tables, names, have=have)
    if way.folder and environment is not None:
        if way.folder == user_site_of(environment):
            uses_uv, argv = False, taken_out(python, way.folder, names, environment=environment)
            tool = put_back(argv)
        note = " ".join(filter(None, (note, _ONCE.format(names=", ".join(names)))))
    back = _installs_back(at, tool, tuple(name for name in names if name in have), have)
    exact = way.folder != "" and way.copies == 1
    gone = tuple(f"{name}=={have[name]}" if exact and name in have else name for name in names)
    return replace(
        blank(at),
        id=slug(f"remove {names[0]}"),
        kind=StepKind.UV if uses_uv else StepKind.PIP,
        title=title_of(way, at.platform),
        commands=(argv,) * way.copies,
        done_when=(Condition(CheckKind.DISTRIBUTIONS_ABSENT, python, "\n".join(gone), folder=way.folder),),
        back=shown(*back),
        note=note,
    )


def _tool(at: At, python: str) -> tuple[bool, Argv]:
    """uv for the environments it makes, which have no pip; else pip of the environment itself."""
    environment = environment_to_change(at.facts)
    uses_uv = environment is not None and environment.kind is EnvironmentKind.UV_VENV
    return uses_uv, ("uv", "pip", "install", "--python", python) if uses_uv else (python, "-m", "pip", "install")


def _install(way: InstallWheels, at: At) -> Step:
    environment, python = environment_to_change(at.facts), python_of(at)
    uses_uv, tool = _tool(at, python)
    before = installed_versions(environment)
    names = _changed(way.packages, before)
    first = way.packages[0]
    return replace(
        blank(at),
        id=slug(f"install {first.project} {first.version}"),
        kind=StepKind.UV if uses_uv else StepKind.PIP,
        title=title_of(way, at.platform),
        commands=(
            *_copies_taken_out(environment, tool, way.packages),
            *_removed_first(way, tool, before),
            *_in_scratch(way.scratch, tuple(_installs(way, at, tool, before))),
        ),
        done_when=(holds(python, tuple(_known_by(each, way) for each in way.packages)), *_only_once(way, environment)),
        back=shown(*_back(way, at, tool, before)),
        seconds=NETWORK,
        bytes=NETWORK,
        note=" ".join(filter(None, _notes(way, at, names))),
    )


def _in_scratch(folder: str, commands: tuple[Argv, ...]) -> tuple[Argv, ...]:
    """The commands with what they fetch and keep in a folder that goes again."""
    if not folder:
        return commands
    cache = "UV_CACHE_DIR" if commands[0][0] == "uv" else "PIP_CACHE_DIR"
    set_to = tuple(f"{name}={folder}" for name in ("TMPDIR", cache))
    return (("mkdir", "-p", folder), *(("env", *set_to, *argv) for argv in commands), ("rm", "-rf", folder))


def _notes(way: InstallWheels, at: At, names: tuple[str, ...]) -> Iterator[str]:
    yield _WITH_IT if "torch" in names else ""
    if theirs := replaced_of_condas(at.facts, way):
        brought = f"conda brought {' and '.join(theirs)}"
        yield f"{brought}: its records keep naming that, and its next update may put it back."
    yield what_is_lost(at.facts, at.tables, names)
    environment = environment_to_change(at.facts)
    for project in built_anew(way, installed_versions(environment)):
        yield f"The build of {project} that is installed now does not come back: undo leaves the new one."


def _only_once(way: InstallWheels, environment: PythonEnvironment | None) -> tuple[Condition, ...]:
    """A number that is installed already says nothing about a file that is gone, or about another build."""
    again = way.manner is Manner.AGAIN or built_anew(way, installed_versions(environment))
    return (
        (Condition(CheckKind.ONCE, "its version number stays the same"),) if again and environment is not None else ()
    )


def _known_by(package: Package, way: InstallWheels) -> str:
    """What tells that a package is there: its version, else the form of the channel's, torch==*.dev*+cu132.

    Candidates of the test channel carry the number of their release, so that only the build tells theirs.
    """
    if package.version:
        return f"{package.project}=={package.version}"
    if package.bounds or not (way.index and is_from_index(package)):
        return f"{package.project}{package.bounds}".replace(" ", "")
    build = f"*+{way.index.rstrip('/').rpartition('/')[2]}" if package.project == "torch" else ""
    early = f"*.dev{build or '*'}" if "/nightly/" in way.index else build
    return f"{package.project}=={early}" if early else package.project


def _uninstall(tool: Argv, *names: str) -> Argv:
    if tool[0] == "uv":
        return ("uv", "pip", "uninstall", *tool[3:], *names)
    return (*tool[:3], "uninstall", "--yes", *names)


def _copies_taken_out(
    environment: PythonEnvironment | None, tool: Argv, packages: tuple[Package, ...]
) -> Iterator[Argv]:
    """Each copy of a package that is there more than once: pip takes one at a time, and an install replaces one."""
    names = {each.project for each in packages}
    for name, count in copies(environment):
        if name in names:
            yield from (_uninstall(tool, name) for _ in range(count))


def _removed_first(way: InstallWheels, tool: Argv, before: dict[str, str]) -> Iterator[Argv]:
    """Another build of the number that PyPI has: pip takes 2.9.0+cu130 for 2.9.0 and does nothing."""
    plain = [each for each in way.packages if each.version and not (way.index and is_from_index(each))]
    other = [each.project for each in plain if before.get(each.project, "").startswith(f"{each.version}+")]
    if other:
        yield _uninstall(tool, *other)


def _installs(way: InstallWheels, at: At, tool: Argv, before: dict[str, str]) -> Iterator[Argv]:
    """One command for what comes from the index, one for the rest, which names the first again so that it stays."""
    there = tuple(each for each in way.packages if way.index and is_from_index(each))
    rest = tuple(each for each in way.packages if each not in there)
    uv = tool[0] == "uv"
    again = (("--reinstall",) if uv else ("--force-reinstall",)) if way.manner is Manner.AGAIN else ()
    alone = (*again, "--no-deps") if again else ()
    compiled = tuple(each for each in rest if is_compiled(each, way))
    plain = tuple(each for each in rest if each not in compiled)
    pinned = tuple(each.requirement for each in there)
    if there:
        early: Argv = ()
        if way.manner is Manner.EARLY or not all(each.version for each in there):  # a channel without releases
            early = ("--upgrade", "--prerelease", "allow") if uv else ("--upgrade", "--pre")
        yield (*tool, *alone, *early, *pinned, "--index-url", way.index)
    if plain:
        # What another index than torch's has is asked of that one: it is in the way because the rule knows it.
        index = ("--index-url", way.index) if way.index and not there else ()
        yield (*tool, *alone, *(each.requirement for each in plain), *(() if alone else pinned), *index)
    by_force = compiled if way.manner is Manner.COMPILED else ()
    for argv in _builds(compiled, tool, before, pinned=pinned):
        forced = (
            f"{_BUILT_BY[each.project]}=TRUE"
            for each in by_force
            if each.project in before and each.project in _BUILT_BY and each.requirement in argv
        )
        yield (*started_with(at, *forced), *argv)


def _builds(compiled: tuple[Package, ...], tool: Argv, before: dict[str, str], *, pinned: Argv) -> Iterator[Argv]:
    """Built here: never the wheel that a cache keeps of another torch; what is there alone, as nothing else changes."""
    uv = tool[0] == "uv"
    anew: Argv = (_HERE, "--no-cache" if uv else "--no-cache-dir")
    there = tuple(each for each in compiled if each.project in before)
    new = tuple(each.requirement for each in compiled if each not in there)
    if new:
        yield (*tool, *anew, *new, *pinned)
    if there:
        sources = tuple(word for each in there for word in ("--no-binary", each.project))
        again = "--reinstall" if uv else "--force-reinstall"
        yield (*tool, again, "--no-deps", *anew, *sources, *(each.requirement for each in there))


def _back(way: InstallWheels, at: At, tool: Argv, before: dict[str, str]) -> Iterator[Argv]:
    """What was there before; what was not goes, and so does what takes the place of a build that no index has."""
    # pip takes 2.9.0+cu128 for 2.9.0 and does nothing, so that the build goes before PyPI's comes back.
    gone = [each.project for each in way.packages if each.version.startswith(f"{before.get(each.project)}+")]
    anew = built_anew(way, before)
    names = tuple(each for each in _changed(way.packages, before) if each not in anew)
    lost = [name for name in names if name not in before or isinstance(_index_of(at, name, before), Unknown)]
    if gone or lost:
        yield _uninstall(tool, *dict.fromkeys((*gone, *lost)))
    yield from _installs_back(at, tool, tuple(name for name in names if name not in lost), before)


def _installs_back(at: At, tool: Argv, names: tuple[str, ...], before: dict[str, str]) -> Iterator[Argv]:
    """The versions of before, without dependencies, which might want other versions."""
    by_index: dict[str, list[str]] = {}
    for name in names:
        source = _index_of(at, name, before)
        if isinstance(source, Known):
            by_index.setdefault(source.value, []).append(f"{name}=={before[name]}")
    for index, packages in by_index.items():
        alone = () if "--no-deps" in tool else ("--no-deps",)
        yield (*tool, *alone, *packages, *(("--index-url", index) if index else ()))


def _index_of(at: At, name: str, before: dict[str, str]) -> Known[str] | Unknown:
    return index_of(at.facts, at.tables, name, before[name])


def _changed(packages: tuple[Package, ...], before: dict[str, str]) -> tuple[str, ...]:
    """The packages that an install changes: those it names, and with torch what torch pins."""
    names = [each.project for each in packages]
    if "torch" in names:
        names += [name for name in before if name.startswith(_WITH_TORCH) and name not in (*names, "nvidia-ml-py")]
    return tuple(names)

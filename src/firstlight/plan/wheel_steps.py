"""Wheels as steps: into the judged environment, a new one, or through the project that would undo it otherwise."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.errors import BadInput
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.frozen import dataclass
from firstlight.plan.back import Back, BackKind, moved_back, removed_file, removed_folder, shown
from firstlight.plan.building import (
    Argv,
    blank,
    environment_to_change,
    exists,
    holds,
    installed_versions,
    interpreter_of,
    is_requirement,
    minutes_as_seconds,
    slug,
    split_requirement,
    succeeds,
    written,
)
from firstlight.plan.extras import Extras
from firstlight.plan.option import Option
from firstlight.plan.project_edits import Chosen, keep_in_pixi_project, keep_in_uv_project
from firstlight.plan.sets import ON_TORCH_INDEX
from firstlight.plan.step import FileChange, Step, StepKind
from firstlight.plan.way_back import copies, index_of, what_is_lost

_SAVED = ".before-firstlight"
_WITH_TORCH = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_WITH_IT = "The NVIDIA libraries that torch pins come with it; `firstlight undo` takes those back too."
_COMPILED = ("flash-attn",)  # built against the torch that is installed, which pip hides from a build otherwise


@dataclass(frozen=True, slots=True)
class Project:
    """A uv or pixi project around the environment, e.g. /home/user/app with uv.lock."""

    folder: str
    tool: str  # uv, pixi
    file: str  # what is edited
    lock: str
    locked: bool  # the lock file is there


def wheel_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Everything that puts the option's packages in place and keeps them there."""
    wanted = tuple(piece for piece in option.brings if is_requirement(piece))
    if not wanted:
        return
    environment = environment_to_change(question)
    project = None if environment is None else project_of(question, environment)
    have = installed_versions(environment)
    if project is None and all(have.get(name) == version for name, version in map(split_requirement, wanted)):
        return  # a compat library for what is installed: the packages are there
    if project is not None and environment is not None:
        yield _through_project(question, option, extras, project=project)
        return
    if environment is None:
        made = f"{extras.home_for(question.facts)}/firstlight-venv"
        yield new_environment(question, option, made)
        yield _install(question, option, interpreter=f"{made}/bin/python", wanted=wanted)
        return
    yield _install(question, option, interpreter=interpreter_of(environment), wanted=wanted)


def project_of(question: Question, environment: PythonEnvironment) -> Project | None:
    """The project whose tool fills this environment and would change it back; None where there is none."""
    paths = tuple(file.path for file in question.facts.python.project_files)
    for file in question.facts.python.project_files:
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


def chosen_by(option: Option) -> Chosen:
    """The option's packages, told apart by where they come from: a local part such as +cu128 is the index's."""
    wanted = tuple(piece for piece in option.brings if is_requirement(piece) and split_requirement(piece)[1])
    from_index = tuple(split_requirement(piece)[0] for piece in wanted if option.index and _is_from_index(piece))
    return Chosen(wanted, from_index, option.index)


def _is_from_index(requirement: str) -> bool:
    project, version = split_requirement(requirement)
    return "+" in version or project in ("torch", *ON_TORCH_INDEX)


def new_environment(question: Question, option: Option, folder: str) -> Step:
    """A virtual environment of our own, where the judged one is not to be changed."""
    judged = question.facts.environment
    python = "python3" if judged is None else interpreter_of(judged)
    if judged is not None and judged.kind is EnvironmentKind.TOOL:
        python = "python3"
    why = "no Python environment was found"
    if judged is not None:
        why = f"{judged.prefix} {_why_not(judged)}"
    return replace(
        blank(option),
        id="make-environment",
        kind=StepKind.VENV,
        title=f"make a virtual environment in {folder}",
        commands=((python, "-m", "venv", folder),),
        done_when=(exists(f"{folder}/bin/python"), succeeds(f"{folder}/bin/python", "-m", "pip", "--version")),
        back=(removed_folder(folder),),
        note=f"Because {why}. Debian and Ubuntu: python3-venv has to be installed; `uv venv --seed` makes the same.",
    )


def _why_not(environment: PythonEnvironment) -> str:
    if environment.externally_managed:
        return "is managed by the distribution (PEP 668)"
    if environment.kind is EnvironmentKind.TOOL:
        return "belongs to one program"
    return "does not exist" if environment.kind is EnvironmentKind.MISSING else "is not writable for this user"


def _install(question: Question, option: Option, *, interpreter: str, wanted: tuple[str, ...]) -> Step:
    environment = environment_to_change(question)
    uses_uv = environment is not None and environment.kind is EnvironmentKind.UV_VENV
    tool: Argv = ("uv", "pip", "install", "--python", interpreter) if uses_uv else (interpreter, "-m", "pip", "install")
    before = installed_versions(environment)
    return replace(
        blank(option),
        id=slug(f"install {split_requirement(wanted[0])[0]} {split_requirement(wanted[0])[1]}"),
        kind=StepKind.UV if uses_uv else StepKind.PIP,
        title=f"install {', '.join(wanted)} into {posixpath.dirname(posixpath.dirname(interpreter))}",
        commands=(
            *_copies_taken_out(environment, tool, wanted=wanted),
            *_removed_first(option, tool, wanted=wanted, before=before),
            *_installs(option, tool, wanted=wanted, uses_uv=uses_uv),
        ),
        done_when=(holds(interpreter, tuple(_known_by(each, option.index) for each in wanted)),),
        back=shown(*_back(question, tool, wanted=wanted, before=before)),
        seconds=minutes_as_seconds(option),
        bytes=option.cost.download_bytes,
        note=" ".join(filter(None, (_WITH_IT, what_is_lost(question, _changed(wanted, before))))),
    )


def _known_by(requirement: str, index: str) -> str:
    """What tells that a requirement is met: its version, else the form of the channel's, torch==*.dev*+cu132.

    Candidates of the test channel carry the number of their release, so that only the build tells theirs.
    """
    project, version = split_requirement(requirement)
    if version or not (index and _is_from_index(requirement)) or project == "triton":
        return requirement
    build = f"*+{index.rstrip('/').rpartition('/')[2]}" if project == "torch" else ""
    early = f"*.dev{build or '*'}" if "/nightly/" in index else build
    return f"{project}=={early}" if early else project


def _removed_first(option: Option, tool: Argv, *, wanted: tuple[str, ...], before: dict[str, str]) -> Iterator[Argv]:
    """Other builds of the same number go first, where PyPI's own is wanted."""
    plain = tuple(each for each in wanted if not (option.index and _is_from_index(each)))
    if names := _same_number_other_build(plain, before):
        yield _uninstall(tool, *names)


def _uninstall(tool: Argv, *names: str) -> Argv:
    if tool[0] == "uv":
        return ("uv", "pip", "uninstall", *tool[3:], *names)
    return (*tool[:3], "uninstall", "--yes", *names)


def _copies_taken_out(environment: PythonEnvironment | None, tool: Argv, *, wanted: tuple[str, ...]) -> Iterator[Argv]:
    """Each copy of a package that is there more than once: pip takes one at a time, and an install replaces one."""
    names = {split_requirement(each)[0] for each in wanted}
    for name, count in copies(environment):
        if name in names:
            yield from (_uninstall(tool, name) for _ in range(count))


def copies_replaced(question: Question, option: Option) -> bool:
    """Whether the option's packages take the place of every copy of one that is installed more than once."""
    environment = environment_to_change(question)
    names = {split_requirement(piece)[0] for piece in option.brings if is_requirement(piece)}
    return any(name in names for name, _ in copies(environment))


def _installs(option: Option, tool: Argv, *, wanted: tuple[str, ...], uses_uv: bool) -> Iterator[Argv]:
    """One command for what comes from the index, one for the rest, which names the first again so that it stays."""
    there = tuple(each for each in wanted if option.index and _is_from_index(each))
    rest = tuple(each for each in wanted if each not in there)
    compiled = tuple(each for each in rest if split_requirement(each)[0] in _COMPILED)
    plain = tuple(each for each in rest if each not in compiled)
    if there:
        early: Argv = ()
        if not all(split_requirement(each)[1] for each in there):  # the newest of a channel that has no releases
            early = ("--upgrade", "--prerelease", "allow") if uses_uv else ("--upgrade", "--pre")
        yield (*tool, *early, *there, "--index-url", option.index)
    if plain:
        yield (*tool, *plain, *there)
    if compiled:
        yield (*tool, "--no-build-isolation", *compiled, *there)


def _same_number_other_build(wanted: tuple[str, ...], before: dict[str, str]) -> tuple[str, ...]:
    """Projects of which PyPI's 2.9.0 is wanted where 2.9.0+cu130 is: pip takes one for the other and does nothing."""
    pins = dict(split_requirement(each) for each in wanted)
    return tuple(
        name
        for name, version in pins.items()
        if "+" in before.get(name, "") and before[name].partition("+")[0] == version
    )


def _back(question: Question, tool: Argv, *, wanted: tuple[str, ...], before: dict[str, str]) -> Iterator[Argv]:
    """What was there before, version by version and without dependencies, which might want other versions.

    What was not there goes, and so does what takes the place of a build that no index has. NVIDIA's libraries and
    triton change with torch and come back with it.
    """
    after = dict(split_requirement(each) for each in wanted)
    by_index: dict[str, list[str]] = {}
    # pip takes 2.9.0+cu128 for 2.9.0 and does nothing, so that the build goes before PyPI's comes back.
    gone = [name for name, version in after.items() if version.startswith(f"{before.get(name)}+")]
    for name in _changed(wanted, before):
        source = index_of(question, name, before[name]) if name in before else Unknown("it was not there")
        if isinstance(source, Known):
            by_index.setdefault(source.value, []).append(f"{name}=={before[name]}")
        else:
            gone.append(name)
    if gone:
        yield _uninstall(tool, *dict.fromkeys(gone))
    for index, packages in by_index.items():
        yield (*tool, "--no-deps", *packages, *(("--index-url", index) if index else ()))


def _changed(wanted: tuple[str, ...], before: dict[str, str]) -> tuple[str, ...]:
    """The packages that an install changes: those it names, and with torch what torch pins."""
    names = [split_requirement(each)[0] for each in wanted]
    if "torch" in names:
        names += [name for name in before if name.startswith(_WITH_TORCH) and name not in (*names, "nvidia-ml-py")]
    return tuple(names)


def _through_project(question: Question, option: Option, extras: Extras, *, project: Project) -> Step:
    """The project's own files edited, locked and synced: `uv run` and `pixi run` keep the choice."""
    chosen = chosen_by(option)
    if open_ended := [piece for piece in option.brings if is_requirement(piece) and not split_requirement(piece)[1]]:
        raise BadInput(
            f"{' and '.join(open_ended)}: no version is given, and the {project.tool} project {project.folder} keeps "
            f"exact ones. Name the build: --want {open_ended[0]}==VERSION, of a nightly torch 2.16.0.devYYYYMMDD."
        )
    before = extras.text_of(project.file)
    if before is None:
        return _by_command(option, project, chosen)
    edit = keep_in_uv_project if project.tool == "uv" else keep_in_pixi_project
    change = FileChange(project.file, before, edit(before, chosen, path=project.file))
    environment = question.facts.environment
    python = "" if environment is None else interpreter_of(environment)
    return replace(
        _project_step(option, project, chosen),
        files=(change,),
        commands=(*_save(project), *_settle(project)),
        done_when=(written(change), holds(python, chosen.requirements)),
        back=_restore(project),
    )


def _project_step(option: Option, project: Project, chosen: Chosen) -> Step:
    return replace(
        blank(option),
        id=slug(f"keep in {project.tool} project"),
        kind=StepKind.PROJECT,
        title=f"let the {project.tool} project {project.folder} keep {', '.join(chosen.requirements)}",
        seconds=minutes_as_seconds(option),
        bytes=option.cost.download_bytes,
        note=f"Installed beside the project, the next `{project.tool} run` would put the locked packages back.",
    )


def _save(project: Project) -> tuple[Argv, ...]:
    return (("cp", "--no-clobber", project.lock, f"{project.lock}{_SAVED}"),) if project.locked else ()


def _settle(project: Project) -> tuple[Argv, ...]:
    if project.tool == "pixi":
        return (("pixi", "install", "--manifest-path", project.file),)
    return (("uv", "lock", "--project", project.folder), ("uv", "sync", "--project", project.folder))


def _restore(project: Project) -> tuple[Back, ...]:
    if not project.locked:
        return (removed_file(project.lock),)
    lock = moved_back(f"{project.lock}{_SAVED}", project.lock)
    if project.tool == "pixi":
        return (lock, Back(BackKind.SYNC_PIXI, (project.file,)))
    return (lock, Back(BackKind.SYNC_UV, (project.folder,)))


def _by_command(option: Option, project: Project, chosen: Chosen) -> Step:
    """The same through the tool's own command, where the file's text was not read: no diff can be shown then."""
    public = tuple(
        f"{name}=={version.partition('+')[0]}" for name, version in map(split_requirement, chosen.requirements)
    )
    save = ("cp", "--no-clobber", project.file, f"{project.file}{_SAVED}")
    back = moved_back(f"{project.file}{_SAVED}", project.file)
    if project.tool == "uv":
        source = ("--index", f"{chosen.index_name}={chosen.index}") if chosen.index else ()
        add: Argv = ("uv", "add", "--project", project.folder, *public, *source)
    else:
        add = ("pixi", "add", "--manifest-path", project.file, "--pypi", *public)
    return replace(
        _project_step(option, project, chosen),
        commands=(save, *_save(project), add),
        done_when=(succeeds("grep", "--quiet", public[0], project.file),),
        back=(back, *_restore(project)),
        note=f"The text of {project.file} was not read, so the tool's own command edits it: no diff can be shown. "
        "Make the index explicit afterwards: explicit = true.",
    )

"""Package managers held to exact versions, as steps: pip and uv of one environment, a uv project, conda."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.python_environments import EnvironmentKind
from firstlight.ways.at import At
from firstlight.ways.back import moved_back, removed_file
from firstlight.ways.building import COPY, NETWORK, a_person, blank, copy_beside, environment_to_change, written
from firstlight.ways.kinds import ConstrainEnvironment, ConstrainProject, Package, PinConda
from firstlight.ways.project_edits import constrain_uv_project
from firstlight.ways.project_steps import Project, project_of
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.words import title_of

VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
PINNED = "conda-meta/pinned"
_HEAD = "# Written by firstlight: pip and uv of the environment are held to these. `firstlight undo` takes it back.\n"
_MARK = "# held by firstlight"
_SECTION = re.compile(r"^\[install\][ \t]*$", re.M)
_CONSTRAINT = re.compile(r"^(constraint[ \t]*[=:][ \t]*)(.*)$", re.M)
_DEACTIVATE = re.compile(r"^deactivate *\(\) *\{[ \t]*$", re.M)
_CONDA = (EnvironmentKind.CONDA, EnvironmentKind.PIXI)
_ACTIVATED = "uv reads the variable of the shell: activate the environment, or export it where uv is started."


def held_files(facts_prefix: str) -> tuple[str, ...]:
    """The files of an environment that a hold edits: a plan has to know their texts."""
    return tuple(f"{facts_prefix}/{name}" for name in ("pip.conf", "bin/activate", PINNED, *_of_conda()))


def _of_conda() -> tuple[str, str]:
    return "etc/conda/activate.d/firstlight-hold.sh", "etc/conda/deactivate.d/firstlight-hold.sh"


def environment_steps(way: ConstrainEnvironment, at: At) -> Iterator[Step]:
    """The constraints, then the files by which pip and uv of the environment learn of them."""
    text = _HEAD + "".join(f"{each.requirement}\n" for each in way.packages)
    yield _file_step("write-constraints", FileChange(way.file, at.extras.text_of(way.file) or "", text), way, at)
    environment = environment_to_change(at.facts)
    if environment is None:
        yield _by_hand(way, at)
        return
    conf = f"{environment.prefix}/pip.conf"
    before = at.extras.text_of(conf) or ""
    change = FileChange(conf, before, with_constraint(before, way.file))
    yield _file_step("hold-pip", change, way, at, title="have pip of the environment read the constraints")
    for change in _start_files(environment.prefix, environment.kind, way.file, at):
        step = _file_step("hold-uv", change, way, at, title="set the constraints where the environment is activated")
        yield replace(step, id=f"hold-uv-{'off' if '/deactivate.d/' in change.path else 'on'}", note=_ACTIVATED)


def _start_files(prefix: str, kind: EnvironmentKind, file: str, at: At) -> Iterator[FileChange]:
    if kind in _CONDA:
        on, off = (f"{prefix}/{name}" for name in _of_conda())
        yield FileChange(on, at.extras.text_of(on) or "", _exports(file))
        yield FileChange(off, at.extras.text_of(off) or "", f"unset {' '.join(VARIABLES)}  {_MARK}\n")
        return
    path = f"{prefix}/bin/activate"
    before = at.extras.text_of(path)
    if before is not None:
        yield FileChange(path, before, with_exports(before, file))


def _file_step(name: str, change: FileChange, way: ConstrainEnvironment, at: At, *, title: str = "") -> Step:
    return replace(
        blank(at),
        id=name,
        kind=StepKind.FILE,
        title=title or title_of(way, at.platform),
        files=(change,),
        done_when=(written(change),),
    )


def _by_hand(way: ConstrainEnvironment, at: At) -> Step:
    """An environment that is not ours to change: whoever uses it sets the variables."""
    return replace(
        blank(at),
        id="hold-by-variables",
        title="set the constraints in the shells that use this Python",
        commands=tuple(("export", f"{name}={way.file}") for name in VARIABLES),
        done_when=(a_person("pip config debug shows it"),),
        optional=True,
        note="This environment is managed by the system or not writable, so none of its files is edited.",
    )


def with_constraint(text: str, file: str) -> str:
    """A pip.conf whose [install] has the constraints file; one that it has already stays beside it."""
    line = f"constraint = {file}"
    section = _SECTION.search(text)
    if section is None:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[install]\n{line}\n"
    rest = text[section.end() :]
    end = rest.find("\n[")
    body = rest if end < 0 else rest[: end + 1]
    present = _CONSTRAINT.search(body)
    if present is None:
        return f"{text[: section.end()]}\n{line}{rest}"
    if file in present[2].split():
        return text
    start = section.end()
    return f"{text[: start + present.end()]} {file}{text[start + present.end() :]}"


def with_exports(text: str, file: str) -> str:
    """A venv's `activate` that sets the variables, and whose `deactivate` unsets them; done twice nothing changes."""
    kept = "".join(line for line in text.splitlines(keepends=True) if not line.rstrip().endswith(_MARK))
    ends = _DEACTIVATE.search(kept)
    if ends is not None:
        kept = f"{kept[: ends.end()]}\n    unset {' '.join(VARIABLES)}  {_MARK}{kept[ends.end() :]}"
    return f"{kept}{'' if kept.endswith(chr(10)) else chr(10)}{_exports(file)}"


def _exports(file: str) -> str:
    return "".join(f"export {name}={shlex.quote(file)}  {_MARK}\n" for name in VARIABLES)


def project_steps(way: ConstrainProject, at: At) -> Iterator[Step]:
    """The project's own constraints, and its lock made anew with them; nothing where no uv project is."""
    environment = environment_to_change(at.facts)
    project = None if environment is None else project_of(at.facts, environment)
    if project is None or project.tool != "uv":
        return
    requirements = tuple(each.requirement for each in way.packages)
    before = at.extras.text_of(project.file)
    if before is None:
        yield _unread_project(way, project, at)
        return
    change = FileChange(project.file, before, constrain_uv_project(before, requirements, path=project.file))
    copy = copy_beside(project.lock, at)
    yield replace(
        blank(at),
        id="hold-project",
        kind=StepKind.PROJECT,
        title=title_of(way, at.platform),
        files=(change,),
        commands=(*(((*COPY, project.lock, copy),) if project.locked else ()),
                  ("uv", "lock", "--project", project.folder)),
        done_when=(written(change),),
        back=(moved_back(copy, project.lock),) if project.locked else (removed_file(project.lock),),
        seconds=NETWORK,
        bytes=NETWORK,
        note="uv lock, sync, add and run keep to it; `uv pip` outside of the project does not read it.",
    )  # fmt: skip


def _unread_project(way: ConstrainProject, project: Project, at: At) -> Step:
    """The lines for whoever has the file, which was not read here."""
    listed = ", ".join(f'"{each.requirement}"' for each in way.packages)
    return replace(
        blank(at),
        id="hold-project",
        title=title_of(way, at.platform),
        lines=("[tool.uv]", f"constraint-dependencies = [{listed}]"),
        done_when=(a_person(f"{project.file} has the lines"),),
        note=f"{project.file} was not read, so that no diff can be shown.",
    )


def conda_steps(way: PinConda, at: At) -> Iterator[Step]:
    """Lines in conda-meta/pinned, behind what it has."""
    environment = at.facts.environment
    if environment is None:
        return
    path = f"{environment.prefix}/{PINNED}"
    before = at.extras.text_of(path) or ""
    change = FileChange(path, before, with_pins(before, way.packages))
    yield replace(
        blank(at),
        id="pin-conda",
        kind=StepKind.FILE,
        title=title_of(way, at.platform),
        files=(change,),
        done_when=(written(change),),
        note="conda and mamba keep to it; --no-pin passes it over.",
    )


def with_pins(text: str, packages: tuple[Package, ...]) -> str:
    """A file `pinned` with these packages at their version; lines about other packages stay."""
    names = {each.project for each in packages}
    kept = [line for line in text.splitlines() if line.split(" ")[0] not in names]
    return "".join(f"{line}\n" for line in (*kept, *(f"{each.project} =={each.version}" for each in packages)))

"""A CUDA toolkit for building extensions: wheels that match torch's CUDA, two links that nvcc wants, and CUDA_HOME."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.facts.toolkits import Part
from firstlight.plan.back import Back, BackKind, moved_back, removed_file, shown
from firstlight.plan.building import (
    NETWORK,
    Argv,
    as_root,
    blank,
    conda_step,
    environment_to_change,
    exists,
    interpreter_of,
    is_requirement,
    minutes_as_seconds,
    slug,
    split_requirement,
    succeeds,
    written,
)
from firstlight.plan.compat_steps import expanded, repository_step
from firstlight.plan.extras import Extras
from firstlight.plan.option import Option
from firstlight.plan.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.plan.wheel_steps import Project, new_environment, project_of

_APT = re.compile(r"cuda-(?:toolkit|nvcc|compiler)-(\d+)-(\d+)")
_CONDA = re.compile(r"(?P<channel>[\w.-]+)::(?P<package>[\w-]+)=(?P<cuda>\d+\.\d+(?:\.\d+)?)")
_SAVED = ".before-firstlight"


def toolkit_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """The toolkit from wheels, apt or conda, and a file that sets CUDA_HOME for a build."""
    home = expanded(question, option.folder, extras) if not option.brings else ""
    for piece in option.brings:
        if match := _APT.fullmatch(piece):
            home = f"/usr/local/cuda-{match[1]}.{match[2]}"
            yield from repository_step(question, option)
            yield _package(question, option, package=piece, home=home)
        elif match := _CONDA.fullmatch(piece):
            home = (
                expanded(question, option.folder, extras) or f"{extras.home_for(question.facts)}/cuda-{match['cuda']}"
            )
            yield conda_step(option, match=match, prefix=home, brings=f"{home}/bin/nvcc")
    wheels = tuple(piece for piece in option.brings if is_requirement(piece))
    if wheels:
        yield from _wheels(question, option, extras, wheels=wheels)
        home = _home_of(question, extras, wheels)
        yield _links(option, home, major=_major(wheels))
    elif home and _lacks_links(question, home):
        yield _links(option, home, major=int(re.sub(r"\D", "", home.rpartition("/cu")[2]) or 13))
    if home:
        yield _environment_file(question, option, extras, home=home)


def _lacks_links(question: Question, home: str) -> bool:
    """Whether a toolkit from wheels that is here already lacks what nvcc and the linker ask for."""
    return any(
        each.path == home and "/site-packages/" in home and set(each.missing) & {Part.LIB64, Part.CUDART_LINK}
        for each in question.facts.toolkits.toolkits
    )


def _major(wheels: tuple[str, ...]) -> int:
    for wheel in wheels:
        if match := re.search(r"==(\d+)\.", wheel):
            return int(match[1])
    return 13


def _site_packages(question: Question, extras: Extras) -> str:
    environment = environment_to_change(question)
    if environment is not None and environment.site_packages:
        return environment.site_packages[0]
    return f"{extras.home_for(question.facts)}/firstlight-venv/lib/python3/site-packages"


def _home_of(question: Question, extras: Extras, wheels: tuple[str, ...]) -> str:
    """Where the wheels put the toolkit: site-packages/nvidia/cu13."""
    return f"{_site_packages(question, extras)}/nvidia/cu{_major(wheels)}"


def _wheels(question: Question, option: Option, extras: Extras, *, wheels: tuple[str, ...]) -> Iterator[Step]:
    environment = environment_to_change(question)
    if environment is None:
        folder = f"{extras.home_for(question.facts)}/firstlight-venv"
        yield new_environment(question, option, folder)
        yield _installed(
            option, (f"{folder}/bin/python", "-m", "pip"), interpreter=f"{folder}/bin/python", wheels=wheels
        )
        return
    project = project_of(question, environment)
    if project is not None and project.tool == "uv":
        yield _in_project(option, project, wheels=wheels)
        return
    python = interpreter_of(environment)
    uses_uv = environment.kind is EnvironmentKind.UV_VENV
    yield _installed(option, ("uv", "pip") if uses_uv else (python, "-m", "pip"), interpreter=python, wheels=wheels)


def _installed(option: Option, tool: Argv, *, interpreter: str, wheels: tuple[str, ...]) -> Step:
    uses_uv = tool[0] == "uv"
    where: Argv = ("--python", interpreter) if uses_uv else ()
    names = tuple(split_requirement(wheel)[0] for wheel in wheels)
    return replace(
        blank(option),
        id="install-toolkit-wheels",
        kind=StepKind.UV if uses_uv else StepKind.PIP,
        title=f"install {', '.join(wheels)}",
        commands=((*tool, "install", *where, *wheels),),
        done_when=(Condition(CheckKind.DISTRIBUTIONS, interpreter, "\n".join(_bare(wheel) for wheel in wheels)),),
        back=shown((*tool, "uninstall", *where, *(() if uses_uv else ("--yes",)), *names)),
        seconds=minutes_as_seconds(option),
        bytes=option.cost.download_bytes,
        note="Taking it back leaves the parts that the meta package brought; pip freeze lists them.",
    )


def _bare(wheel: str) -> str:
    """cuda-toolkit==13.0.2 of cuda-toolkit[nvcc]==13.0.2."""
    return re.sub(r"\[[^\]]*\]", "", wheel)


def _in_project(option: Option, project: Project, *, wheels: tuple[str, ...]) -> Step:
    """As a group of the project: `uv sync` would take wheels away that its lock does not have."""
    folder, files = project.folder, (project.file, *((project.lock,) if project.locked else ()))
    again = Back(BackKind.SYNC_UV, (folder,)) if project.locked else removed_file(project.lock)
    return replace(
        blank(option),
        id="add-toolkit-to-project",
        kind=StepKind.PROJECT,
        title=f"add {', '.join(wheels)} to the uv project {folder}",
        commands=(
            *(("cp", "--no-clobber", each, f"{each}{_SAVED}") for each in files),
            ("uv", "add", "--project", folder, "--group", "cuda-build", *wheels),
        ),
        done_when=(succeeds("grep", "--quiet", "cuda-build", files[0]),),
        back=(
            *(moved_back(f"{each}{_SAVED}", each) for each in files),
            again,
        ),
        seconds=NETWORK,
        bytes=option.cost.download_bytes,
        note="uv keeps a group only where it is asked for: uv sync --group cuda-build, uv run --group cuda-build.",
    )


def _links(option: Option, home: str, *, major: int) -> Step:
    """nvcc looks for libraries in lib64 and -lcudart wants a name without a number; the wheels have neither."""
    links = ((f"{home}/lib64", "lib"), (f"{home}/lib/libcudart.so", f"libcudart.so.{major}"))
    return replace(
        blank(option),
        id="link-what-nvcc-wants",
        kind=StepKind.FILE,
        title=f"link lib64 and libcudart.so in {home}",
        commands=tuple(("ln", "-sfn", target, link) for link, target in links),
        done_when=tuple(exists(link) for link, _ in links),
        back=tuple(removed_file(link) for link, _ in links),
        note="nvcc.profile names lib64 and the linker asks for libcudart.so; the wheels have lib and libcudart.so."
        f"{major}.",
    )


def _package(question: Question, option: Option, *, package: str, home: str) -> Step:
    facts = question.facts
    return replace(
        blank(option),
        id=slug(f"install {package}"),
        kind=StepKind.APT,
        title=f"install {package}",
        commands=(as_root(facts, "apt-get", "install", "--yes", package),),
        needs_root=True,
        done_when=(Condition(CheckKind.APT_PACKAGE, package), exists(f"{home}/bin/nvcc")),
        back=shown(as_root(facts, "apt-get", "autoremove", "--yes", package)),
        seconds=NETWORK,
        bytes=option.cost.download_bytes,
    )


def _environment_file(question: Question, option: Option, extras: Extras, *, home: str) -> Step:
    path = f"{extras.state_for(question.facts)}/cuda-build.sh"
    text = (
        "# Written by firstlight; `firstlight undo` takes it back. For the shell that builds an extension:\n"
        f"#   . {shlex.quote(path)}\n"
        f"export CUDA_HOME={shlex.quote(home)}\n"
        'export PATH="$CUDA_HOME/bin:$PATH"\n'
    )
    change = FileChange(path, extras.text_of(path) or "", text)
    return replace(
        blank(option),
        id="set-cuda-home",
        kind=StepKind.FILE,
        title=f"write CUDA_HOME={home} to {path}",
        files=(change,),
        done_when=(written(change), succeeds(f"{home}/bin/nvcc", "--version")),
        note=f"torch.utils.cpp_extension does not look into site-packages: . {shlex.quote(path)} before a build. "
        "It sets nothing that a running program reads.",
    )

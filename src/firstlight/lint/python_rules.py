"""Rules about the Python of an image: whether one is there at all, and whether pip may install beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.lint.brings_python import (
    NEEDS_PYTHON,
    apt_brings_python,
    is_packages_alone,
    maker_of,
    may_bring,
    own_python,
    surely_without,
)
from firstlight.lint.installs import apt_packages, installs
from firstlight.lint.model import Copied, Ran, Syntax, Target, Where, stages_of
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.written import ask
from firstlight.ways.kinds import ChangeImage, UseImage
from firstlight.ways.way import Chain, chain

_ENVIRONMENT = (ChangeImage("RUN python3 -m venv /opt/venv"), ChangeImage("ENV PATH=/opt/venv/bin:$PATH"))
_APT = "RUN apt-get update && apt-get install --yes"
_PYTHON = f"{_APT} python3 python3-venv python3-pip"
_UV = "COPY --from=ghcr.io/astral-sh/uv:latest /uv /uvx /bin/"  # docs.astral.sh/uv/guides/integration/docker
# Their package manager may bring a python3 of its own; none of them has the one of the images called python.
_RED_HATS = ("rockylinux", "rockylinux/rockylinux", "almalinux", "fedora")


def pip_refused_by_system(target: Target, question: Question) -> Iterator[SeenAt]:
    """Ubuntu 24.04 and Debian 12 on: pip of the system installs nothing without a virtual environment."""
    for stage in stages_of(target):
        if not stage.image.managed_python:
            continue
        if own_python(stage) or not (stage.image.has_python or apt_brings_python(stage)):
            continue  # where there is no Python at all, no-python-in-image speaks
        for install in installs(stage):
            allowed = "--break-system-packages" in install.options or "PIP_BREAK_SYSTEM_PACKAGES" in stage.env
            if install.tool == "conda" or allowed or any("/" in word for word in install.ran.words[:1]):
                continue
            if install.tool == "uv" and "--system" not in install.options and "UV_SYSTEM_PYTHON" not in stage.env:
                continue
            yield SeenAt(
                install.ran.place,
                f"{install.ran.shown}: {stage.image.name} has {stage.image.system}'s Python, which apt manages",
                (chain(*_venv_of_apt(stage, install.ran), *_ENVIRONMENT),),
            )
            break  # once for a stage: the first one ends the build


def _venv_of_apt(stage: Target, before: Ran) -> tuple[ChangeImage, ...]:
    """apt's python3-venv where nothing before brought it: Debian's and Ubuntu's python3 makes no environment without.

    packages.debian.org/bookworm/python3-venv: ensurepip, which `python3 -m venv` runs, is in that package alone.
    """
    done = stage.before(before)
    brought = (package for package, ran in apt_packages(stage) if ran in done)
    if any(re.fullmatch(r"python3(?:\.\d+)?-(?:venv|full)", package) for package in brought):
        return ()
    return (ChangeImage(f"{_APT} python3-venv"),)


def no_python_in_image(target: Target, question: Question) -> Iterator[SeenAt]:
    """nvidia/cuda has no Python: pip is not found."""
    for stage in stages_of(target):
        found = _pip_without_python(stage) or _run_without_python(stage)
        if found is not None:
            yield found
            return  # what comes behind it is not built
    found = _copied_without_python(target) or _start_without_python(target)
    if found is not None:
        yield found


def _pip_without_python(stage: Target) -> SeenAt | None:
    if stage.image.has_python or own_python(stage) or stage.copied_from or apt_brings_python(stage):
        return None
    for install in installs(stage):
        if install.tool == "pip" and not _scripted(stage, install.ran):
            saw = f"{install.ran.shown}: {stage.image.name} has no Python, and nothing before it installs one"
            return SeenAt(install.ran.place, saw, _bring(stage, install.ran))
    return None


def _run_without_python(stage: Target) -> SeenAt | None:
    """RUN python, pip or uv, where all before it is known to bring none of them."""
    if not _is_bare_build(stage):
        return None
    for event in stage.events:
        if may_bring(event, stage):
            return None
        if isinstance(event, Ran) and _needs(event) and event.command.ends != "||":
            program = event.command.program
            what = "neither uv nor Python" if program.startswith("uv") else "no Python"
            saw = f"{event.shown}: {stage.image.name} has {what}, and nothing before it installs one"
            return SeenAt(event.place, saw, _bring(stage, event), error=f"/bin/sh: 1: {program}: not found")
    return None


def _is_bare_build(stage: Target) -> bool:
    return surely_without(stage.image) and stage.where is Where.BUILD and stage.place.syntax is Syntax.DOCKERFILE


def _needs(ran: Ran) -> bool:
    """Whether it runs python, pip or uv by name; `python3` alone may be of `command -v python3`."""
    asked = len(ran.words) > 1 or bool(ran.command.stdin)
    return asked and NEEDS_PYTHON.fullmatch(ran.words[0].removeprefix("/usr/bin/")) is not None


def _copied_without_python(target: Target) -> SeenAt | None:
    """A last stage that gets a virtual environment of another stage, and not the Python in it."""
    if not target.copied_from or apt_brings_python(target) or _made_here(target):
        return None
    copied = [source for event in target.events if isinstance(event, Copied) for source in event.sources]
    folders = [each for each in copied if re.search(r"venv|virtualenv", each) or maker_of(each, target)]
    whole = r"conda|mamba|pyenv|/uv(?:/|$)|/python|^/(?:usr|opt|root)?(?:/local)?(?:/bin|/lib|/lib64)?/?$"
    own = any("uv" in ran.words[:1] and "python" in ran.words for other in target.copied_from for ran in other.ran)
    if not folders or own or any(re.search(whole, each) for each in copied):
        return None
    maker = maker_of(folders[0], target)
    of_python = maker is not None and maker.image.repository == "python"
    if target.image.has_python and not (of_python and target.image.repository in _RED_HATS):
        return None
    lacks = "has no Python"
    if target.image.has_python and maker is not None:
        lacks = f"has not the Python of {maker.image.name}"
    saw = f"{target.image.name} {lacks}; {folders[0]} is copied in, whose python is a link to the one of its stage"
    return SeenAt(target.place, saw, _same_python(target, maker), error=f"exec {folders[0]}/bin/python: no such file")


def _same_python(target: Target, maker: Target | None) -> tuple[Chain, ...]:
    """The Python that an environment was made with, at the place that it links to."""
    maker = maker or (target.copied_from[0] if len(target.copied_from) == 1 else None)
    if maker is None or "$" in maker.image.name:
        return (ask("put the last stage on the base of the stage it is copied from"),)
    if maker.image.repository == "python":
        title = f"put the last stage on {maker.image.name}, the base of the stage it is copied from"
        return (chain(UseImage(maker.image.name), title=title),)
    if not maker.image.has_python and not apt_brings_python(maker) and any("uv" in ran.words[:1] for ran in maker.ran):
        title = "set UV_PYTHON_INSTALL_DIR=/opt/python in the stage with uv, and copy that folder too"
        return (ask("copy the Python that uv fetched too", title=title),)
    named = [package for package, _ in apt_packages(maker) if re.fullmatch(r"python3(?:\.\d+)?", package)]
    added = any("add-apt-repository" in ran.words for ran in maker.ran)
    same = maker.image.system == target.image.system != ""
    if surely_without(maker.image) and same and apt_brings_python(maker) and not added:
        line = ChangeImage(f"{_APT} {' '.join(named) or 'python3'}")
        return (chain(line, title="install the same Python in the last stage"),)
    return (ask(f"put the last stage on {maker.image.name}, and install Python there as its stage does"),)


def _start_without_python(target: Target) -> SeenAt | None:
    """ENTRYPOINT or CMD python on an image without one, where nothing in the file may bring one."""
    if not _is_bare_build(target) or target.service is not None or not target.starts:
        return None
    start = target.starts[0]  # behind an ENTRYPOINT, CMD is its arguments
    if not _needs(start) or any(may_bring(event, target) for event in target.events):
        return None
    program = start.command.program
    saw = f"{start.shown}: {target.image.name} has no Python, and nothing in the file installs one"
    error = f'exec: "{program}": executable file not found in $PATH'
    copied = [source for event in target.events if isinstance(event, Copied) for source in event.sources]
    packages = any(is_packages_alone(each, target) for each in copied)
    answers = _same_python(target, None) if packages and target.copied_from else _bring(target, start)
    return SeenAt(start.place, saw, answers, error=error)


def _bring(stage: Target, ran: Ran) -> tuple[Chain, ...]:
    """A Python of apt, of the version that is named, or a base that has it."""
    version = re.search(r"3\.\d+", ran.command.program)
    wanted, here = version.group() if version is not None else "", stage.image.python
    managed = stage.image.managed_python
    if managed and "--system" in ran.words:
        return (ask("take a base that has uv and Python: a tag with python of ghcr.io/astral-sh/uv"),)
    if not stage.image.system or (wanted and wanted != here):
        like = f"python:{wanted or here or '3.12'}-slim"
        return (chain(UseImage(like), title=f"take a base that has Python, e.g. {like}"),)
    as_python = " python-is-python3" if ran.command.program == "python" else ""
    uv = (ChangeImage(_UV),) if ran.command.program.startswith("uv") else ()
    needs_own = managed and "install" in ran.words and not uv
    return (chain(*uv, ChangeImage(_PYTHON + as_python), *(_ENVIRONMENT if needs_own else ())),)


def _made_here(target: Target) -> bool:
    """Whether a command of this stage may bring a Python that is not seen."""
    unseen = ("uv", "conda", "micromamba", "mamba", "pyenv", "bash", "sh", "ln", "tar", "make")
    return any(ran.command.program in unseen or ran.command.program.endswith(".sh") for ran in target.ran)


def _scripted(target: Target, before: Ran) -> bool:
    """Whether a script or a package list that cannot be read runs before: it may bring Python."""
    return any(
        ran.command.program in ("sh", "bash", "curl", "wget", "xargs", "make", "add-apt-repository")
        or ran.command.program.endswith(".sh")
        or "uv" in ran.words[:1]
        for ran in target.before(before)
    )


PYTHON_LINT_RULES = (
    LintRule(
        "pip-refused-by-system",
        pip_refused_by_system,
        Severity.BLOCKS,
        "the build fails: pip may not install into the system's Python",
        "Debian 12, Ubuntu 23.04 and later mark their Python as managed by apt (PEP 668).",
        "error: externally-managed-environment",
        "peps.python.org/pep-0668",
    ),
    LintRule(
        "no-python-in-image",
        no_python_in_image,
        Severity.BLOCKS,
        "there is no Python in the image",
        "NVIDIA's CUDA images, and plain Ubuntu, Debian and Alpine, come without Python and pip.",
        "/bin/sh: 1: pip: not found",
        "hub.docker.com/r/nvidia/cuda",
    ),
)

"""A Dockerfile and what it copies: wheels cached, a user that is not root, an entrypoint that decides at each start."""

from __future__ import annotations

import re

from firstlight import __version__
from firstlight.emit.bash import pythons_of, shell_text, wiring_in
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.header import header_lines
from firstlight.emit.image_reference import image_reference
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.quoting import Quoted, comment, dockerfile_text, sh_words
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import REQUIREMENT, emitted_wheel, wheels_readme, where_from
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.ways.nvidia_repository import REPOSITORIES
from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import run_script, wire_script

HOME = "/opt/firstlight"  # laid out as pod_setup.sh lays out its folder on the volume
USER = "gpu"
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class _Install:
    """One run of pip, with what was installed before named again so that it stays."""

    words: Quoted


@dataclass(frozen=True, slots=True)
class _Compat:
    folder_name: Quoted  # cuda-13.0


def emit_dockerfile(subject: Subject) -> Emitted:
    """Dockerfile, entrypoint.sh and the small files it copies; `docker build .` in their folder."""
    files = image_files(subject, "dockerfile")
    to_run = (ToRun("In the folder of these files", f"docker build --tag {image_name(subject)} ."),)
    notes = [
        "RUN --mount needs BuildKit (Docker 23 or newer), Podman 4 or buildah 1.28.",
        where_from(subject),
    ]
    if "@sha256:" not in base_of(subject):
        notes.append("The base is not pinned: --base IMAGE@sha256:... builds the same image later too.")
    wheel = emitted_wheel(subject)
    return Emitted("dockerfile", files, subject.gates, subject.plan.digest, tuple(notes), to_run=to_run, wheel=wheel)


def image_files(subject: Subject, kind: str) -> tuple[EmittedFile, ...]:
    """Everything that the image is built from, the Dockerfile first."""
    header = header_lines(subject, kind)
    gates = preflight_functions(subject.gates, subject.target.machine)
    entrypoint = render("entrypoint.sh.j2", header=header, gates=gates, home=Quoted(HOME), compat=bool(subject.compat))
    return (
        EmittedFile("Dockerfile", _dockerfile(subject, header)),
        EmittedFile("entrypoint.sh", entrypoint, 0o755),
        EmittedFile("shell.sh", shell_text(subject, HOME)),
        EmittedFile("wheels/README", wheels_readme(subject)),
        *_compat_files(subject),
    )


def _dockerfile(subject: Subject, header: tuple[str, ...]) -> str:
    return render(
        "dockerfile.j2",
        header=header,
        name=Quoted(image_name(subject)),
        base=base_of(subject),
        pythons=pythons_of(subject),
        home=Quoted(HOME),
        parts=tuple(_installs(subject)),
        numpy=subject.numpy,
        requirement=REQUIREMENT,
        wheel=subject.wheel,
        compat=_Compat(_folder_name(subject)) if subject.compat else None,
        user=Quoted(user_of(subject)),
        asks_for_gpu=subject.gates.asks_for_gpu,
        require_cuda=subject.gates.require_cuda,
        version=__version__,
        digest=subject.plan.digest,
        requirements=subject.requirements,
        entrypoint=(f"{HOME}/entrypoint.sh",),
    )


def _installs(subject: Subject) -> list[_Install]:
    found: list[_Install] = []
    before: tuple[str, ...] = ()
    for part in subject.parts:
        index = ("--index-url", part.index) if part.index else ()
        words = (*index, *part.requirements, *before)
        for word in words:
            dockerfile_text(word)  # a line break would begin another instruction
        found.append(_Install(sh_words(words)))
        before += part.requirements
    return found


def _compat_files(subject: Subject) -> tuple[EmittedFile, ...]:
    if not subject.compat:
        return ()
    wiring = wiring_in(subject, HOME)
    fetch = render(
        "get_compat.sh.j2",
        made_by=made_by(),
        package=comment(subject.compat[0].package),
        folder_name=_folder_name(subject),
        repositories=Quoted(REPOSITORIES),
    )
    return (
        EmittedFile("get_compat.sh", fetch, 0o755),
        EmittedFile("compat/wire.sh", wire_script(wiring)),
        EmittedFile("compat/run", run_script(wiring), 0o755),
        EmittedFile(f"start/{MODULE}.py", start_module(wiring)),
        EmittedFile(f"start/{LINE_FILE}", START_LINE),
    )


def _folder_name(subject: Subject) -> Quoted:
    return Quoted(f"cuda-{subject.compat[0].cuda.release}")


def base_of(subject: Subject) -> Quoted:
    """The base image: the one that was given, else Python's official one, which has glibc 2.36 and nothing of CUDA."""
    return image_reference(subject.choices.base or f"python:{subject.target.python}-slim-bookworm", what="--base")


def user_of(subject: Subject) -> str:
    """Who runs in the image, e.g. gpu; never root."""
    user = subject.choices.user or USER
    if not _USER.fullmatch(user) or user == "root":
        raise BadInput(
            f"--user {user[:40]!a}: accepted is a name other than root, of small letters, digits, _ and -, e.g. {USER}."
        )
    return user


def image_name(subject: Subject) -> str:
    """What the image is called in the examples, e.g. torch-2.9.0-cu130."""
    name = subject.choices.name or f"torch-{subject.gates.torch}".replace("+", "-").lower()
    if not _NAME.fullmatch(name) or len(name) > 100:
        raise BadInput(
            f"--name {name[:40]!a}: accepted are small letters and digits, with . _ - between, e.g. torch-2.9.0-cu130."
        )
    return name

"""What is judged: an image as it will be when it runs, by its base and what was done to it, in order."""

from __future__ import annotations

import enum
import re
from itertools import takewhile
from typing import Union

from firstlight.frozen import dataclass
from firstlight.lint.images import Image
from firstlight.lint.shell import Simple


class Syntax(enum.Enum):
    """How the file at hand is written, which decides how an answer is written into it."""

    DOCKERFILE = "Dockerfile"
    COMPOSE = "compose file"
    KUBERNETES = "Kubernetes manifest"
    DEVCONTAINER = "devcontainer.json"
    WORKFLOW = "GitHub workflow"
    SHELL = "shell script"  # Slurm's too
    REQUIREMENTS = "requirements file"
    PYPROJECT = "pyproject.toml"
    LOCK = "lock file"
    CONDA = "environment.yml"
    PIXI = "pixi.toml"


class Where(enum.Enum):
    """Where the commands of a target run, and with it whether a GPU and a driver are there."""

    BUILD = "docker build"  # never a driver
    MACHINE = "the machine itself"  # a Slurm job, a list of packages
    RUNNER = "a CI runner"  # `runs_on` of its service tells


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, e.g. Dockerfile:12."""

    file: str
    line: int
    syntax: Syntax = Syntax.DOCKERFILE

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class EnvSet:
    """A variable of the image or the service: LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH."""

    name: str
    value: str  # with what the file knows put in
    written: str  # as written
    place: Place


@dataclass(frozen=True, slots=True)
class Ran:
    """One simple command of a RUN, with the variables put in that the file knows."""

    command: Simple
    place: Place
    mounts: tuple[str, ...] = ()  # of RUN --mount, less caches and secrets: what is in them is not seen

    @property
    def words(self) -> tuple[str, ...]:
        return self.command.words

    @property
    def shown(self) -> str:
        """The command in one line, cut where it is long."""
        text = " ".join(self.words)
        return text if len(text) <= 90 else text[:87] + "..."


@dataclass(frozen=True, slots=True)
class UserSet:
    """USER app, on its line."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Copied:
    """COPY or ADD: where to, e.g. /opt/firstlight/compat/cuda-13.0; of `--from` what is taken there."""

    destination: str
    place: Place
    sources: tuple[str, ...] = ()  # of another stage or image alone
    text: str = ""  # of a heredoc


@dataclass(frozen=True, slots=True)
class ProjectAsked:
    """One project asked for: torch ==2.5.1, or from an address."""

    project: str  # as PyPI compares names: flash-attn for flash_attn
    spec: str
    address: str = ""
    extras: tuple[str, ...] = ()  # ('cuda12',) of jax[cuda12]
    index: str = ""  # the one index that the file takes it from ([tool.uv.sources], uv.lock); '' is the install's
    place: Place | None = None  # its own line in a list of packages; None: the line of the command

    @property
    def exact(self) -> str:
        """The version of ==, e.g. 2.5.1+cu124; '' where there is none."""
        match = re.fullmatch(r"===?\s*([^,*\s]+)", self.spec.strip())
        return match.group(1) if match is not None else ""


@dataclass(frozen=True, slots=True)
class Install:
    """One `pip install`, or one list of packages: what, from where, into which Python."""

    ran: Ran  # of a list of packages: its first line, with the file's name as the only word
    requirements: tuple[ProjectAsked, ...]
    index: str  # --index-url, "" is PyPI
    extra_indexes: tuple[str, ...]
    files: tuple[str, ...]  # of -r
    options: tuple[str, ...]
    python: str  # 3.11 of pip3.11 or python3.11 -m pip; "" where it does not say
    tool: str  # pip, uv, conda
    find_links: tuple[str, ...] = ()
    first_index: bool = False  # uv takes a project from the first index that has it, pip the best of all
    backend: str = ""  # uv's --torch-backend: cu128, auto

    def of(self, project: str) -> ProjectAsked | None:
        return next((each for each in self.requirements if each.project == project), None)

    @property
    def upgrades(self) -> bool:
        wanted = ("-U", "--upgrade", "--force-reinstall", "--reinstall", "--ignore-installed", "-I")
        return any(option in wanted for option in self.options)


Event = Union[EnvSet, Ran, UserSet, Copied, Install]  # an Install only of lists: those of commands are read from Ran


@dataclass(frozen=True, slots=True)
class Device:
    """GPUs that are asked for: capabilities ('gpu',), count 'all' or a number, ids; of a pod or a job the count."""

    capabilities: tuple[str, ...]
    count: str
    ids: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Joined:
    """Two words of `docker run` in one, "--gpus all" of runArgs, which docker takes for the name of an option."""

    words: str
    place: Place


@dataclass(frozen=True, slots=True)
class Service:
    """What a file says of one service, pod or job besides its image: who gives it GPUs, and its shared memory."""

    name: str
    place: Place
    devices: tuple[Device, ...]
    gpus: bool  # `gpus: all`, or a CDI device such as nvidia.com/gpu=all
    runtime: str
    shm_size: str
    ipc: str
    limits_place: Place | None = None  # devices under `limits`, where nobody reads them
    runs_on: tuple[str, ...] = ()  # labels of a CI runner
    starts_others: bool = False  # Ray's head, MPI's launcher: what needs a GPU runs in other pods
    without_driver: bool = False  # apptainer without --nv: the job's GPUs are there, and their driver is not
    joined: Joined | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An image to run: its external base, everything done to it in order, and the other stages it copies from."""

    name: str  # '' for a file with one stage, else the stage or the service
    image: Image
    place: Place  # the line that names the base
    events: tuple[Event, ...]
    copied_from: tuple[Target, ...] = ()
    lists: tuple[tuple[str, Install], ...] = ()  # requirements files beside the file: name as in `-r`, what it asks for
    service: Service | None = None
    starts: tuple[Ran, ...] = ()  # what runs in it: CMD and ENTRYPOINT, `command`, the lines of a job
    where: Where = Where.BUILD
    platform: str = ""  # linux/amd64, where the file fixes it

    @property
    def env(self) -> dict[str, EnvSet]:
        """The variables as they are in the end."""
        return {event.name: event for event in self.events if isinstance(event, EnvSet)}

    @property
    def ran(self) -> tuple[Ran, ...]:
        return tuple(event for event in self.events if isinstance(event, Ran))

    def before(self, ran: Ran) -> tuple[Ran, ...]:
        """What is run before a command; a list of packages counts as the command that installs it."""
        steps = (each.ran if isinstance(each, Install) else each for each in self.events)
        return tuple(takewhile(lambda each: each != ran, (each for each in steps if isinstance(each, Ran))))

    @property
    def user(self) -> UserSet | None:
        """Who it runs as; None where no USER line is."""
        users = [event for event in self.events if isinstance(event, UserSet)]
        return users[-1] if users else None


def stages_of(target: Target) -> tuple[Target, ...]:
    """The image and all that it copies from: a build happens in any of them."""
    return (target, *(each for other in target.copied_from for each in stages_of(other)))

"""What is judged: an image as it will be when it runs, by its base and what was done to it, in order."""

from __future__ import annotations

from typing import Union

from firstlight.frozen import dataclass
from firstlight.lint.images import Image
from firstlight.lint.shell import Simple


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, e.g. Dockerfile:12."""

    file: str
    line: int

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
    """COPY or ADD: where to, e.g. /opt/firstlight/compat/cuda-13.0."""

    destination: str
    place: Place


Event = Union[EnvSet, Ran, UserSet, Copied]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU reservation of a compose service: capabilities ('gpu',), count 'all' or a number, ids."""

    capabilities: tuple[str, ...]
    count: str
    ids: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Service:
    """What a compose file says of one service besides its image: who gives it GPUs, and its shared memory."""

    name: str
    place: Place
    devices: tuple[Device, ...]
    gpus: bool  # `gpus: all`, or a CDI device such as nvidia.com/gpu=all
    runtime: str
    shm_size: str
    ipc: str
    limits_place: Place | None  # devices under `limits`, where nobody reads them


@dataclass(frozen=True, slots=True)
class Target:
    """An image to run: its external base, everything done to it in order, and the other stages it copies from."""

    name: str  # '' for a file with one stage, else the stage or the service
    image: Image
    place: Place  # the line that names the base
    events: tuple[Event, ...]
    copied_from: tuple[Target, ...] = ()
    lists: tuple[tuple[str, str], ...] = ()  # requirements files beside the Dockerfile: name as in `-r`, text
    service: Service | None = None

    @property
    def env(self) -> dict[str, EnvSet]:
        """The variables as they are in the end."""
        return {event.name: event for event in self.events if isinstance(event, EnvSet)}

    @property
    def ran(self) -> tuple[Ran, ...]:
        return tuple(event for event in self.events if isinstance(event, Ran))

    @property
    def user(self) -> UserSet | None:
        """Who it runs as; None where no USER line is."""
        users = [event for event in self.events if isinstance(event, UserSet)]
        return users[-1] if users else None

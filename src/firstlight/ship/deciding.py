"""What has to be done on a host, from what it answered: by which engine, which blobs, whether there is room. Pure."""

from __future__ import annotations

import enum

from firstlight.errors import BadInput, CouldNotLook
from firstlight.frozen import dataclass
from firstlight.ship.image import Blob, Image


class Engine(enum.Enum):
    """What keeps images on a host, in the order in which they are taken."""

    PODMAN = "podman"
    DOCKER = "docker"
    SKOPEO = "skopeo"  # into the storage of podman, buildah and CRI-O; starts no container


class Gpus(enum.Enum):
    """How a container is given the GPUs of a host."""

    NONE = "none"  # the host has none
    CDI = "cdi"
    HOOK = "hook"
    NO_WAY = "no way"  # it has some, and nothing that hands them over


@dataclass(frozen=True, slots=True)
class Room:
    """Free bytes where something lies there; `mount` tells two places on one disk from two disks."""

    free_bytes: int
    mount: str


@dataclass(frozen=True, slots=True)
class HostState:
    """What a host said of itself; names in it are those that we asked for, all else was dropped."""

    tools: frozenset[str]
    answers: frozenset[Engine]
    machine: str
    gpus: frozenset[str]
    rooms: tuple[tuple[str, Room], ...]
    images: tuple[tuple[Engine, str], ...]
    blobs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A blob that is not there, or not all of it: `have_bytes` of it are."""

    blob: Blob
    have_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        return self.blob.size_bytes - self.have_bytes


@dataclass(frozen=True, slots=True)
class Needed:
    """The room that one disk of the host must have."""

    mount: str
    free_bytes: int
    needed_bytes: int


_INSTALL_ENGINE = "podman (apt-get install podman, dnf install podman), docker, or skopeo"


def choose_engine(state: HostState, wanted: Engine | None) -> Engine:
    """The engine that takes the image; CouldNotLook names what to install there."""
    lacking = [name for name in ("rsync", "sha256sum") if name not in state.tools]
    if lacking:
        how = {"rsync": "apt-get install rsync, dnf install rsync", "sha256sum": "apt-get install coreutils"}
        said = "; ".join(f"{name} ({how[name]})" for name in lacking)
        raise CouldNotLook(f"missing there: {said}. First install what is missing; nothing was sent.")
    if wanted is not None:
        if wanted not in state.answers:
            there = ", ".join(each.value for each in Engine if each in state.answers) or "none"
            why = "does not answer this user" if wanted.value in state.tools else "is not there"
            raise CouldNotLook(f"{wanted.value} {why}; engines that answer there: {there}. Nothing was sent.")
        return wanted
    for engine in Engine:
        if engine in state.answers:
            return engine
    silent = "docker is there and does not answer this user; " if "docker" in state.tools else ""
    raise CouldNotLook(f"{silent}nothing there takes an image: install {_INSTALL_ENGINE}. Nothing was sent.")


def how_gpus(state: HostState, engine: Engine) -> Gpus:
    """How a container of that engine gets the GPUs."""
    if "device" not in state.gpus:
        return Gpus.NONE
    if "cdi" in state.gpus and engine is Engine.PODMAN:
        return Gpus.CDI
    if ("hook" if engine is Engine.PODMAN else "docker") in state.gpus:
        return Gpus.HOOK
    return Gpus.NO_WAY


def is_there(state: HostState, engine: Engine, image: Image) -> bool:
    """Whether the engine has this image under this name already."""
    return any(each is engine and name in image.ids for each, name in state.images)


def missing(state: HostState, image: Image) -> tuple[Missing, ...]:
    """The blobs to send, and how much of each is there from a run that was cut off."""
    have = dict(state.blobs)
    left = []
    for blob in image.blobs:
        there = have.get(blob.digest, 0)
        if blob.digest not in have or there != blob.size_bytes:
            left.append(Missing(blob, there if there < blob.size_bytes else 0))
    return tuple(left)


def too_long(state: HostState, image: Image) -> tuple[Blob, ...]:
    """Blobs that are larger there than they can be: rsync would leave them as they are."""
    have = dict(state.blobs)
    return tuple(blob for blob in image.blobs if have.get(blob.digest, 0) > blob.size_bytes)


def rooms_needed(state: HostState, engine: Engine, sizes: tuple[int, int, int]) -> tuple[Needed, ...]:
    """By disk: (bytes to send, bytes of all blobs, bytes unpacked). An engine keeps its own copy while it unpacks."""
    to_send, packed, unpacked = sizes
    rooms = dict(state.rooms)
    needs: dict[str, Needed] = {}
    for name, needed in (("folder", to_send), (engine.value, packed + unpacked)):
        if name not in rooms:
            continue
        room = rooms[name]
        before = needs.get(room.mount, Needed(room.mount, room.free_bytes, 0))
        needs[room.mount] = Needed(room.mount, min(room.free_bytes, before.free_bytes), before.needed_bytes + needed)
    return tuple(needs.values())


def require_room(needs: tuple[Needed, ...]) -> None:
    """CouldNotLook with figures where a disk is too small."""
    for need in needs:
        if need.needed_bytes > need.free_bytes:
            raise CouldNotLook(
                f"too little room there: {need.mount} has {need.free_bytes:,} bytes free and {need.needed_bytes:,} are "
                "needed (what is sent, a second copy while it is loaded, and the image unpacked). Make room, or give "
                "another disk for what is sent with --folder. Nothing was sent."
            )


def require_processor(state: HostState, image: Image) -> None:
    """BadInput where the image is for another processor."""
    if not image.runs_on(state.machine):
        raise BadInput(
            f"the image is for {image.architecture}, and the host is {state.machine}: it would end with `exec format "
            "error`. Build it for that processor, e.g. buildah build --arch. Nothing was sent."
        )

"""What a host answered to our scripts: data of others, read line by line; what we did not ask for is dropped. Pure."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.ship.deciding import Engine, HostState, Room
from firstlight.ship.image import Image
from firstlight.visible import visible

_TOOLS = ("rsync", "sha256sum", "tar", "podman", "docker", "skopeo")
_GPUS = ("device", "cdi", "hook", "docker")
_PLACES = ("folder", *(engine.value for engine in Engine))
_DF = re.compile(r"\S.*?\s+\d+\s+\d+\s+(\d{1,15})\s+\S+\s+(/.*)")
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([0-9a-f]{64})")
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_MOST_SAID = 200


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an engine made of the image: whether it said that it did, the id, and its words."""

    status: int
    id: str
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command in a container: its exit code, and the last lines that it printed."""

    status: int
    said: tuple[str, ...]


def read_state(answer: bytes, image: Image) -> HostState:
    """The state of a host; what it left out is not there."""
    found = _fields(answer)
    ours = {blob.digest for blob in image.blobs}
    rooms = (rest.partition(" ") for rest in found.get("room", ()))
    images = (rest.partition(" ") for rest in found.get("image", ()))
    blobs = (rest.split() for rest in found.get("blob", ()))
    return HostState(
        frozenset(found.get("tool", ())) & frozenset(_TOOLS),
        frozenset(engine for engine in Engine if engine.value in found.get("answers", ())),
        _plain_word(found.get("machine", [""])[0]),
        frozenset(found.get("gpus", ())) & frozenset(_GPUS),
        tuple((name, room) for name, _, line in rooms if name in _PLACES and (room := _room(line)) is not None),
        tuple((Engine(name), id_in(line)) for name, _, line in images if name in _ENGINES and id_in(line)),
        tuple((each[0], int(each[1])) for each in blobs if len(each) == 2 and each[0] in ours and _is_count(each[1])),
    )


_ENGINES = tuple(engine.value for engine in Engine)


def read_sums(answer: bytes) -> dict[str, str]:
    """The sha256 of each blob there, by its name."""
    matches = (_SUM.fullmatch(line) for line in answer.decode("utf-8", "replace").splitlines())
    return {match[2]: match[1] for match in matches if match is not None}


def read_loaded(answer: bytes) -> Loaded:
    """What came of loading."""
    status, said = _status(answer)
    found = _fields(answer).get("image", [""])
    return Loaded(status, id_in(found[0]), said)


def read_ran(answer: bytes) -> Ran:
    """What came of a command in a container."""
    return Ran(*_status(answer))


def is_ready(answer: bytes) -> bool:
    """Whether the folder could be made."""
    return "ready" in answer.decode("utf-8", "replace").splitlines()


def id_in(text: str) -> str:
    """The id that a line begins with, in hex; "" where it has none."""
    match = _ID.match(text.strip())
    return match.group(1) if match else ""


def _fields(answer: bytes) -> dict[str, list[str]]:
    """The lines before `said` by their first word."""
    found: dict[str, list[str]] = {}
    for line in answer.decode("utf-8", "replace").split("\n"):
        if line == "said":
            break
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest.strip())
    return found


def _status(answer: bytes) -> tuple[int, tuple[str, ...]]:
    """The exit code (-1 where there is none), and what was said after it, made visible."""
    text = answer.decode("utf-8", "replace")
    _, _, said = text.partition("\nsaid\n")
    status = _fields(answer).get("status", [""])[0]
    lines = [visible(line.rstrip())[:400] for line in said.split("\n") if line.strip()]
    return (int(status) if _is_count(status) else -1), tuple(lines[-_MOST_SAID:])


def _room(line: str) -> Room | None:
    match = _DF.fullmatch(line)
    return Room(int(match[1]) << 10, visible(match[2])[:200]) if match else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 16


def _plain_word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", text) else ""

"""Recorded machines of a folder as hosts: DIR/NAME/machine.json or DIR/NAME.json. Data of others: links are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator

from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.document import RECORDING_NAME
from firstlight.fleet.look import AskedBy, HostLook, Looked, NotLooked
from firstlight.fleet.reply import read_evidence
from firstlight.fleet.target import MOST_HOSTS
from firstlight.opening import open_given

_LIMIT = 64 << 20


def recorded_hosts(folder: str) -> tuple[HostLook, ...]:
    """Each machine of the folder under the name of its file or folder; one that cannot be read is named too."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(
            f"--facts {folder!a}: {why}; accepted: a folder of machines (`firstlight facts --record`)"
        ) from None
    found = [(name, path) for name in names for path in _file_of(folder, name)]
    if not found:
        raise BadInput(f"--facts {folder!a}: holds no recorded machine; accepted: NAME/{RECORDING_NAME} or NAME.json")
    shown = [_shown(name) for name, _ in found]
    if twice := [name for name in dict.fromkeys(shown) if shown.count(name) > 1]:
        raise BadInput(f"--facts {folder!a}: {twice[0]!a} is there as a folder and as a file; move one away")
    if len(found) > MOST_HOSTS:
        raise BadInput(f"--facts {folder!a}: holds {len(found):,} machines; at most {MOST_HOSTS:,} are compared")
    return tuple(_read(name, path) for name, path in found)


def path_of(folder: str, host: str) -> str:
    """What `--facts` is given for one machine of the folder: DIR/NAME, or DIR/NAME.json where it is a file."""
    path = os.path.join(folder, host)
    return path if os.path.isdir(path) else f"{path}.json"


def _shown(name: str) -> str:
    return name.removesuffix(".json")


def _file_of(folder: str, name: str) -> Iterator[str]:
    path = os.path.join(folder, name)
    if os.path.isdir(path) and os.path.lexists(os.path.join(path, RECORDING_NAME)):
        yield os.path.join(path, RECORDING_NAME)
    elif name.endswith(".json"):
        yield path


def _read(name: str, path: str) -> HostLook:
    shown = _shown(name)
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return NotLooked(shown, "its recording is a link; links are not followed")
    try:
        with open_given(path) as file:
            data = file.read(_LIMIT + 1)
        if len(data) > _LIMIT:
            return NotLooked(shown, f"its recording is larger than {_LIMIT >> 20} MiB")
        return Looked(shown, read_evidence(data, shown), AskedBy.RECORDED)
    except OSError as error:
        return NotLooked(shown, (error.strerror or "cannot be read").lower())
    except CouldNotLook as error:
        return NotLooked(shown, str(error))

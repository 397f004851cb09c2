"""Where an action happens: the project's folder, the folder it starts in, its environment, and files read with care."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from firstlight.frozen import dataclass
from firstlight.opening import open_regular

LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A project's folder and the folder an action starts in, both absolute."""

    root: str
    cwd: str
    env: Mapping[str, str]
    in_container: bool = False
    own: tuple[str, ...] = ()  # files that are this firstlight


def in_container(env: Mapping[str, str]) -> bool:
    """Whether this process runs in a container, by the marks that Docker, Podman, Apptainer and Kubernetes leave."""
    if any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv", "/.singularity.d")):
        return True
    return bool(env.get("KUBERNETES_SERVICE_HOST") or env.get("APPTAINER_CONTAINER") or env.get("container"))


def text_of(path: str) -> str | None:
    """The text of a regular file of up to 1 MiB; None where it cannot be had, is larger or is no text."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError):
        return None
    if len(data) > LARGEST_FILE or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def really(path: str) -> str:
    """The path with its links followed, as far as it is there."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def program_file(word: str, cwds: tuple[str, ...], env: Mapping[str, str]) -> str:
    """The file that a word starts, links followed; '' where none is found: /usr/bin/python3.11 for python."""
    try:
        if "/" in word:
            for cwd in cwds:
                path = os.path.join(cwd, os.path.expanduser(word))
                if os.path.exists(path):
                    return really(path)
            return ""
        found = shutil.which(word, path=env.get("PATH", os.defpath))
    except (OSError, ValueError):
        return ""
    return really(found) if found else ""

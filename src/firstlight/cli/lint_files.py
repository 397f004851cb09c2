"""The files that `lint` is given: read from the disk or from standard input, and found below a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.lint.kinds import ACCEPTED, known_kind
from firstlight.lint.model import Syntax
from firstlight.opening import open_given

SIZE_LIMIT = 4 << 20
MOST_FILES = 20_000  # that are looked at below a folder, by name
_LEFT_OUT = ("node_modules", "site-packages", "__pycache__", "venv", "env", "vendor", "third_party")
_HIDDEN_READ = (".github", ".devcontainer")
_MAY_BE = (".yml", ".yaml", ".toml", ".lock", ".json", ".txt", ".in", ".sh", ".bash", ".sbatch", ".slurm", ".job")


@dataclass(frozen=True, slots=True)
class Text:
    """A file that was read: its name as it is shown, its text."""

    shown: str
    text: str


def files_given(paths: tuple[str, ...], kind: Syntax | None) -> Iterator[str]:
    """The files to read, each once: those that are named, and those of a known kind below a folder that is named."""
    seen: set[str] = set()
    for path in paths:
        found = list(_below(_readable(path), kind)) if os.path.isdir(path) else [path]
        if not found:
            raise BadInput(f"{path}: no file in this folder is of a kind that lint reads. Accepted: {ACCEPTED}.")
        for each in found:
            if each not in seen:
                seen.add(each)
                yield each


def _readable(folder: str) -> str:
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise BadInput(f"{folder} cannot be read: {error.strerror}. Give a folder or files that may be read.") from None
    return folder


def known_of(paths: tuple[str, ...], kind: Syntax | None) -> tuple[str, ...]:
    """Those of the paths that are folders, or files of a known kind; one that is not there stays, to be refused."""
    return tuple(each for each in paths if not os.path.isfile(each) or _is_known(each, kind))


def _below(folder: str, kind: Syntax | None) -> Iterator[str]:
    """What lies below a folder and is of a known kind, without links, hidden folders and installed packages."""
    left = MOST_FILES
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if _is_entered(each))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(where, name))
            left -= 1
            if left < 0:
                raise BadInput(f"{folder}: more than {MOST_FILES} files; accepted: a smaller folder, or files by name.")
            if not os.path.islink(path) and _is_known(path, kind):
                yield path


def _is_entered(name: str) -> bool:
    return name in _HIDDEN_READ or not (name.startswith(".") or name in _LEFT_OUT)


def _is_known(path: str, kind: Syntax | None) -> bool:
    """Whether a file in a folder is one to lint; a shell script only where it is one for Slurm."""
    name = os.path.basename(path).lower()
    if not (name.endswith(_MAY_BE) or "dockerfile" in name or "containerfile" in name):
        return False
    try:
        text = _decoded(path, _bytes(path))
    except (OSError, BadInput):
        named = None if name.endswith((".sh", ".bash")) else known_kind(path, "{")
        return named is not None and (kind is None or named is kind)  # to be said, or refused, when it is read
    found = known_kind(path, text)
    if name.endswith((".txt", ".in", ".json", ".toml", ".lock")) and found is not known_kind(path, ""):
        return False  # by its content alone: many a list of words looks like a list of packages
    if found is Syntax.SHELL and "#SBATCH" not in text:
        return False
    return found is not None and (kind is None or found is kind)


def read_given(path: str) -> Text:
    """The text of a file that the user named; - is standard input."""
    try:
        data = sys.stdin.buffer.read(SIZE_LIMIT + 1) if path == "-" else _bytes(path)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(f"{path}: {why}; accepted: {ACCEPTED}.") from None
    return Text(_shown(path), _decoded(path, data))


def beside(path: str) -> str | None:
    """A file that another one names; None where it is not there."""
    try:
        return _bytes(path).decode("utf-8", "replace")
    except OSError:
        return None


def _decoded(path: str, data: bytes) -> str:
    if len(data) > SIZE_LIMIT:
        raise BadInput(f"{path}: larger than {SIZE_LIMIT >> 20} MiB; accepted: {ACCEPTED}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text (byte {error.start} is not UTF-8); accepted: {ACCEPTED}.") from None
    if "\0" in text:
        raise BadInput(f"{path}: not text (it holds a NUL byte); accepted: {ACCEPTED}.")
    return text


def _bytes(path: str) -> bytes:
    with open_given(path) as file:
        return file.read(SIZE_LIMIT + 1)


def _shown(path: str) -> str:
    name = "standard input" if path == "-" else path
    return name if name.isprintable() else ascii(name)

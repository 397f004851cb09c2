"""Reads a folder of wheels: each file once, through one open handle, for its digest and for what it says of itself."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from typing import IO

from firstlight.errors import BadInput
from firstlight.ways.shelf import ListedWheel
from firstlight.ways.wheel_target import Target, WheelFile, is_wheel_for

_BLOCK = 1 << 20
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_METADATA_LIMIT = 4 << 20
# What zipfile and the decompressors below it raise for an archive that is damaged, encrypted or packed unusually.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
)
_NOT_ONE_WHEEL = "Take it out of the folder, or get it again from where it came from."


def shelved(folder: str, target: Target) -> tuple[ListedWheel, ...]:
    """Every wheel for a machine in a folder that nobody made a list for: what lies there now is the list.

    A page of links is refused: pip follows them to wherever they lead. Anything else that is no wheel is not looked at.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise BadInput(f"{folder}: {(error.strerror or '').lower()}; accepted: a folder of wheels.") from None
    for name in names:
        if name.lower().endswith((".html", ".htm")):
            raise BadInput(f"{folder}/{name}: pip follows the links of such a page. Take it out of the folder.")
    return tuple(listed_wheel(folder, name) for name in names if is_wheel_for(target, name))


def listed_wheel(folder: str, name: str) -> ListedWheel:
    """A wheel with its digest; one that is not what its name says is refused by its name."""
    with opened(f"{folder}/{name}") as file:
        digest = sha256_of(file)
        return ListedWheel(described(f"{folder}/{name}", file), digest)


def wheel_file(folder: str, name: str) -> WheelFile:
    """A wheel with what it requires, without a digest."""
    with opened(f"{folder}/{name}") as file:
        return described(f"{folder}/{name}", file)


def opened(path: str) -> IO[bytes]:
    """A plain file, open; a pipe, a device or a folder of that name is refused and never waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Copy it again.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is not a file. Take it out of the folder.")
    return os.fdopen(descriptor, "rb")


def sha256_of(file: IO[bytes]) -> str:
    """The SHA-256 of an open file, read in pieces: wheels are gigabytes."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def described(path: str, file: IO[bytes]) -> WheelFile:
    """What the wheel says inside has to be what its name says, and every member has to stay below its folder."""
    name = os.path.basename(path)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.namelist()
            texts = [each for each in members if _METADATA.fullmatch(each)]
            header = archive.open(texts[0]).read(_METADATA_LIMIT).decode("utf-8", "replace") if texts else ""
    except _UNREADABLE as error:
        raise BadInput(f"{path} is not a whole wheel ({error}). {_NOT_ONE_WHEEL}") from None
    if len(texts) != 1:
        raise BadInput(f"{path} is not a whole wheel ({len(texts)} METADATA files, accepted: 1). {_NOT_ONE_WHEEL}")
    for member in members:
        if member.startswith("/") or "\\" in member or ".." in member.split("/"):
            raise BadInput(f"{path} holds {member[:80]!a}, a path that leads out of its folder. {_NOT_ONE_WHEEL}")
    fields = header.replace("\r\n", "\n").partition("\n\n")[0].replace("\n ", " ").replace("\n\t", " ").splitlines()
    wheel = WheelFile(name, tuple(_values(fields, "requires-dist")))
    project, version = ((*_values(fields, each), "")[0] for each in ("name", "version"))
    if not wheel.says(project, version):
        raise BadInput(
            f"{path} says inside that it is {project[:60]!a} {version[:60]!a}, and its name says {wheel.project} "
            f"{wheel.version}. {_NOT_ONE_WHEEL}"
        )
    return wheel


def _values(fields: list[str], name: str) -> list[str]:
    return [line.partition(":")[2].strip() for line in fields if line.lower().startswith(f"{name}:")]

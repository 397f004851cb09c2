"""What is in a blob here, in one pass: whether it is whole, its bytes unpacked, and which programs of note it has."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
import zlib
from pathlib import Path
from typing import BinaryIO

from firstlight.frozen import dataclass
from firstlight.ship.image import Blob

_PART = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_GUESS = 4  # Python has no zstd before 3.14: a layer of it is taken to be four times as large unpacked
_PROGRAM = re.compile(r"(?:\./|/)?((?:[A-Za-z0-9_.+-]+/){0,8}bin/firstlight)")
_PYTHON = re.compile(r"(?:\./|/)?((?:[A-Za-z0-9_.+-]+/){0,8}bin/python3)")


@dataclass(frozen=True, slots=True)
class Inside:
    """A whole blob: its bytes unpacked, and the paths of firstlight and of a Python in it, "" where there is none."""

    unpacked_bytes: int
    firstlight: str = ""  # /usr/local/bin/firstlight
    python: str = ""  # /usr/local/bin/python3


def look_inside(folder: Path, blob: Blob) -> Inside | None:
    """What is in a blob of the cache; None where it is not whole. Kept beside it, so that it is read once."""
    path, kept = folder / "blobs/sha256" / blob.digest, folder / "inside" / f"{blob.digest}.json"
    try:
        seen = path.stat()
    except OSError:
        return None
    stamp = [seen.st_size, seen.st_mtime_ns]
    try:
        document = json.loads(kept.read_text(encoding="utf-8"))
        if document["stamp"] == stamp:
            return Inside(int(document["unpacked"]), str(document["firstlight"]), str(document["python"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with open(path, "rb") as file:
        found = read_inside(file, blob)
    if found is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        paths = {"firstlight": found.firstlight, "python": found.python}
        text = {"stamp": stamp, "unpacked": found.unpacked_bytes, **paths}
        part.write_text(json.dumps(text), encoding="utf-8")
        os.replace(part, kept)
    return found


def read_inside(file: BinaryIO, blob: Blob) -> Inside | None:
    """The same of an open file."""
    stream = _Unpacking(file)
    firstlight, python = _programs(stream) if blob.kind == "layer" else ("", "")
    while stream.read(_PART):
        pass
    if stream.digest != blob.digest or stream.packed != blob.size_bytes:
        return None
    if stream.is_zstd:
        return Inside(blob.size_bytes * _ZSTD_GUESS, firstlight, python)
    return Inside(stream.unpacked, firstlight, python)


def _programs(stream: _Unpacking) -> tuple[str, str]:
    """Where firstlight and Python lie in a layer; "" where one does not, or the layer cannot be read as a tar."""
    found = {_PROGRAM: "", _PYTHON: ""}
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_PART) as archive:  # type: ignore[call-overload]
            for member in archive:
                for pattern in found if member.isfile() or member.issym() or member.islnk() else ():
                    if (match := pattern.fullmatch(member.name)) and not found[pattern]:
                        found[pattern] = f"/{match.group(1)}"
                archive.members = []
    except (tarfile.TarError, EOFError, ValueError):
        pass
    return found[_PROGRAM], found[_PYTHON]


class _Unpacking:
    """A blob as its unpacked bytes, with the digest of the packed ones."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha, self._left = file, hashlib.sha256(), bytearray()
        self._raw = b""
        self.packed = self.unpacked = 0
        first = self._more()
        self.is_zstd = first.startswith(_ZSTD)
        self._gzip = zlib.decompressobj(31) if first.startswith(_GZIP) else None
        self._raw = first

    @property
    def digest(self) -> str:
        return self._sha.hexdigest()

    def read(self, size: int) -> bytes:
        while not self._left and (data := self._raw or self._more()):
            self._raw = b""
            self._left += self._plain(data)
        out = bytes(self._left[:size])
        del self._left[:size]
        self.unpacked += len(out)
        return out

    def _more(self) -> bytes:
        data = self._file.read(_PART)
        self._sha.update(data)
        self.packed += len(data)
        return data

    def _plain(self, data: bytes) -> bytes:
        if self._gzip is None:
            return data
        try:
            out = self._gzip.decompress(data, 4 * _PART)
            self._raw = self._gzip.unconsumed_tail
            if self._gzip.eof:  # a layer may be several streams, one behind the other
                self._raw, self._gzip = self._gzip.unused_data, zlib.decompressobj(31)
        except zlib.error:  # damaged: the digest says so at the end
            return data
        return out

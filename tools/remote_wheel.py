"""Read a wheel on an index without downloading it: its file list, its METADATA and the first bytes of its libraries."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from firstlight.elf.image import arch_of_header
from firstlight.errors import CouldNotLook
from tools.refresh_tables import RangeFile, fetch

_TAIL_BYTES = 64 * 1024  # holds the central directory and METADATA of every NVIDIA wheel seen, 30 KB at the most
_STEP_BYTES = 8 * 1024  # a member's local header and the 4 KB that zipfile inflates at once
_HEADER_BYTES = 20  # of an ELF file, up to its machine
# A looser pattern takes algorithm.sort_heap.h of CCCL for a library.
_LIBRARY = re.compile(r"[^/]+\.so(?:\.\d+)*")
_PYTHON_MODULE = re.compile(r"\.(?:cpython-\d+|abi3|pypy\d+)[^/]*\.so$")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a wheel holds, e.g. nvidia/cu13/lib/libcudss.so.0 and a METADATA that requires nvidia-cublas."""

    libraries: tuple[str, ...]
    metadata: str


class TailFile(RangeFile):
    """A remote file whose end is fetched at once and kept: most wheels take one request."""

    def __init__(self, url: str, size: int) -> None:
        self._end_from = max(0, size - _TAIL_BYTES)
        self._end = b""
        super().__init__(url)

    def _ask_size(self) -> int:
        answer = fetch(self._url, {"Range": f"bytes={self._end_from}-{self._end_from + _TAIL_BYTES - 1}"})
        if not answer.whole_size:
            raise CouldNotLook(f"{urlsplit(self._url).path}: the index serves no ranges, and a wheel may be large.")
        self._end = answer.body
        return answer.whole_size

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._at < self._end_from:
            return super().readinto(buffer)
        part = self._end[self._at - self._end_from :][: len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def listing(url: str, size: int) -> Listing:
    """The shared libraries and the METADATA of a remote wheel; libraries of a stub folder are no libraries."""
    try:
        with zipfile.ZipFile(io.BufferedReader(TailFile(url, size), _STEP_BYTES)) as wheel:
            names = wheel.namelist()
            told = next((name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)), "")
            if not told:
                raise CouldNotLook(f"{urlsplit(url).path}: a wheel without METADATA.")
            libraries = tuple(sorted({_installed_as(name) for name in names if _is_library(name)} - {""}))
            return Listing(libraries, wheel.read(told).decode("utf-8"))
    except zipfile.BadZipFile as error:
        raise CouldNotLook(f"{urlsplit(url).path}: not a wheel ({error}).") from error


def arches(url: str, size: int, *, paths: Iterable[str]) -> dict[str, str]:
    """The machine that each library's own header names: x86_64; em-3 for the 32-bit ones beside them."""
    found = {}
    with zipfile.ZipFile(io.BufferedReader(TailFile(url, size), _STEP_BYTES)) as wheel:
        packed = {_installed_as(name): name for name in wheel.namelist()}
        for path in paths:
            with wheel.open(packed[path]) as member:
                found[path] = arch_of_header(member.read(_HEADER_BYTES))
    return found


def _is_library(name: str) -> bool:
    folder, file = posixpath.split(name)
    return bool(_LIBRARY.fullmatch(file)) and not _PYTHON_MODULE.search(file) and "stubs" not in folder.split("/")


def _installed_as(name: str) -> str:
    """Where a member lands under site-packages; "" for what goes elsewhere (NAME.data/data lands in the prefix)."""
    match = re.fullmatch(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<path>.+)", name)
    if match is None:
        return name
    return match["path"] if match["scheme"] in ("purelib", "platlib") else ""

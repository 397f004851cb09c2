"""Where the parts of an ELF file lie: its segments, its dynamic section, its strings.

Every byte range asked for ends up in a recording, and libtorch_cuda.so has a string table of several MB: strings
are fetched by themselves. Counts and offsets in the file are bounded before use, so a truncated or hostile file
gives None or a partial answer, never an exception.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from firstlight.machine.interface import Machine

if TYPE_CHECKING:
    import mmap

HEADER_SIZE = 1024  # the ELF header and, in nearly every file, all program headers behind it
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4

_ARCHES = {62: "x86_64", 183: "aarch64"}
_HIGHEST_OFFSET = 1 << 40
_MOST_SEGMENTS = 256
_MOST_TAGS = 1024
LONGEST_STRING = 8 << 10
_LONGEST_GROUP = 4 << 10
_STRING_GAP = 512  # strings nearer than this are fetched together
_STRING_STEP = 256  # sonames and version names end within it
_DT_STRTAB, _DT_STRSZ = 5, 10

Read = Callable[[int, int], bytes]  # offset and size to the bytes that are there


class Segment(NamedTuple):
    """One program header, e.g. PT_LOAD of 4096 bytes at file offset 0 for address 0."""

    kind: int
    offset: int
    address: int
    size: int


class Image(NamedTuple):
    """The parts that later reads start from: where segments lie and what the dynamic section says."""

    read: Read
    path: str
    arch: str
    segments: tuple[Segment, ...]
    tags: tuple[tuple[int, int], ...]

    def tag(self, wanted: int) -> int:
        """The value of the first tag of that kind, 0 when there is none."""
        return next((value for tag, value in self.tags if tag == wanted), 0)

    def file_offset(self, address: int) -> int | None:
        """Where the bytes of an address lie in the file."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        return None


def arch_of_header(header: bytes) -> str:
    """The arch that the first bytes of a file tell, e.g. 'x86_64'; '' when it is not an ELF file."""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return ""
    number = int.from_bytes(header[18:20], "big" if header[5] == 2 else "little")
    return _ARCHES.get(number, f"em-{number}") if header[4:6] == b"\x02\x01" else f"em-{number}"


def bytes_of_file(machine: Machine, path: str) -> Read:
    """Reads ranges of a file; empty where there is nothing, or where the offset can only be nonsense."""

    def read(offset: int, size: int) -> bytes:
        if size <= 0 or offset > _HIGHEST_OFFSET:
            return b""
        return machine.read_bytes(path, offset=offset, size=size) or b""

    return read


def bytes_of(data: bytes | bytearray | memoryview | mmap.mmap) -> Read:
    """Reads ranges of what is in memory already, e.g. of a member of a wheel."""

    def read(offset: int, size: int) -> bytes:
        return bytes(data[offset : offset + size]) if size > 0 and offset <= _HIGHEST_OFFSET else b""

    return read


def open_image(read: Read, path: str) -> Image | None:
    """The image of an ELF file, None when it is not one; without segments when it is 32-bit or big-endian."""
    header = read(0, HEADER_SIZE)
    arch = arch_of_header(header)
    if arch == "":
        return None
    if header[4:6] != b"\x02\x01" or len(header) < 64:
        return Image(read, path, arch, (), ())
    segments = _segments(read, header)
    dynamic = next((item for item in segments if item.kind == PT_DYNAMIC), None)
    tags: list[tuple[int, int]] = []
    if dynamic is not None:
        data = read(dynamic.offset, min(dynamic.size, 16 * _MOST_TAGS))
        for tag, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
            if tag == 0:
                break
            tags.append((tag, value))
    return Image(read, path, arch, segments, tuple(tags))


def _segments(read: Read, header: bytes) -> tuple[Segment, ...]:
    (start,) = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    if entry_size != 56:
        return ()
    size = 56 * min(count, _MOST_SEGMENTS)
    table = header[start : start + size] if start + size <= len(header) else read(start, size)
    return tuple(
        Segment(kind, offset, address, file_size)
        for kind, _, offset, address, _, file_size, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", table[: len(table) // 56 * 56]
        )
        if PT_LOAD <= kind <= PT_NOTE
    )


def strings(image: Image, offsets: list[int]) -> dict[int, str]:
    """Strings of the dynamic string table by their offset; neighbours share one read."""
    base = image.file_offset(image.tag(_DT_STRTAB))
    limit = image.tag(_DT_STRSZ)
    found: dict[int, str] = {}
    if base is None:
        return found
    group: list[int] = []
    for offset in [*sorted({offset for offset in offsets if offset < limit}), limit + _LONGEST_GROUP]:
        if group and (offset - group[-1] > _STRING_GAP or offset - group[0] > _LONGEST_GROUP):
            start = group[0]
            size = min(group[-1] + _STRING_STEP, limit) - start
            data = image.read(base + start, size)
            for item in group:
                found[item] = _string(image, data[item - start :], file_offset=base + item)
            group = []
        group.append(offset)
    return found


def _string(image: Image, data: bytes, *, file_offset: int) -> str:
    """The string that `data` begins with; one that runs past what was read (a long RPATH) is read on."""
    while b"\0" not in data and len(data) < LONGEST_STRING:
        more = image.read(file_offset + len(data), 2 * _STRING_STEP)
        if not more:
            break
        data += more
    return data.split(b"\0", 1)[0][:LONGEST_STRING].decode("utf-8", "replace")

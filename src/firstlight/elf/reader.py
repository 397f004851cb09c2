"""Read what the dynamic loader reads of an ELF file, in a few small range reads.

Every byte range asked for ends up in a recording, and libtorch_cuda.so has a string table of several MB: strings
are fetched by themselves. Counts and offsets in the file are bounded before use, so a truncated or hostile file
gives None or a partial answer, never an exception.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

HEADER_SIZE = 1024  # the ELF header and, in nearly every file, all program headers behind it

_ARCHES = {62: "x86_64", 183: "aarch64"}
_HIGHEST_OFFSET = 1 << 40
_MOST_SEGMENTS = 256
_MOST_SECTIONS = 1024
_MOST_TAGS = 1024
_MOST_VERSIONS = 1024
_LONGEST_STRING = 8 << 10
_LONGEST_GROUP = 4 << 10
_LONGEST_NOTE = 64 << 10
_STRING_GAP = 512  # strings nearer than this are fetched together
_STRING_STEP = 256  # sonames and version names end within it

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_VER_FLG_BASE = 1


class NeededVersions(NamedTuple):
    """Symbol versions that a file wants of one library, e.g. libc.so.6 and (GLIBC_2.17, GLIBC_2.34)."""

    library: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What the dynamic loader looks at, e.g. arch x86_64, needed (libc.so.6,), soname libz.so.1.

    Of a 32-bit or big-endian file only the arch is read. Search path elements are as written, $ORIGIN unexpanded.
    """

    path: str
    arch: str  # "x86_64", "aarch64", else "em-243" style; "em-62" is the 32-bit x32
    needed: tuple[str, ...]
    soname: str
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    interpreter: str


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class _Image(NamedTuple):
    """The parts that later reads start from: where segments lie and what the dynamic section says."""

    machine: Machine
    path: str
    arch: str
    segments: tuple[_Segment, ...]
    tags: tuple[tuple[int, int], ...]


def arch_of_header(header: bytes) -> str:
    """The arch that the first bytes of a file tell, e.g. 'x86_64'; '' when it is not an ELF file."""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return ""
    number = int.from_bytes(header[18:20], "big" if header[5] == 2 else "little")
    return _ARCHES.get(number, f"em-{number}") if header[4:6] == b"\x02\x01" else f"em-{number}"


def read_elf(machine: Machine, path: str) -> ElfFile | None:
    """What the loader reads of a file, e.g. of /usr/lib/libz.so.1; None when it is not a readable ELF file."""
    image = _open(machine, path)
    if image is None:
        return None
    single = dict(reversed(image.tags))  # the first of a repeated tag counts
    needed = [value for tag, value in image.tags if tag == _DT_NEEDED]
    strings = _strings(
        image, [*needed, *(single[tag] for tag in (_DT_SONAME, _DT_RPATH, _DT_RUNPATH) if tag in single)]
    )

    def text(tag: int) -> str:
        return strings.get(single[tag], "") if tag in single else ""

    return ElfFile(
        path=path,
        arch=image.arch,
        needed=tuple(name for name in (strings.get(value, "") for value in needed) if name),
        soname=text(_DT_SONAME),
        rpath=_split(text(_DT_RPATH)),
        runpath=_split(text(_DT_RUNPATH)),
        interpreter=_interpreter(image),
    )


def needed_versions(machine: Machine, path: str) -> tuple[NeededVersions, ...]:
    """Symbol versions a file asks for, e.g. (NeededVersions('libc.so.6', ('GLIBC_2.34',)),).

    Apart from read_elf because the names lie scattered over the string table and cost reads of their own.
    """
    image = _open(machine, path)
    if image is None:
        return ()
    table = _version_table(image, _DT_VERNEED, count=_tag(image, _DT_VERNEEDNUM))
    wanted: list[tuple[int, list[int]]] = []
    at, seen = 0, 0
    for _ in range(min(_tag(image, _DT_VERNEEDNUM), _MOST_VERSIONS)):
        if not 0 <= at <= len(table) - 16:
            break
        _, count, library, first, step = struct.unpack_from("<HHIII", table, at)
        names: list[int] = []
        entry = at + first
        while len(names) < count and seen < _MOST_VERSIONS and entry <= len(table) - 16:
            _, _, _, name, forward = struct.unpack_from("<IHHII", table, entry)
            names.append(name)
            seen, entry = seen + 1, entry + forward
            if forward == 0:
                break
        wanted.append((library, names))
        if step == 0:
            break
        at += step
    strings = _strings(image, [offset for library, names in wanted for offset in (library, *names)])
    return tuple(
        NeededVersions(strings.get(library, ""), tuple(strings[name] for name in names if name in strings))
        for library, names in wanted
    )


def defined_versions(machine: Machine, path: str) -> tuple[str, ...]:
    """Symbol versions a library offers, e.g. ('GLIBC_2.2.5', ..., 'GLIBC_2.36'); its own name left out."""
    image = _open(machine, path)
    if image is None:
        return ()
    table = _version_table(image, _DT_VERDEF, count=_tag(image, _DT_VERDEFNUM))
    offsets: list[int] = []
    at = 0
    for _ in range(min(_tag(image, _DT_VERDEFNUM), _MOST_VERSIONS)):
        if not 0 <= at <= len(table) - 20:
            break
        _, flags, _, count, _, first, step = struct.unpack_from("<HHHHIII", table, at)
        if count and not flags & _VER_FLG_BASE and at + first <= len(table) - 8:
            offsets.append(struct.unpack_from("<I", table, at + first)[0])
        if step == 0:
            break
        at += step
    strings = _strings(image, offsets)
    return tuple(strings[offset] for offset in offsets if strings.get(offset))


def read_note(machine: Machine, path: str, section: str) -> bytes | None:
    """Descriptor of the first note in a named section, e.g. the JSON of '.note.cuda.fwd_compatibility'."""
    header = _read(machine, path, offset=0, size=HEADER_SIZE)
    if arch_of_header(header) == "" or header[4:6] != b"\x02\x01" or len(header) < 64:
        return None
    (table_at,) = struct.unpack_from("<Q", header, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", header, 58)
    if entry_size != 64 or not names_index < count <= _MOST_SECTIONS:
        return None
    table = _read(machine, path, offset=table_at, size=64 * count)
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // 64 * 64]))
    if names_index >= len(sections):
        return None
    names = _read(machine, path, offset=sections[names_index][4], size=min(sections[names_index][5], _LONGEST_STRING))
    wanted = section.encode() + b"\0"
    for name, _, _, _, offset, size, *_ in sections:
        if names.startswith(wanted, name):
            return _descriptor(_read(machine, path, offset=offset, size=min(size, _LONGEST_NOTE)))
    return None


def _descriptor(note: bytes) -> bytes | None:
    """The descriptor of the first note: sizes of name and descriptor, a type, the name padded to 4, the descriptor.

    A size that runs past the section is cut, not refused: Orin's libcuda 13.2.1 is known for such padding.
    """
    if len(note) < 12:
        return None
    name_size, size, _ = struct.unpack_from("<III", note)
    start = 12 + (name_size + 3) // 4 * 4
    return note[start : start + size] or None


def _open(machine: Machine, path: str) -> _Image | None:
    header = _read(machine, path, offset=0, size=HEADER_SIZE)
    arch = arch_of_header(header)
    if arch == "":
        return None
    if header[4:6] != b"\x02\x01" or len(header) < 64:
        return _Image(machine, path, arch, (), ())
    segments = _segments(machine, path, header=header)
    dynamic = next((item for item in segments if item.kind == _PT_DYNAMIC), None)
    tags: list[tuple[int, int]] = []
    if dynamic is not None:
        data = _read(machine, path, offset=dynamic.offset, size=min(dynamic.size, 16 * _MOST_TAGS))
        for tag, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
            if tag == 0:
                break
            tags.append((tag, value))
    return _Image(machine, path, arch, segments, tuple(tags))


def _segments(machine: Machine, path: str, *, header: bytes) -> tuple[_Segment, ...]:
    (start,) = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    if entry_size != 56:
        return ()
    size = 56 * min(count, _MOST_SEGMENTS)
    table = (
        header[start : start + size] if start + size <= len(header) else _read(machine, path, offset=start, size=size)
    )
    return tuple(
        _Segment(kind, offset, address, file_size)
        for kind, _, offset, address, _, file_size, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", table[: len(table) // 56 * 56]
        )
        if kind in (_PT_LOAD, _PT_DYNAMIC, _PT_INTERP)
    )


def _interpreter(image: _Image) -> str:
    for segment in image.segments:
        if segment.kind == _PT_INTERP:
            data = _read(image.machine, image.path, offset=segment.offset, size=min(segment.size, 256))
            return data.split(b"\0", 1)[0].decode("utf-8", "replace")
    return ""


def _version_table(image: _Image, table_tag: int, *, count: int) -> bytes:
    """The bytes of a version table. No tag tells its length: room for nine versions a library, and 64 more."""
    start = _file_offset(image, _tag(image, table_tag))
    if start is None:
        return b""
    return _read(image.machine, image.path, offset=start, size=160 * min(count, _MOST_VERSIONS) + 1024)


def _tag(image: _Image, wanted: int) -> int:
    return next((value for tag, value in image.tags if tag == wanted), 0)


def _file_offset(image: _Image, address: int) -> int | None:
    for segment in image.segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    return None


def _strings(image: _Image, offsets: list[int]) -> dict[int, str]:
    """Strings of the dynamic string table by their offset; neighbours share one read."""
    base = _file_offset(image, _tag(image, _DT_STRTAB))
    limit = _tag(image, _DT_STRSZ)
    found: dict[int, str] = {}
    if base is None:
        return found
    group: list[int] = []
    for offset in [*sorted({offset for offset in offsets if offset < limit}), limit + _LONGEST_GROUP]:
        if group and (offset - group[-1] > _STRING_GAP or offset - group[0] > _LONGEST_GROUP):
            start = group[0]
            size = min(group[-1] + _STRING_STEP, limit) - start
            data = _read(image.machine, image.path, offset=base + start, size=size)
            for item in group:
                found[item] = _string(image, data[item - start :], file_offset=base + item)
            group = []
        group.append(offset)
    return found


def _string(image: _Image, data: bytes, *, file_offset: int) -> str:
    """The string that `data` begins with; one that runs past what was read (a long RPATH) is read on."""
    while b"\0" not in data and len(data) < _LONGEST_STRING:
        more = _read(image.machine, image.path, offset=file_offset + len(data), size=2 * _STRING_STEP)
        if not more:
            break
        data += more
    return data.split(b"\0", 1)[0][:_LONGEST_STRING].decode("utf-8", "replace")


def _split(search_path: str) -> tuple[str, ...]:
    return tuple(search_path.split(":")) if search_path else ()


def _read(machine: Machine, path: str, *, offset: int, size: int) -> bytes:
    """Bytes of the file; empty where there are none, or where the offset can only be nonsense."""
    if size <= 0 or offset > _HIGHEST_OFFSET:
        return b""
    return machine.read_bytes(path, offset=offset, size=size) or b""

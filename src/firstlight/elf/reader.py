"""What the dynamic loader reads of an ELF file: names, search paths, symbol versions, notes.

Of a file on a machine (`read_elf`, in a few small range reads) or of bytes at hand (`parse_elf`, for a member of a
wheel); files of x86_64 and aarch64 alike, whatever this host is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from firstlight.elf.image import (
    HEADER_SIZE,
    LONGEST_STRING,
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    PT_NOTE,
    Image,
    Read,
    arch_of_header,
    bytes_of,
    bytes_of_file,
    open_image,
    strings,
)
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

if TYPE_CHECKING:
    import mmap

_MOST_SECTIONS = 1024
_MOST_VERSIONS = 1024
_MOST_NOTES = 64
_LONGEST_NOTE = 64 << 10
_LARGEST_STRINGS = 64 << 20  # libtriton.so has 1 MB of them

_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH, _DT_AUXILIARY, _DT_FILTER = 1, 14, 15, 29, 0x7FFFFFFD, 0x7FFFFFFF
_NAMES = (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH, _DT_AUXILIARY, _DT_FILTER)
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DT_STRTAB, _DT_STRSZ = 5, 10
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
_NT_ABI_TAG, _NT_BUILD_ID = 1, 3
_KERNELS = ("Linux", "Hurd", "Solaris", "FreeBSD")


class NeededVersions(NamedTuple):
    """Symbol versions that a file wants of one library, e.g. libc.so.6 and (GLIBC_2.17, GLIBC_2.34)."""

    library: str
    names: tuple[str, ...]
    weak: tuple[str, ...] = ()  # those of `names` that the loader can do without


class Note(NamedTuple):
    """One note, e.g. of 'GNU', kind 3, with the 20 bytes of a build id."""

    name: str
    kind: int
    descriptor: bytes


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
    filters: tuple[str, ...] = ()  # DT_FILTER: loaded as what is needed is
    auxiliary: tuple[str, ...] = ()  # DT_AUXILIARY: loaded where it is found; libnvtx3interop.so.1 of CUDA 13 has one


def read_elf(machine: Machine, path: str) -> ElfFile | None:
    """What the loader reads of a file, e.g. of /usr/lib/libz.so.1; None when it is not a readable ELF file."""
    image = image_at(machine, path)
    return None if image is None else elf_of(image)


def parse_elf(data: bytes | bytearray | memoryview | mmap.mmap, path: str) -> ElfFile | None:
    """The same of bytes at hand, e.g. of a member of a wheel; `path` is what the answer calls it."""
    image = open_image(bytes_of(data), path)
    return None if image is None else elf_of(image)


def image_at(machine: Machine, path: str) -> Image | None:
    """The image of a file, to ask several things of; None when it is not a readable ELF file."""
    return open_image(bytes_of_file(machine, path), path)


def why_not_elf(machine: Machine, path: str) -> str:
    """Why the loader could not use a file, e.g. 'no such file' or 'not an ELF file'; '' when nothing speaks against it.

    What is inside the segments is not judged: a file that is only damaged further in reads as far as it goes.
    """
    if machine.read_bytes(path, size=1) is None:
        return machine.why_not(path)
    found = machine.stat(path)
    return _objection(bytes_of_file(machine, path), size=-1 if found is None else found.size)


def why_not_parsed(data: bytes | bytearray | memoryview | mmap.mmap) -> str:
    """The same of bytes at hand, e.g. 'cut short: 52 of 4096 bytes are there'."""
    return _objection(bytes_of(data), size=len(data))


def _objection(read: Read, *, size: int) -> str:
    header = read(0, HEADER_SIZE)
    if not header:
        return "an empty file"
    if header[:4] != b"\x7fELF":
        text = header.startswith((b"/* GNU ld script", b"INPUT", b"GROUP", b"OUTPUT_FORMAT"))
        return "not an ELF file: a linker script" if text else "not an ELF file"
    if len(header) < 64:
        return f"cut short: {len(header)} bytes, an ELF header has 64"
    if header[4:6] != b"\x02\x01":
        return "a 32-bit ELF file" if header[4] == 1 else "an ELF file of a big-endian machine"
    if (kind := int.from_bytes(header[16:18], "little")) not in (2, 3):
        names = {1: "an object file to link, not a library", 4: "a core dump"}
        return names.get(kind, f"an ELF file of type {kind}, neither a library nor a program")
    image = open_image(read, "")
    loads = [] if image is None else [item for item in image.segments if item.kind == PT_LOAD]
    if image is None or not loads:
        return "damaged: no segment to load"
    end = max(item.offset + item.size for item in loads)
    if 0 <= size < end:
        return f"cut short: {size} of {end} bytes are there"
    if all(item.kind != PT_DYNAMIC for item in image.segments):
        return "no dynamic section: linked statically, or only debug symbols"
    return "" if image.tags else "damaged: its dynamic section cannot be read"


def elf_of(image: Image) -> ElfFile:
    """What the loader reads of an open image."""
    values: dict[int, list[int]] = {tag: [] for tag in _NAMES}
    for tag, value in image.tags:
        if tag in values:
            values[tag].append(value)
    found = strings(image, [value for offsets in values.values() for value in offsets])

    def texts(tag: int) -> tuple[str, ...]:
        return tuple([found[value] for value in values[tag] if found.get(value)])

    def text(tag: int) -> str:  # the first of a repeated tag counts
        return found.get(values[tag][0], "") if values[tag] else ""

    return ElfFile(
        path=image.path,
        arch=image.arch,
        needed=texts(_DT_NEEDED),
        soname=text(_DT_SONAME),
        rpath=_split(text(_DT_RPATH)),
        runpath=_split(text(_DT_RUNPATH)),
        interpreter=_interpreter(image),
        filters=texts(_DT_FILTER),
        auxiliary=texts(_DT_AUXILIARY),
    )


def needed_versions(machine: Machine, path: str) -> tuple[NeededVersions, ...]:
    """Symbol versions a file asks for, e.g. (NeededVersions('libc.so.6', ('GLIBC_2.34',)),).

    Apart from read_elf because the names lie scattered over the string table and cost reads of their own.
    """
    image = image_at(machine, path)
    return () if image is None else needed_of(image)


def needed_of(image: Image) -> tuple[NeededVersions, ...]:
    """Symbol versions an open image asks for."""
    table = _version_table(image, _DT_VERNEED, count=image.tag(_DT_VERNEEDNUM))
    wanted: list[tuple[int, list[tuple[int, int]]]] = []
    at, seen = 0, 0
    for _ in range(min(image.tag(_DT_VERNEEDNUM), _MOST_VERSIONS)):
        if not 0 <= at <= len(table) - 16:
            break
        _, count, library, first, step = struct.unpack_from("<HHIII", table, at)
        names: list[tuple[int, int]] = []
        entry = at + first
        while len(names) < count and seen < _MOST_VERSIONS and entry <= len(table) - 16:
            _, flags, _, name, forward = struct.unpack_from("<IHHII", table, entry)
            names.append((name, flags))
            seen, entry = seen + 1, entry + forward
            if forward == 0:
                break
        wanted.append((library, names))
        if step == 0:
            break
        at += step
    found = strings(image, [offset for library, names in wanted for offset in (library, *(name for name, _ in names))])
    return tuple(
        NeededVersions(
            found.get(library, ""),
            tuple(found[name] for name, _ in names if name in found),
            tuple(found[name] for name, flags in names if name in found and flags & _VER_FLG_WEAK),
        )
        for library, names in wanted
    )


def defined_versions(machine: Machine, path: str) -> tuple[str, ...]:
    """Symbol versions a library offers, e.g. ('GLIBC_2.2.5', ..., 'GLIBC_2.36'); its own name left out."""
    image = image_at(machine, path)
    return () if image is None else defined_of(image)


def defined_of(image: Image) -> tuple[str, ...]:
    """Symbol versions an open image offers, its own name left out."""
    return tuple(name for name, flags in all_defined_of(image) if not flags & _VER_FLG_BASE)


def all_defined_of(image: Image) -> tuple[tuple[str, int], ...]:
    """Every version definition with its flags, the library's own name among them; () when it has no versions at all."""
    table = _version_table(image, _DT_VERDEF, count=image.tag(_DT_VERDEFNUM))
    offsets: list[tuple[int, int]] = []
    at = 0
    for _ in range(min(image.tag(_DT_VERDEFNUM), _MOST_VERSIONS)):
        if not 0 <= at <= len(table) - 20:
            break
        _, flags, _, count, _, first, step = struct.unpack_from("<HHHHIII", table, at)
        if count and at + first <= len(table) - 8:
            offsets.append((struct.unpack_from("<I", table, at + first)[0], flags))
        if step == 0:
            break
        at += step
    found = strings(image, [offset for offset, _ in offsets])
    return tuple((found[offset], flags) for offset, flags in offsets if found.get(offset))


def is_python_module(machine: Machine, path: str) -> bool:
    """Whether a library is an extension module that Python imports: libtriton.so has PyInit_libtriton."""
    image = image_at(machine, path)
    start = None if image is None else image.file_offset(image.tag(_DT_STRTAB))
    if image is None or start is None:
        return False
    module = path.rpartition("/")[2].partition(".")[0]
    return f"\0PyInit_{module}\0".encode() in image.read(start, min(image.tag(_DT_STRSZ), _LARGEST_STRINGS))


def notes_of(image: Image) -> tuple[Note, ...]:
    """Every note of the loaded segments, e.g. GNU's build id and ABI tag."""
    found: list[Note] = []
    for segment in image.segments:
        if segment.kind == PT_NOTE:
            data = image.read(segment.offset, min(segment.size, _LONGEST_NOTE))
            found.extend(_notes(data))
        if len(found) >= _MOST_NOTES:
            break
    return tuple(found[:_MOST_NOTES])


def build_id(notes: tuple[Note, ...]) -> str:
    """The build id as readelf prints it, e.g. '51657f818beb1ae70372216a99b7412b8a100a20'; '' when there is none."""
    found = (note.descriptor.hex() for note in notes if (note.name, note.kind) == ("GNU", _NT_BUILD_ID))
    return next(found, "")


def abi_tag(notes: tuple[Note, ...]) -> str:
    """The oldest kernel a file runs on as it says itself, e.g. 'Linux 3.2.0'; '' when it says nothing."""
    for note in notes:
        if (note.name, note.kind) == ("GNU", _NT_ABI_TAG) and len(note.descriptor) >= 16:
            system, *version = struct.unpack_from("<IIII", note.descriptor)
            kernel = _KERNELS[system] if system < len(_KERNELS) else f"system {system}"
            return f"{kernel} {'.'.join(str(part) for part in version)}"
    return ""


def read_note(machine: Machine, path: str, section: str) -> bytes | None:
    """Descriptor of the first note in a named section, e.g. the JSON of '.note.cuda.fwd_compatibility'.

    A size that runs past the section is cut, not refused: Orin's libcuda 13.2.1 is known for such padding.
    """
    read = bytes_of_file(machine, path)
    header = read(0, HEADER_SIZE)
    if arch_of_header(header) == "" or header[4:6] != b"\x02\x01" or len(header) < 64:
        return None
    (table_at,) = struct.unpack_from("<Q", header, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", header, 58)
    if entry_size != 64 or not names_index < count <= _MOST_SECTIONS:
        return None
    table = read(table_at, 64 * count)
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // 64 * 64]))
    if names_index >= len(sections):
        return None
    names = read(sections[names_index][4], min(sections[names_index][5], LONGEST_STRING))
    wanted = section.encode() + b"\0"
    for name, _, _, _, offset, size, *_ in sections:
        if names.startswith(wanted, name):
            first = next(iter(_notes(read(offset, min(size, _LONGEST_NOTE)))), None)
            return None if first is None else first.descriptor or None
    return None


def _notes(data: bytes) -> list[Note]:
    """Notes one behind the other: sizes of name and descriptor, a kind, the name, the descriptor, both padded to 4."""
    found: list[Note] = []
    at = 0
    while at + 12 <= len(data) and len(found) < _MOST_NOTES:
        name_size, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name_size + 3) // 4 * 4
        name = data[at + 12 : at + 12 + min(name_size, 256)].split(b"\0", 1)[0].decode("utf-8", "replace")
        found.append(Note(name, kind, data[start : start + size]))
        at = start + (size + 3) // 4 * 4
    return found


def _interpreter(image: Image) -> str:
    for segment in image.segments:
        if segment.kind == PT_INTERP:
            return image.read(segment.offset, min(segment.size, 256)).split(b"\0", 1)[0].decode("utf-8", "replace")
    return ""


def _version_table(image: Image, table_tag: int, *, count: int) -> bytes:
    """The bytes of a version table. No tag tells its length: room for nine versions a library, and 64 more."""
    start = image.file_offset(image.tag(table_tag))
    return b"" if start is None else image.read(start, 160 * min(count, _MOST_VERSIONS) + 1024)


def _split(search_path: str) -> tuple[str, ...]:
    return tuple(search_path.split(":")) if search_path else ()

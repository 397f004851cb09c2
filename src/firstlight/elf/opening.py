"""What glibc's loader does with the file at a path: takes it, passes it over, or stops there, and with which words.

The words are glibc's own where it has some. tests/elf/test_opening.py holds this against the real loader.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from firstlight.elf.image import (
    HEADER_SIZE,
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    Image,
    arch_of_header,
    bytes_of_file,
    open_image,
)
from firstlight.machine.interface import TOO_MANY_LINKS, Machine

_ET_EXEC, _ET_DYN = 2, 3
_ELFOSABI_GNU = 3
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 0x08000000


class Meeting(enum.Enum):
    """How the search goes on after a file."""

    ABSENT = "absent"  # nothing there, or it may not be opened: the next folder is tried
    FITS = "fits"  # taken, or for another machine and passed over: its arch tells
    ENDS_ROW = "ends the row"  # a loop of links, a socket: the other folders of the same search path are not tried
    REFUSED = "refused"  # loading ends with an error; LD_PRELOAD only warns
    FATAL = "fatal"  # the process dies (a bus error) or waits without end: for LD_PRELOAD too


class Met(NamedTuple):
    """One file as the loader meets it, e.g. FITS, x86_64; or REFUSED, '', 'file too short'."""

    meeting: Meeting
    arch: str = ""
    fault: str = ""


_ABSENT, _ENDS_ROW = Met(Meeting.ABSENT), Met(Meeting.ENDS_ROW)


def meet(machine: Machine, path: str) -> Met:
    """What the loader makes of the file at a path, links followed."""
    header = machine.read_bytes(path, size=HEADER_SIZE)
    if header is None:
        return _unreadable(machine, path)
    if len(header) < 64 and (len(header) < 20 or _size(machine, path) == len(header)):
        return _refused("file too short")
    if fault := _identity_fault(header):
        return _refused(fault)
    arch = arch_of_header(header)
    if header[4] != 2 or arch.startswith("em-") or len(header) < 64:  # passed over; or a recording has no more of it
        return Met(Meeting.FITS, arch)
    kind, version = struct.unpack_from("<H2xI", header, 16)
    if version != 1:
        return _refused("ELF file version does not match current one")
    if kind not in (_ET_EXEC, _ET_DYN):
        return _refused("only ET_DYN and ET_EXEC can be loaded")
    if int.from_bytes(header[54:56], "little") != 56:
        return _refused("ELF file's phentsize not the expected size")
    if kind == _ET_EXEC:
        return _refused("cannot dynamically load executable")
    return _inside(machine, path, header=header, arch=arch)


def _unreadable(machine: Machine, path: str) -> Met:
    """What is no plain file, or cannot be opened."""
    seen = machine.stat(path)
    if seen is None:
        return _ENDS_ROW if machine.why_not(path) == TOO_MANY_LINKS else _ABSENT
    if seen.kind == "folder":
        return _refused("cannot read file data: Is a directory")
    if seen.kind == "device":
        return _refused("file too short")
    if seen.kind == "other":
        return Met(Meeting.FATAL, "", "a FIFO: the loader waits there until somebody writes to it")
    return _ENDS_ROW if seen.kind == "socket" else _ABSENT  # a file that we may not read, the loader may not either


def _identity_fault(header: bytes) -> str:
    """What is wrong with the first 16 bytes; '' for a 32-bit file too, which is passed over as it is."""
    kind, order, version, system, system_version = header[4:9]
    faults = (
        (header[:4] != b"\x7fELF", "invalid ELF header"),
        (kind != 2, ""),
        (order != 1, "ELF file data encoding not little-endian"),
        (version != 1, "ELF file version ident does not match current one"),
        (system not in (0, _ELFOSABI_GNU), "ELF file OS ABI invalid"),
        (system_version and system != _ELFOSABI_GNU, "ELF file ABI version invalid"),
        (any(header[9:16]), "nonzero padding in e_ident"),
    )
    return next((words for is_so, words in faults if is_so), "")


def _inside(machine: Machine, path: str, *, header: bytes, arch: str) -> Met:
    """The segments held against the size of the file: what lies behind its end cannot be mapped, only met."""
    size = _size(machine, path)
    (start,) = struct.unpack_from("<Q", header, 32)
    (count,) = struct.unpack_from("<H", header, 56)
    if 0 <= size < start + 56 * count:
        return _refused("cannot read file data")
    image = open_image(bytes_of_file(machine, path), path)
    if image is None or len(image.read(start, 56 * count)) < 56 * count:
        return Met(Meeting.FITS, arch)  # a recording that has no more of it
    loads = [item for item in image.segments if item.kind == PT_LOAD]
    if not loads:
        return _refused("object file has no loadable segments")
    if all(item.kind != PT_DYNAMIC for item in image.segments):
        return _refused("object file has no dynamic section")
    end = max(item.offset + item.size for item in loads)
    if 0 <= size < end:
        return Met(
            Meeting.FATAL, "", f"cut short: {size} of {end} bytes are there, and the process dies of a bus error"
        )
    if _is_program(image):
        return _refused("cannot dynamically load position-independent executable")
    return Met(Meeting.FITS, arch)


def _is_program(image: Image) -> bool:
    has_loader = any(item.kind == PT_INTERP for item in image.segments)  # libc.so.6 has one too
    return has_loader and bool(image.tag(_DT_FLAGS_1) & _DF_1_PIE)


def _size(machine: Machine, path: str) -> int:
    """The size of a file; -1 where a recording does not say."""
    seen = machine.stat(path)
    return -1 if seen is None or seen.kind != "file" else seen.size


def _refused(fault: str) -> Met:
    return Met(Meeting.REFUSED, "", fault)

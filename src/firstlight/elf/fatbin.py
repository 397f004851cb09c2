"""For which GPUs a file holds code: the entries of its fat binaries, read from their headers.

A fat binary is a container (magic, header size, size) of entries; each entry's header says whether it is PTX or machine
code and for which architecture. Payloads, compressed or not, are not read. The layout is not documented by NVIDIA: it
was read off files that nvcc 13.0 makes, and cuobjdump is the referee in the tests.
"""

from __future__ import annotations

import enum
import struct

from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.versions import ComputeCapability

_MAGIC = 0xBA55ED50
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_PTX, _MACHINE_CODE = 1, 2
_ONLY_THIS_GPU, _FAMILY = 0x100000, 0x200000  # flags of sm_90a and sm_100f
_MOST_SECTIONS = 65536
_MOST_ENTRIES = 200_000
_NAMES_SIZE = 1 << 20


class CodeKind(enum.Enum):
    """What an entry is: machine code runs as it is, PTX is compiled by the driver when it is first used."""

    MACHINE_CODE = "sm"
    PTX = "compute"


@dataclass(frozen=True, slots=True, order=True)
class Code:
    """Code for one architecture, e.g. sm_90a."""

    number: int  # 90
    suffix: str  # "", "a": this GPU alone, "f": its family
    kind: str  # of CodeKind

    @property
    def capability(self) -> ComputeCapability:
        return ComputeCapability(self.number // 10, self.number % 10)

    def __str__(self) -> str:
        return f"{self.kind}_{self.number}{self.suffix}"

    def runs_on(self, device: ComputeCapability) -> bool:
        """By CUDA's own rules: machine code within its major, upwards; PTX upwards; 'a' nowhere else."""
        own = self.capability
        if self.suffix == "a":
            return own == device
        if self.suffix == "f" or self.kind == CodeKind.MACHINE_CODE.value:
            return own.major == device.major and own.minor <= device.minor
        return own <= device


@dataclass(frozen=True, slots=True)
class Fatbins:
    """The fat binaries of one file, one set of codes each: one per source file, as a rule."""

    path: str
    modules: tuple[tuple[Code, ...], ...]
    complaint: str  # why nothing was read, or where reading stopped; "" when all was read

    @property
    def codes(self) -> tuple[Code, ...]:
        """Every code once, e.g. (compute_90, sm_80, sm_90)."""
        return tuple(sorted({code for module in self.modules for code in module}))


def read_fatbins(machine: Machine, path: str, *, most: int = _MOST_ENTRIES) -> Fatbins:
    """The codes in a shared library, an executable or an object file; never raises for what the file holds.

    `most`: after so many modules the rest is left unread, and `complaint` says so.
    """
    header = machine.read_bytes(path, size=64)
    if header is None:
        return Fatbins(path, (), machine.why_not(path))
    if header[:6] != b"\x7fELF\x02\x01" or len(header) < 64:
        return Fatbins(path, (), "not a 64-bit ELF file")
    places = _places(machine, path, header)
    if not places:
        return Fatbins(path, (), "no CUDA code in it (no section .nv_fatbin)")
    modules: list[tuple[Code, ...]] = []
    for offset, size in places:
        complaint = _read_section(machine, path, place=(offset, size), modules=modules, most=most)
        if complaint:
            return Fatbins(path, tuple(modules), complaint)
    return Fatbins(path, tuple(modules), "" if modules else "its fat binaries are empty")


def _places(machine: Machine, path: str, header: bytes) -> list[tuple[int, int]]:
    """Offset and size of the sections that hold fat binaries."""
    (table_at,) = struct.unpack_from("<Q", header, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", header, 58)
    if entry_size != 64 or not names_index < count <= _MOST_SECTIONS:
        return []
    table = machine.read_bytes(path, offset=table_at, size=64 * count) or b""
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // 64 * 64]))
    if names_index >= len(sections):
        return []
    at, size = sections[names_index][4], min(sections[names_index][5], _NAMES_SIZE)
    names = machine.read_bytes(path, offset=at, size=size) or b""
    wanted = tuple(name + b"\0" for name in _SECTIONS)
    return [(entry[4], entry[5]) for entry in sections if names.startswith(wanted, entry[0])]


def _read_section(
    machine: Machine, path: str, *, place: tuple[int, int], modules: list[tuple[Code, ...]], most: int
) -> str:
    """Append the modules of one section; returns where reading stopped, '' at its end."""
    at, end = place[0], place[0] + place[1]
    entries = 0
    while at + 16 <= end:
        if len(modules) >= most:
            return f"the first {most} fat binaries were read"
        head = machine.read_bytes(path, offset=at, size=16) or b""
        if len(head) < 16:
            return f"cut short at byte {at}"
        magic, _, header_size, size = struct.unpack("<IHHQ", head)
        if magic == 0:  # padding between containers
            at += 8
            continue
        if magic != _MAGIC or header_size < 16 or at + header_size + size > end:
            return f"no fat binary at byte {at}, where one should begin"
        found = _read_container(machine, path, start=at + header_size, end=at + header_size + size)
        if found is None:
            return f"a fat binary at byte {at} has entries that do not fit into it"
        entries += len(found)
        if entries > _MOST_ENTRIES:
            return f"more than {_MOST_ENTRIES} entries; the rest was not read"
        if found:
            modules.append(tuple(sorted(set(found))))
        at += header_size + size
    return ""


def _read_container(machine: Machine, path: str, *, start: int, end: int) -> list[Code] | None:
    found: list[Code] = []
    at = start
    while at + 48 <= end:
        head = machine.read_bytes(path, offset=at, size=48) or b""
        if len(head) < 48:
            return None
        kind, _, header_size, size = struct.unpack_from("<HHIQ", head)
        (number,) = struct.unpack_from("<I", head, 28)
        (flags,) = struct.unpack_from("<Q", head, 40)
        if header_size < 48 or at + header_size + size > end or len(found) > _MOST_ENTRIES:
            return None
        if kind in (_PTX, _MACHINE_CODE) and 10 <= number < 1000:
            suffix = "a" if flags & _ONLY_THIS_GPU else "f" if flags & _FAMILY else ""
            word = CodeKind.PTX if kind == _PTX else CodeKind.MACHINE_CODE
            found.append(Code(number, suffix, word.value))
        at += header_size + size
    return found

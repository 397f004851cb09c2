"""The loader's cache, /etc/ld.so.cache: which files ldconfig knows for a name."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from firstlight.machine.interface import Machine

LD_CACHE = "/etc/ld.so.cache"

_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_MAGIC = b"ld.so-1.7.0"
_HEADER_SIZE, _ENTRY_SIZE = 48, 24
_SIZE_LIMIT = 4 << 20
_EXTENSION_MAGIC, _HWCAPS_SECTION = 0xEAA42174, 1
_HWCAP_EXTENSION = 1 << 62  # the low 32 bits are then an index into the glibc-hwcaps names
# What glibc's ldconfig writes for a libc6 library of each machine.
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}


class CacheEntry(NamedTuple):
    """One line of the cache, e.g. /lib/x86_64-linux-gnu/libcuda.so.1 with flags 0x0303 and no hwcaps folder."""

    path: str
    flags: int
    hwcaps: str  # "x86-64-v3", "" for a plain entry


class LdCache(NamedTuple):
    """The cache of a machine; empty with a reason when it is absent or damaged, as the loader then goes on without.

    A desktop has thousands of names of which a handful is asked for: text is decoded when a name is looked up.
    """

    reason: str = ""
    data: bytes = b""
    base: int = 0  # string offsets count from here
    lines: Mapping[int, Sequence[int]] = MappingProxyType({})  # offset of a name: offsets of its lines
    hwcaps_names: tuple[str, ...] = ()

    def entries(self, name: str) -> tuple[CacheEntry, ...]:
        """Every line for a name, in cache order."""
        wanted = name.encode("utf-8", "replace") + b"\0"
        found: list[int] = []
        at = self.data.find(wanted)
        while at >= 0:  # a name may stand several times: as the tail of each path it has
            found.extend(self.lines.get(at - self.base, ()))
            at = self.data.find(wanted, at + 1)
        found_entries = (self._entry(line) for line in sorted(found))
        return tuple(entry for entry in found_entries if entry is not None)

    def _entry(self, line: int) -> CacheEntry | None:
        flags, _, value, _, hwcap = struct.unpack_from("<iIIIQ", self.data, line)
        level = ""
        if hwcap:
            # Without the extension bit it is a legacy hwcaps folder, which glibc 2.37 and newer ignore.
            index = hwcap & 0xFFFFFFFF
            if not hwcap & _HWCAP_EXTENSION or index >= len(self.hwcaps_names):
                return None
            level = self.hwcaps_names[index]
        path = _text(self.data, self.base + value)
        return CacheEntry(path, flags, level) if path.startswith("/") else None

    def lookup(self, name: str, *, arch: str, hwcaps: tuple[str, ...]) -> tuple[CacheEntry, ...]:
        """Entries the loader may take for a name, its choice first.

        It tries that one only: where the file is gone, default folders come next, not the second entry.
        """
        flags = _FLAGS.get(arch)
        usable = [entry for entry in self.entries(name) if flags is None or entry.flags == flags]
        ranked = [entry for level in hwcaps for entry in usable if entry.hwcaps == level]
        return (*ranked, *(entry for entry in usable if not entry.hwcaps))


def read_ld_cache(machine: Machine, path: str = LD_CACHE) -> LdCache:
    """The loader's cache of a machine, e.g. with 536 lines; never raises for a damaged one."""
    data = machine.read_bytes(path, size=_SIZE_LIMIT)
    if data is None:
        return LdCache(f"{path}: {machine.why_not(path)}")
    base = _new_part(data)
    if base < 0 or len(data) < base + _HEADER_SIZE:
        return LdCache(f"{path}: not a cache that glibc 2.2 or newer reads")
    count, _, endianness, extensions = struct.unpack_from("<IIB3xI", data, base + len(_MAGIC))
    start = base + _HEADER_SIZE
    if endianness == 3 or len(data) < start + _ENTRY_SIZE * count:
        return LdCache(f"{path}: " + ("big-endian" if endianness == 3 else "cut short"))
    lines: dict[int, list[int]] = {}
    table = data[start : start + _ENTRY_SIZE * count]
    for number, (key,) in enumerate(struct.iter_unpack("<4xI16x", table)):
        lines.setdefault(key, []).append(start + _ENTRY_SIZE * number)
    return LdCache("", data, base, lines, _hwcaps_names(data, base=base, extensions=extensions))


def _new_part(data: bytes) -> int:
    """Where the new format starts: 0, or behind the old one in a combined file; -1 when there is none."""
    if data.startswith(_MAGIC):
        return 0
    if not data.startswith(_OLD_MAGIC) or len(data) < 16:
        return -1
    old_end = 16 + 12 * int.from_bytes(data[12:16], "little")
    start = (old_end + 7) // 8 * 8
    return start if data[start : start + len(_MAGIC)] == _MAGIC else -1


def _hwcaps_names(data: bytes, *, base: int, extensions: int) -> tuple[str, ...]:
    """Names of glibc-hwcaps folders in the order of their index, e.g. ('x86-64-v3', 'x86-64-v2')."""
    if not 0 < extensions <= len(data) - 8:
        return ()
    magic, count = struct.unpack_from("<II", data, extensions)
    if magic != _EXTENSION_MAGIC:
        return ()
    sections = data[extensions + 8 : extensions + 8 + 16 * min(count, 64)]
    for tag, _, offset, size in struct.iter_unpack("<IIII", sections[: len(sections) // 16 * 16]):
        if tag == _HWCAPS_SECTION:
            table = data[offset : offset + min(size, 4096)]
            return tuple(_text(data, base + at) for (at,) in struct.iter_unpack("<I", table[: len(table) // 4 * 4]))
    return ()


def _text(data: bytes, at: int) -> str:
    """The string at an offset, at most a path's length of it."""
    end = data.find(b"\0", at, at + 4096)
    return data[at : end if end >= 0 else at].decode("utf-8", "replace")

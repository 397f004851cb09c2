"""Which names a shared library asks for and which it has, by its dynamic symbol table; nothing else is read.

Of a large library only the hash table is read that the loader itself looks names up in: 0.6 MB of libtorch_cpu.so's
434. It holds 32 bits of each name, so that a name is taken for another one in about a thousand million.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from firstlight.elf.image import Image
from firstlight.elf.reader import image_at
from firstlight.machine.interface import Machine

_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_GNU_HASH = 4, 5, 6, 10, 0x6FFFFEF5
_SYMBOL = 24
_WEAK = 2
_MOST_ASKED = 50_000  # libtorch_cuda.so asks for 3,300 names
_LARGEST_STRINGS = 32 << 20
_LARGEST_HASH = 32 << 20
_LONGEST_CHAIN = 4096


class HashTable(NamedTuple):
    """The names that a library has, as the loader finds them; of the file at `path`."""

    path: str
    first: int  # index of the first symbol that is in the table: those in front of it are only asked for
    buckets: memoryview  # for each remainder of a hash the first symbol
    chains: memoryview  # the hash of each symbol; its lowest bit ends a row
    listed: frozenset[int] = frozenset()  # of a file without GNU's table: the hash of every name that it has

    def has(self, wanted: int) -> bool:
        """Whether the library has the name with this gnu_hash."""
        if not self.buckets:
            return wanted in self.listed
        index = self.buckets[wanted % len(self.buckets)]
        if index < self.first:
            return False
        for place in range(index - self.first, min(index - self.first + _LONGEST_CHAIN, len(self.chains))):
            if self.chains[place] | 1 == wanted | 1:
                return True
            if self.chains[place] & 1:
                return False
        return False


def gnu_hash(name: str) -> int:
    """The hash that the loader looks a name up by: 5381, then times 33 plus each byte."""
    value = 5381
    for byte in name.encode("latin-1", "replace"):
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def hash_table(machine: Machine, path: str) -> HashTable | None:
    """The hash table of a library; None where it is no ELF file, or where its names cannot be read."""
    image = image_at(machine, path)
    if image is None:
        return None
    return _hash_table(image) or _listed(image)


def _listed(image: Image) -> HashTable | None:
    """The names of a file that has the older kind of hash table alone, one by one."""
    count = _how_many(image)
    start = image.file_offset(image.tag(_DT_SYMTAB))
    if count is None or start is None or count > _MOST_ASKED:
        return None
    had = [offset for offset, _, section in _rows(image.read(start, _SYMBOL * count)) if section and offset]
    names = _texts(image, had)
    empty = _numbers(b"")
    return None if names is None else HashTable(image.path, 0, empty, empty, frozenset(map(gnu_hash, names)))


def _rows(table: bytes) -> list[tuple[int, int, int]]:
    """Place of the name, kind of binding and section of every symbol; section 0 is one that others have to bring."""
    whole = table[: len(table) // _SYMBOL * _SYMBOL]
    return [(name, info >> 4, section) for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", whole)]


def _hash_table(image: Image) -> HashTable | None:
    start = image.file_offset(image.tag(_DT_GNU_HASH)) if image.tag(_DT_GNU_HASH) else None
    head = b"" if start is None else image.read(start, 16)
    if start is None or len(head) < 16:
        return None
    buckets, first, bloom, _ = struct.unpack("<IIII", head)
    at = start + 16 + 8 * bloom
    if not buckets or 4 * buckets > _LARGEST_HASH or 8 * bloom > _LARGEST_HASH:
        return None
    places = _numbers(image.read(at, 4 * buckets))
    if len(places) < buckets:
        return None
    last = max(places)
    if last < first:  # a library that has no names of its own
        return HashTable(image.path, first, places, places[:0])
    size = min(4 * (last - first + _LONGEST_CHAIN), _LARGEST_HASH)
    return HashTable(image.path, first, places, _numbers(image.read(at + 4 * buckets, size)))


def _numbers(data: bytes) -> memoryview:
    """Bytes as numbers of 32 bits; x86_64 and aarch64 have them in the order of this machine."""
    return memoryview(data[: len(data) // 4 * 4]).cast("I")


def asked_names(machine: Machine, path: str) -> tuple[str, ...] | None:
    """The names that a file needs from others, those that it can do without left out; None where it cannot be read."""
    image = image_at(machine, path)
    count = None if image is None else _how_many_asked(image)
    start = None if image is None else image.file_offset(image.tag(_DT_SYMTAB))
    if image is None or count is None or start is None:
        return None
    table = image.read(start, _SYMBOL * min(count, _MOST_ASKED))
    return _texts(image, [name for name, binding, section in _rows(table) if not section and name and binding != _WEAK])


def _how_many_asked(image: Image) -> int | None:
    """How many symbols to look through: in a file with GNU's table those it asks for come first."""
    table = _hash_table(image)
    return _how_many(image) if table is None else table.first


def _how_many(image: Image) -> int | None:
    """How many symbols there are, by the older kind of hash table; None where there is none."""
    start = image.file_offset(image.tag(_DT_HASH)) if image.tag(_DT_HASH) else None
    head = b"" if start is None else image.read(start, 8)
    return struct.unpack("<II", head)[1] if len(head) == 8 else None


def _texts(image: Image, offsets: Iterable[int]) -> tuple[str, ...] | None:
    """Names by their places in the string table, which is read once from the first of them to the last."""
    limit = image.tag(_DT_STRSZ)
    places = [offset for offset in offsets if offset < limit]
    start = image.file_offset(image.tag(_DT_STRTAB))
    if start is None:
        return None
    if not places:
        return ()
    low, high = min(places), min(max(places) + 8192, limit)
    if high - low > _LARGEST_STRINGS:
        return None
    data = image.read(start + low, high - low)
    found = (data[place - low : data.find(b"\0", place - low)] for place in places)
    return tuple(text.decode("latin-1") for text in found if text)

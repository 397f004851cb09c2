"""Give a shared library one more NEEDED name, as `patchelf --add-needed` does, with nothing but its bytes.

The string table is copied behind the end of the file with the new name added, a note segment that the loader does
not need becomes the segment that maps the copy, and a spare entry of the dynamic section names it.
"""

from __future__ import annotations

import struct
from pathlib import Path

_PAGE = 0x10000  # of aarch64; x86_64's is smaller and divides it
_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
_NULL, _NEEDED, _STRTAB, _STRSZ = 0, 1, 5, 10


def add_needed(path: Path, *names: str) -> None:
    """Change a file in place; it fails loudly where the file has no room for it."""
    data = bytearray(path.read_bytes())
    path.write_bytes(bytes(with_needed(data, *names)))


def with_needed(data: bytearray, *names: str) -> bytearray:
    """The bytes of the changed file."""
    (table,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    heads = [(table + 56 * index, *struct.unpack_from("<IIQQQQQQ", data, table + 56 * index)) for index in range(count)]
    loads = [head for head in heads if head[1] == _LOAD]
    dynamic = next(head for head in heads if head[1] == _DYNAMIC)
    spare = next(head for head in heads if head[1] == _NOTE and head[0] > loads[-1][0])
    entries = {}
    end = 0
    for at in range(dynamic[3], dynamic[3] + dynamic[6], 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == _NULL:
            end = at
            break
        entries[tag] = (at, value)
    room = (dynamic[3] + dynamic[6] - end) // 16 - 1
    assert room >= len(names), f"the dynamic section has room for {room} more names, not {len(names)}"
    strings = bytes(data[_offset(loads, entries[_STRTAB][1]) :][: entries[_STRSZ][1]])
    for number, name in enumerate(names):
        struct.pack_into("<qQ", data, end + 16 * number, _NEEDED, len(strings))
        strings += name.encode() + b"\0"
    data += bytes(-len(data) % _PAGE)
    address = max(head[4] + head[7] for head in loads)
    address += -address % _PAGE
    struct.pack_into(
        "<IIQQQQQQ", data, spare[0], _LOAD, 4, len(data), address, address, len(strings), len(strings), _PAGE
    )
    struct.pack_into("<Q", data, entries[_STRTAB][0] + 8, address)
    struct.pack_into("<Q", data, entries[_STRSZ][0] + 8, len(strings))
    return data + strings


def _offset(loads: list[tuple[int, ...]], address: int) -> int:
    return next(address - head[4] + head[3] for head in loads if head[4] <= address < head[4] + head[6])

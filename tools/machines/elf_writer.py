"""Small ELF files with the parts that matter here: needed names, search paths, a note, symbols, GPU code, a string."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MACHINES = {"x86_64": 62, "aarch64": 183}
_BASE = 0x40 + 3 * 56  # ELF header and three program headers


@dataclass(frozen=True, slots=True)
class ElfSpec:
    """What the file should say, e.g. ElfSpec(needed=("libc.so.6",), soname="libcuda.so.1")."""

    arch: str = "x86_64"
    needed: tuple[str, ...] = ()
    soname: str = ""
    rpath: str = ""
    runpath: str = ""
    note_section: str = ""
    note: bytes = b""
    defines: tuple[str, ...] = ()  # symbol versions, e.g. GLIBC_2.39
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # versions wanted of a library: ("libc.so.6", ("GLIBC_2.28",))
    asks: tuple[str, ...] = ()  # names that it needs from others: _ZN3c105ErrorC2ENS_14SourceLocationESs
    has: tuple[str, ...] = ()  # names that it has
    gpu_code: tuple[str, ...] = ()  # sm_80, compute_90: the headers of a fat binary, without code
    text: bytes = b""  # bytes that lie somewhere in the file, e.g. the list of architectures


def make_elf(spec: ElfSpec) -> bytes:
    """The file's bytes; the same spec always gives the same bytes."""
    strings = _Strings()
    tags = [(1, strings.add(name)) for name in spec.needed]
    for tag, value in ((14, spec.soname), (15, spec.rpath), (29, spec.runpath)):
        if value:
            tags.append((tag, strings.add(value)))
    verdef = _version_definitions(spec.defines, strings)
    verneed = _version_needs(spec.needs, strings)
    symbols, hashes = _symbols(spec, strings)
    table = strings.data
    at_strings = _BASE
    at_verdef = _aligned(at_strings + len(table))
    at_verneed = _aligned(at_verdef + len(verdef))
    at_symbols = _aligned(at_verneed + len(verneed))
    at_hashes = _aligned(at_symbols + len(symbols))
    at_dynamic = _aligned(at_hashes + len(hashes))
    tags += [(5, at_strings), (10, len(table))]
    if verdef:
        tags += [(0x6FFFFFFC, at_verdef), (0x6FFFFFFD, len(spec.defines))]
    if verneed:
        tags += [(0x6FFFFFFE, at_verneed), (0x6FFFFFFF, len(spec.needs))]
    if symbols:
        tags += [(6, at_symbols), (11, 24), (0x6FFFFEF5, at_hashes)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in [*tags, (0, 0)])
    at_note = _aligned(at_dynamic + len(dynamic))
    note = _note(spec.note) if spec.note_section else b""
    at_text = _aligned(at_note + len(note))
    at_code = _aligned(at_text + len(spec.text))
    code = _fat_binary(spec.gpu_code)
    at_names = at_code + len(code)
    names = b"\0" + spec.note_section.encode() + b"\0.shstrtab\0" + (b".nv_fatbin\0" if code else b"")
    at_sections = _aligned(at_names + len(names))
    sections = _sections(spec, (at_note, len(note)), (at_names, len(names)))
    if code:
        sections += struct.pack("<IIQQQQIIQQ", len(names) - 11, 1, 0, 0, at_code, len(code), 0, 0, 8, 0)
    body = bytearray(at_sections)
    for offset, data in ((at_strings, table), (at_verdef, verdef), (at_verneed, verneed),
                         (at_symbols, symbols), (at_hashes, hashes), (at_dynamic, dynamic), (at_note, note),
                         (at_text, spec.text), (at_code, code), (at_names, names)):  # fmt: skip
        body[offset : offset + len(data)] = data
    size = at_sections + len(sections)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    counts = (64, 56, 3, 64, 4 if code else 3, 2)
    header += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[spec.arch], 1, 0, 0x40, at_sections, 0, *counts)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 6, at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8)
    segments += struct.pack("<IIQQQQQQ", 4, 4, at_note, at_note, at_note, len(note), len(note), 4)
    body[: len(header) + len(segments)] = header + segments
    return bytes(body) + sections


def _symbols(spec: ElfSpec, strings: _Strings) -> tuple[bytes, bytes]:
    """The dynamic symbols, those that are asked for first, and GNU's hash table of the others in one row."""
    if not (spec.asks or spec.has):
        return b"", b""
    table = bytes(24)
    for name in spec.asks:
        table += struct.pack("<IBBHQQ", strings.add(name), 0x12, 0, 0, 0, 0)
    for name in spec.has:
        table += struct.pack("<IBBHQQ", strings.add(name), 0x12, 0, 1, 0x1000, 8)
    first = 1 + len(spec.asks)
    head = struct.pack("<IIIIQI", 1, first, 1, 0, (1 << 64) - 1, first if spec.has else 0)
    hashes = [_gnu_hash(name) & ~1 for name in spec.has]
    return table, head + struct.pack(f"<{len(hashes)}I", *hashes[:-1], *(one | 1 for one in hashes[-1:]))


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _fat_binary(codes: tuple[str, ...]) -> bytes:
    """A container with one empty entry a code, as nvcc's files have them."""
    entries = b""
    for code in codes:
        kind, _, number = code.partition("_")
        flags = {"a": 0x100000, "f": 0x200000}.get(number[-1], 0)
        digits = int(number.rstrip("af"))
        entries += struct.pack("<HHIQIIHHIIIQQQ", 1 if kind == "compute" else 2, 0x101, 64, 0, 0, 0, 0, 0, digits, 0, 0,
                               flags, 0, 0)  # fmt: skip
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries if codes else b""


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        offset = len(self.data)
        self.data += text.encode() + b"\0"
        return offset


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7


def _note(descriptor: bytes) -> bytes:
    name = b"NVIDIA Corporation\0"
    padded = name + bytes(-len(name) % 4)
    return struct.pack("<III", len(name), len(descriptor), 0) + padded + descriptor + bytes(-len(descriptor) % 4)


def _version_definitions(names: tuple[str, ...], strings: _Strings) -> bytes:
    out = b""
    for index, name in enumerate(names):
        last = index == len(names) - 1
        out += struct.pack("<HHHHIII", 1, 0, index + 1, 1, _hash(name), 20, 0 if last else 28)
        out += struct.pack("<II", strings.add(name), 0)
    return out


def _version_needs(libraries: tuple[tuple[str, tuple[str, ...]], ...], strings: _Strings) -> bytes:
    out = b""
    for index, (library, names) in enumerate(libraries):
        step = 0 if index == len(libraries) - 1 else 16 + 16 * len(names)
        out += struct.pack("<HHIII", 1, len(names), strings.add(library), 16, step)
        for place, name in enumerate(names):
            forward = 0 if place == len(names) - 1 else 16
            out += struct.pack("<IHHII", _hash(name), 0, 2, strings.add(name), forward)
    return out


def _hash(name: str) -> int:
    value = 0
    for character in name.encode():
        value = (value << 4) + character
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value


def _sections(spec: ElfSpec, note: tuple[int, int], names: tuple[int, int]) -> bytes:
    def section(name: int, kind: int, place: tuple[int, int]) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, *place, 0, 0, 4, 0)

    out = bytes(64)
    out += section(1 if spec.note_section else 0, 7, note)
    return out + section(len(spec.note_section) + 2, 3, names)

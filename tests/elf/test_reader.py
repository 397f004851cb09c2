"""The ELF reader on files built for it, and on files that are cut, bent or lie about their sizes."""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.elf.image import bytes_of, open_image
from firstlight.elf.reader import (
    ElfFile,
    abi_tag,
    build_id,
    defined_of,
    defined_versions,
    image_at,
    needed_of,
    needed_versions,
    notes_of,
    parse_elf,
    read_elf,
    read_note,
    why_not_elf,
    why_not_parsed,
)
from firstlight.machine import Machine
from firstlight.machine.evidence import from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine

Build = Callable[..., Path]

NOTE = b'{"format":1,"CUDA version":"13.0","driver":[535,580],"device":[1,2]}'
NOTE_ASSEMBLY = (
    '__asm__(".section .note.test, \\"a\\", @note\\n.long 19, SIZE, 0\\n"\n'
    '".asciz \\"NVIDIA Corporation\\"\\n.balign 4\\n.byte BYTES\\n.previous");\n'
).replace("BYTES", ",".join(str(byte) for byte in NOTE))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    script = folder / "versions"
    script.write_text("FIRST_1.0 { global: nothing; };\nFIRST_1.1 { global: second; } FIRST_1.0;\n")
    return build(
        folder / "libsecond.so.2.5",
        "-Wl,-soname,libsecond.so.2",
        f"-Wl,--version-script={script}",
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib:${ORIGIN}",
        "-lc",
        source="int getpid(void);\nint second(void) { return getpid(); }\n" + _note(len(NOTE)),
    )


def _note(size: int) -> str:
    return NOTE_ASSEMBLY.replace("SIZE", str(size))


def _elf(machine: Machine, path: Path) -> ElfFile:
    found = read_elf(machine, str(path))
    assert found is not None
    return found


def test_a_built_library_is_read_back_as_it_was_built(library: Path) -> None:
    found = _elf(LiveMachine(), library)
    assert found.soname == "libsecond.so.2"
    assert found.needed == ("libc.so.6",)
    assert found.rpath == ("$ORIGIN/../lib", "${ORIGIN}")
    assert found.runpath == ()
    assert found.interpreter == ""
    assert found.arch == os.uname().machine
    assert defined_versions(LiveMachine(), str(library)) == ("FIRST_1.0", "FIRST_1.1")
    [wanted] = needed_versions(LiveMachine(), str(library))
    assert wanted.library == "libc.so.6"
    assert wanted.names[0].startswith("GLIBC_2.")


def test_runpath_and_rpath_are_told_apart_and_an_empty_last_element_is_kept(tmp_path: Path, build: Build) -> None:
    path = build(tmp_path / "libx.so", "-Wl,--enable-new-dtags,-rpath,$ORIGIN:")
    assert _elf(LiveMachine(), path).runpath == ("$ORIGIN", "")
    assert _elf(LiveMachine(), path).rpath == ()


def test_a_program_names_its_interpreter() -> None:
    assert "ld-linux" in _elf(LiveMachine(), Path(os.path.realpath("/bin/sh"))).interpreter


def _with_bytes(source: Path, target: Path, patches: dict[int, bytes]) -> Path:
    data = bytearray(source.read_bytes())
    for offset, patch in patches.items():
        data[offset : offset + len(patch)] = patch
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(("number", "arch"), [(62, "x86_64"), (183, "aarch64"), (243, "em-243")])
def test_a_64_bit_little_endian_file_of_any_machine_is_read(
    library: Path, tmp_path: Path, number: int, arch: str
) -> None:
    path = _with_bytes(library, tmp_path / "other.so", {18: struct.pack("<H", number)})
    found = _elf(LiveMachine(), path)
    assert (found.arch, found.needed) == (arch, ("libc.so.6",))


@pytest.mark.parametrize(
    ("patches", "arch"),
    [
        ({4: b"\x01", 18: struct.pack("<H", 62)}, "em-62"),  # x32: the machine number of x86_64, in 32 bits
        ({4: b"\x01", 18: struct.pack("<H", 3)}, "em-3"),
        ({5: b"\x02", 18: struct.pack(">H", 21)}, "em-21"),
    ],
)
def test_of_a_32_bit_or_big_endian_file_only_the_machine_is_told(
    library: Path, tmp_path: Path, patches: dict[int, bytes], arch: str
) -> None:
    found = _elf(LiveMachine(), _with_bytes(library, tmp_path / "other.so", patches))
    assert found == ElfFile(str(tmp_path / "other.so"), arch, (), "", (), (), "")


def test_what_is_not_an_elf_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("INPUT(-lfoo)\n")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("text", "empty", "absent", ""):
        path = str(tmp_path / name)
        assert read_elf(LiveMachine(), path) is None
        assert needed_versions(LiveMachine(), path) == ()
        assert defined_versions(LiveMachine(), path) == ()
        assert read_note(LiveMachine(), path, ".note.test") is None


def test_the_first_note_of_a_named_section_is_read(library: Path) -> None:
    assert read_note(LiveMachine(), str(library), ".note.test") == NOTE
    assert read_note(LiveMachine(), str(library), ".note.tes") is None
    assert read_note(LiveMachine(), str(library), ".note.absent") is None


def test_a_note_that_says_it_is_longer_than_its_section_is_cut(tmp_path: Path, build: Build) -> None:
    path = build(tmp_path / "libpadded.so", source=_note(9000))
    found = read_note(LiveMachine(), str(path), ".note.test")
    assert found is not None
    assert found.startswith(NOTE)
    assert len(found) < 100


def test_bytes_at_hand_read_as_the_file_does(library: Path) -> None:
    """The way a member of a wheel is read."""
    machine, path = LiveMachine(), str(library)
    data = library.read_bytes()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        for held in (data, bytearray(data), memoryview(data), view):
            assert parse_elf(held, path) == read_elf(machine, path)
            image = open_image(bytes_of(held), path)
            assert image is not None
            assert needed_of(image) == needed_versions(machine, path)
            assert defined_of(image) == defined_versions(machine, path)
    assert parse_elf(b"PK\x03\x04", path) is None


def test_the_build_id_and_the_abi_tag_are_told(tmp_path: Path, build: Build) -> None:
    path = build(tmp_path / "libid.so", "-Wl,--build-id=0x0123456789abcdef")
    image = image_at(LiveMachine(), str(path))
    assert image is not None
    assert build_id(notes_of(image)) == "0123456789abcdef"
    assert abi_tag(notes_of(image)) == ""
    program = image_at(LiveMachine(), os.path.realpath("/bin/sh"))
    assert program is not None
    assert abi_tag(notes_of(program)).startswith("Linux ")


def test_filters_and_auxiliary_libraries_are_told_apart_from_needed_ones(tmp_path: Path, build: Build) -> None:
    """A -fvisibility=hidden that reached the linker made libnvtx3interop.so.1 an auxiliary of 'visibility=hidden'."""
    path = build(tmp_path / "libaux.so", "-Wl,-fvisibility=hidden", "-Wl,-F,libfiltered.so.1", "-lc")
    found = _elf(LiveMachine(), path)
    assert (found.needed, found.filters, found.auxiliary) == (
        ("libc.so.6",),
        ("libfiltered.so.1",),
        ("visibility=hidden",),
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"/* GNU ld script */\nGROUP ( /lib/libc.so.6 )\n", "not an ELF file: a linker script"),
        (b"\x7fELF\x02\x01", "cut short: 6 bytes, an ELF header has 64"),
    ],
)
def test_why_a_file_is_no_library_is_said(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert why_not_elf(LiveMachine(), str(tmp_path / "file")) == reason
    assert why_not_parsed(content) == reason


@pytest.mark.parametrize(
    ("patches", "reason"),
    [
        ({4: b"\x01"}, "a 32-bit ELF file"),
        ({5: b"\x02"}, "an ELF file of a big-endian machine"),
        ({16: b"\x01\x00"}, "an object file to link, not a library"),
        ({16: b"\x04\x00"}, "a core dump"),
        ({16: b"\x09\x00"}, "an ELF file of type 9, neither a library nor a program"),
        ({32: b"\xff" * 8}, "damaged: no segment to load"),
        ({56: b"\x01\x00"}, "no dynamic section: linked statically, or only debug symbols"),
        ({}, ""),
    ],
)
def test_why_an_elf_file_cannot_be_used_is_said(
    library: Path, tmp_path: Path, patches: dict[int, bytes], reason: str
) -> None:
    path = _with_bytes(library, tmp_path / "other.so", patches)
    assert why_not_elf(LiveMachine(), str(path)) == reason
    assert why_not_parsed(path.read_bytes()) == reason


def test_a_download_that_stopped_is_called_cut_short(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()[:4096]
    (tmp_path / "half.so").write_bytes(data)
    assert why_not_parsed(data).startswith("cut short: 4096 of ")
    assert why_not_elf(LiveMachine(), str(tmp_path / "half.so")) == why_not_parsed(data)
    assert why_not_elf(LiveMachine(), str(tmp_path / "absent.so")) == "no such file"
    assert why_not_elf(LiveMachine(), str(tmp_path)) == "is a folder"


def _bytes_read(recording: RecordingMachine) -> int:
    return sum(len(data) for seen in recording.evidence.paths.values() for data in seen.pieces.values())


def test_a_string_table_of_a_megabyte_is_not_read_whole(tmp_path: Path, build: Build) -> None:
    symbols = "\n".join(
        f".globl symbol_with_a_long_name_{n:06}\nsymbol_with_a_long_name_{n:06}:" for n in range(30_000)
    )
    path = build(
        tmp_path / "libbig.so",
        "-Wl,-soname,libbig.so.1,-rpath," + ":".join(f"$ORIGIN/../../nvidia/part{n}/lib" for n in range(60)),
        "-lc",
        source=symbols + "\n",
        language="assembler",
    )
    recording = RecordingMachine(LiveMachine())
    found = _elf(recording, path)
    assert (found.soname, found.needed, len(found.rpath or found.runpath)) == ("libbig.so.1", ("libc.so.6",), 60)
    assert path.stat().st_size > 1_000_000
    assert _bytes_read(recording) < 8_000


def test_a_recording_gives_the_same_answers(library: Path) -> None:
    def ask(machine: Machine) -> list[object]:
        path = str(library)
        return [
            read_elf(machine, path),
            needed_versions(machine, path),
            defined_versions(machine, path),
            read_note(machine, path, ".note.test"),
        ]

    recording = RecordingMachine(LiveMachine())
    live = ask(recording)
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    assert ask(RecordedMachine(from_document(document, "test"))) == live


def _read_everything(path: Path) -> int:
    """All four readers; the bytes they asked for."""
    recording = RecordingMachine(LiveMachine())
    read_elf(recording, str(path))
    needed_versions(recording, str(path))
    defined_versions(recording, str(path))
    read_note(recording, str(path), ".note.test")
    return _bytes_read(recording)


def test_a_file_cut_anywhere_never_raises(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()
    for length in [*range(0, 1200, 7), *range(1200, len(data), 97)]:
        path = tmp_path / "cut.so"
        path.write_bytes(data[:length])
        _read_everything(path)


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=40))
def test_flipped_bytes_never_raise_and_never_make_it_read_much(
    library: Path, tmp_path: Path, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(library.read_bytes())
    for where, what in flips:
        # Squared: most flips hit the headers and the dynamic section's neighbourhood at the front.
        data[int(where * where * len(data))] ^= what
    path = tmp_path / "flipped.so"
    path.write_bytes(data)
    assert _read_everything(path) < 1 << 20


def test_a_dynamic_section_of_a_million_unterminated_names_is_bounded(tmp_path: Path) -> None:
    """Header, one PT_LOAD over everything, a dynamic section that never ends and a string table without a NUL."""
    tags = b"".join(struct.pack("<QQ", 1, (n * 4099) % 4_000_000) for n in range(100_000))
    names = b"x" * 4_000_000
    dynamic_at, names_at = 4096, 4096 + len(tags) + 32
    tags = struct.pack("<QQQQ", 5, names_at, 10, 1 << 62) + tags
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 40, 1 << 40, 4096)
    header += struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, 1 << 60, 1 << 60, 8)
    path = tmp_path / "endless.so"
    path.write_bytes(header.ljust(4096, b"\0") + tags + names)
    recording = RecordingMachine(LiveMachine())
    found = _elf(recording, path)
    assert 0 < len(found.needed) <= 1024
    assert max(len(name) for name in found.needed) <= 8192
    assert _bytes_read(recording) < 16 << 20


@pytest.mark.parametrize("offset", [32, 40], ids=["program headers", "section headers"])
def test_an_offset_beyond_any_file_is_no_error(library: Path, tmp_path: Path, offset: int) -> None:
    path = _with_bytes(library, tmp_path / "far.so", {offset: b"\xff" * 8})
    found = _elf(LiveMachine(), path)
    assert found.needed == (() if offset == 32 else ("libc.so.6",))
    assert read_note(LiveMachine(), str(path), ".note.test") == (NOTE if offset == 32 else None)

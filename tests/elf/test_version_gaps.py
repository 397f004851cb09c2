"""Symbol versions that are asked for and not there, against what the real loader complains about."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.elf.closure import closure
from firstlight.elf.image import bytes_of, open_image
from firstlight.elf.version_gaps import VersionGap, version_gaps
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
LOADER = LOADERS.get(os.uname().machine, "")
DT_VERNEED = 0x6FFFFFFE

pytestmark = pytest.mark.skipif(not os.access(LOADER, os.X_OK), reason="glibc's loader is not installed")


@pytest.fixture
def old_and_new(tmp_path: Path, build: Build) -> Path:
    """libuser.so built against a libpart.so.1 that has PART_2.0; the one that is found has PART_1.0 alone."""
    scripts = {"old": "PART_1.0 { global: one; };\n", "new": "PART_1.0 { global: one; };\nPART_2.0 { global: two; };\n"}
    for name, script in scripts.items():
        (tmp_path / f"{name}.map").write_text(script)
        source = "int one(void) { return 1; }\n" + ("int two(void) { return 2; }\n" if name == "new" else "")
        flags = ("-Wl,-soname,libpart.so.1", f"-Wl,--version-script={tmp_path / name}.map")
        build(tmp_path / name / "libpart.so.1", *flags, source=source)
    source = "int one(void);\nint two(void);\nint use(void) { return one() + two(); }\n"
    flags = (str(tmp_path / "new" / "libpart.so.1"), "-Wl,-rpath,$ORIGIN/old")
    return build(tmp_path / "libuser.so", *flags, source=source)


def _gaps(path: Path) -> tuple[VersionGap, ...]:
    machine = LiveMachine(environ={})
    found = closure(machine, str(path))
    assert found is not None
    return version_gaps(machine, found)


def _real(path: Path) -> set[tuple[str, str]]:
    """Version and requester of each complaint of the loader."""
    environ = {"LD_TRACE_LOADED_OBJECTS": "1"}
    done = subprocess.run([LOADER, str(path)], env=environ, capture_output=True, text=True, check=False)
    return set(re.findall(r"(?<!weak )version `(\S+)' not found \(required by (.+?)\)", done.stderr))


def test_a_version_that_the_library_lacks_is_told_with_both_files(tmp_path: Path, old_and_new: Path) -> None:
    part = str(tmp_path / "old" / "libpart.so.1")
    assert _gaps(old_and_new) == (VersionGap(str(old_and_new), "libpart.so.1", "PART_2.0", part, weak=False),)
    assert _real(old_and_new) == {("PART_2.0", str(old_and_new))}


def test_the_library_it_was_built_against_has_no_gap(tmp_path: Path, old_and_new: Path) -> None:
    shutil.copy(tmp_path / "new" / "libpart.so.1", tmp_path / "old" / "libpart.so.1")
    assert _gaps(old_and_new) == ()
    assert _real(old_and_new) == set()


def test_a_library_without_versions_passes_as_with_the_loader(tmp_path: Path, build: Build, old_and_new: Path) -> None:
    build(tmp_path / "old" / "libpart.so.1", "-Wl,-soname,libpart.so.1", source="int one(void) { return 1; }\n")
    assert _gaps(old_and_new) == ()
    assert _real(old_and_new) == set()


def test_a_missing_library_is_not_a_gap(tmp_path: Path, old_and_new: Path) -> None:
    (tmp_path / "old" / "libpart.so.1").unlink()
    assert _gaps(old_and_new) == ()


def test_a_weak_version_is_told_as_weak_and_the_loader_goes_on(tmp_path: Path, build: Build, old_and_new: Path) -> None:
    source = "int one(void);\n__attribute__((weak)) int two(void);\nint use(void) { return two ? two() : one(); }\n"
    flags = (str(tmp_path / "new" / "libpart.so.1"), "-Wl,-rpath,$ORIGIN/old")
    path = build(old_and_new, *flags, source=source)
    _make_weak(path)
    [gap] = _gaps(path)
    assert (gap.version, gap.weak) == ("PART_2.0", True)
    assert _real(path) == set()
    code = f"import ctypes; print(ctypes.CDLL({str(path)!r}).use())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], env={}, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr


def _make_weak(path: Path) -> None:
    """Set VER_FLG_WEAK for every version of the first library the file asks of."""
    data = bytearray(path.read_bytes())
    image = open_image(bytes_of(data), "")
    assert image is not None
    table = image.file_offset(image.tag(DT_VERNEED))
    assert table is not None
    _, count, _, first, _ = struct.unpack_from("<HHIII", data, table)
    entry = table + first
    for _ in range(count):
        data[entry + 4 : entry + 6] = struct.pack("<H", 2)
        entry += struct.unpack_from("<I", data, entry + 12)[0]
    path.write_bytes(data)


def test_versions_of_the_loader_itself_are_looked_for_in_the_loader(tmp_path: Path, build: Build) -> None:
    """Thread-local storage makes a library ask ld-linux-x86-64.so.2 for GLIBC_2.3."""
    path = build(
        tmp_path / "libtls.so", LOADER, "-lc", source="extern __thread int far;\nint get(void) { return far; }\n"
    )
    assert b"__tls_get_addr" in path.read_bytes()
    assert _gaps(path) == ()
    data = path.read_bytes().replace(b"GLIBC_2.3\0", b"GLIBC_2.X\0").replace(b"GLIBC_2.17\0", b"GLIBC_2.1X\0")
    path.write_bytes(data)
    assert {(gap.version, gap.requester) for gap in _gaps(path)} == _real(path)

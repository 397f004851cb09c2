"""The loader's cache against ldconfig: the one of this machine, and ones that ldconfig writes for the test."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.elf.ld_cache import LD_CACHE, LdCache, read_ld_cache
from firstlight.elf.ld_conf import configured_folders
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

LDCONFIG = "/sbin/ldconfig"
ARCH = os.uname().machine
LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")

needs_ldconfig = pytest.mark.skipif(not os.access(LDCONFIG, os.X_OK), reason="ldconfig is not installed")


@needs_ldconfig
def test_this_machines_cache_reads_as_ldconfig_prints_it() -> None:
    printed = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, check=True).stdout
    want: dict[str, list[str]] = {}
    for name, kind, path in re.findall(r"^\t(\S+) \((.*?)\) => (\S+)$", printed, re.MULTILINE):
        if kind in ("libc6,x86-64", "libc6,AArch64"):
            want.setdefault(name, []).append(path)
    cache = read_ld_cache(LiveMachine())
    assert cache.reason == ""
    assert len(want) > 20
    got = {name: [entry.path for entry in cache.lookup(name, arch=ARCH, hwcaps=())] for name in want}
    assert got == want


def _write_cache(tmp_path: Path, folders: list[Path], *flags: str) -> LdCache:
    """The cache that ldconfig writes for these folders, then the system's own."""
    (tmp_path / "conf").write_text("".join(f"{folder}\n" for folder in folders))
    command = [LDCONFIG, "-X", "-C", str(tmp_path / "cache"), "-f", str(tmp_path / "conf"), *flags]
    subprocess.run(command, check=True, capture_output=True)
    return read_ld_cache(LiveMachine(), str(tmp_path / "cache"))


@pytest.fixture
def two_folders(tmp_path: Path, build: Build) -> list[Path]:
    folders = [tmp_path / "zz-first", tmp_path / "aa-second"]
    for folder in folders:
        build(folder / "libtwice.so.1", "-Wl,-soname,libtwice.so.1")
    return folders


@needs_ldconfig
@pytest.mark.parametrize("style", ["new", "compat"])
def test_both_forms_of_the_file_give_every_entry_in_the_order_of_the_folders(
    tmp_path: Path, two_folders: list[Path], style: str
) -> None:
    cache = _write_cache(tmp_path, two_folders, "-c", style)
    found = cache.lookup("libtwice.so.1", arch=ARCH, hwcaps=())
    assert [entry.path for entry in found] == [str(folder / "libtwice.so.1") for folder in two_folders]
    assert cache.lookup("libtwice.so", arch=ARCH, hwcaps=()) == ()
    assert cache.lookup("twice.so.1", arch=ARCH, hwcaps=()) == ()


@needs_ldconfig
def test_an_entry_of_another_machine_is_not_taken(tmp_path: Path, two_folders: list[Path]) -> None:
    other = "aarch64" if ARCH == "x86_64" else "x86_64"
    assert _write_cache(tmp_path, two_folders).lookup("libtwice.so.1", arch=other, hwcaps=()) == ()


@needs_ldconfig
@pytest.mark.skipif(ARCH != "x86_64", reason="glibc has glibc-hwcaps folders for x86_64 only")
def test_an_entry_for_a_better_cpu_comes_first_where_the_cpu_has_it(tmp_path: Path, build: Build) -> None:
    folder = tmp_path / "lib"
    plain = build(folder / "libfast.so.1", "-Wl,-soname,libfast.so.1")
    special = {
        level: build(folder / "glibc-hwcaps" / level / "libfast.so.1", "-Wl,-soname,libfast.so.1") for level in LEVELS
    }
    cache = _write_cache(tmp_path, [folder])

    def paths(*hwcaps: str) -> list[str]:
        return [entry.path for entry in cache.lookup("libfast.so.1", arch=ARCH, hwcaps=hwcaps)]

    assert paths() == [str(plain)]
    assert paths("x86-64-v2") == [str(special["x86-64-v2"]), str(plain)]
    assert paths("x86-64-v3", "x86-64-v2") == [str(special["x86-64-v3"]), str(special["x86-64-v2"]), str(plain)]


def test_an_absent_cache_is_empty_and_says_so(tmp_path: Path) -> None:
    cache = read_ld_cache(LiveMachine(root=str(tmp_path)))
    assert cache.reason == f"{LD_CACHE}: no such file"
    assert cache.lookup("libc.so.6", arch=ARCH, hwcaps=()) == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a cache"),
        (b"ld.so-1.7.0\0\xff\xff\xff\xff", "not a cache"),
        (b"glibc-ld.so.cache1.1", "not a cache"),
        (b"glibc-ld.so.cache1.1" + b"\xff\xff\xff\x7f" + bytes(24), "cut short"),
        (b"glibc-ld.so.cache1.1" + bytes(8) + b"\x03" + bytes(19), "big-endian"),
    ],
    ids=["empty", "old format alone", "magic alone", "count of two thousand million", "big-endian"],
)
def test_a_damaged_cache_is_empty_and_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "cache").write_bytes(content)
    cache = read_ld_cache(LiveMachine(), str(tmp_path / "cache"))
    assert reason in cache.reason
    assert cache.entries("libc.so.6") == ()


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=30),
    length=st.integers(0, 1 << 17),
)
def test_a_bent_or_cut_cache_never_raises(tmp_path: Path, flips: list[tuple[int, int]], length: int) -> None:
    data = bytearray(Path(LD_CACHE).read_bytes()[: max(64, length)])
    for where, what in flips:
        data[where % len(data)] ^= what
    (tmp_path / "cache").write_bytes(data)
    cache = read_ld_cache(LiveMachine(), str(tmp_path / "cache"))
    for name in ("libc.so.6", "libstdc++.so.6", ""):
        for entry in cache.lookup(name, arch=ARCH, hwcaps=LEVELS):
            assert entry.path.startswith("/")


@needs_ldconfig
def test_folders_that_are_configured_are_those_that_ldconfig_scans() -> None:
    told = subprocess.run([LDCONFIG, "-v", "-N", "-X"], capture_output=True, text=True, check=False).stdout
    scanned = re.findall(r"^(/\S+): \(from /etc/ld\.so\.conf", told, re.MULTILINE)
    if not scanned:
        pytest.skip("this ldconfig does not say where a folder comes from (glibc before 2.33), or there is none")
    ours = [folder for folder in configured_folders(LiveMachine()) if os.path.isdir(folder)]
    assert [folder for folder in ours if folder in scanned] == scanned


def test_an_included_file_counts_where_the_include_stands(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "ld.so.conf.d").mkdir(parents=True)
    (etc / "ld.so.conf").write_text("/opt/first\ninclude ld.so.conf.d/*.conf  # all\n/opt/last/\nhwcap 0 nosegneg\n")
    (etc / "ld.so.conf.d" / "b.conf").write_text("/opt/b\ninclude /etc/ld.so.conf.d/*.conf\n")
    (etc / "ld.so.conf.d" / "a.conf").write_text("# nothing\n/opt/a\n/opt/first\n")
    (etc / "ld.so.conf.d" / "c.other").write_text("/opt/c\n")
    machine = LiveMachine(root=str(tmp_path), environ={})
    assert configured_folders(machine) == ("/opt/first", "/opt/a", "/opt/b", "/opt/last")
    assert configured_folders(machine, "/etc/absent") == ()

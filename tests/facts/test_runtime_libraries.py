"""glibc and libstdc++ by the versions they define: this machine's against the C library itself, others built."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.facts.runtime_libraries import RuntimeLibraries, probe_runtime_libraries
from firstlight.machine.evidence import from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine

ARCH = os.uname().machine


def _library(path: Path, soname: str, versions: tuple[str, ...], machine_number: int = 0) -> Path:
    """A library that defines these versions; a machine number makes it one of another machine."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    script = path.with_suffix(".versions")
    script.write_text("".join(f"{version} {{ global: f{n}; }};\n" for n, version in enumerate(versions)))
    source = "".join(f"int f{n}(void) {{ return {n}; }}\n" for n in range(len(versions)))
    command = [gcc, "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(path), "-x", "c", "-"]
    flags = [f"-Wl,--version-script={script}"] if versions else []
    subprocess.run([*command, *flags], input=source, text=True, check=True)
    if machine_number:
        data = bytearray(path.read_bytes())
        data[18:20] = struct.pack("<H", machine_number)
        path.write_bytes(data)
    return path


def _probe(root: Path, arch: str = ARCH, **environ: str) -> RuntimeLibraries:
    machine = LiveMachine(root=str(root), environ=environ, host=replace(LiveMachine().host, arch=arch))
    return probe_runtime_libraries(machine)


def test_this_machines_glibc_is_what_the_c_library_says() -> None:
    said = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    if not said:
        pytest.skip("the C library here is not glibc")
    found = probe_runtime_libraries(LiveMachine(environ={}))
    assert isinstance(found.glibc, Known)
    assert f"glibc {found.glibc.value}" == said


def test_this_machines_libstdcxx_defines_the_version_found() -> None:
    found = probe_runtime_libraries(LiveMachine(environ={}))
    if isinstance(found.libstdcxx_path, Unknown):
        pytest.skip("no libstdc++.so.6 here")
    data = Path(found.libstdcxx_path.value).read_bytes()
    highest = max(int(number) for number in re.findall(rb"GLIBCXX_3\.4\.(\d+)\0", data))
    assert found.libstdcxx == Known(f"3.4.{highest}", seen_in=found.libstdcxx_path.value)


def test_versions_are_compared_as_numbers_and_private_ones_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / f"lib/{ARCH}-linux-gnu"
    _library(folder / "libc.so.6", "libc.so.6", ("GLIBC_2.2.5", "GLIBC_2.39", "GLIBC_2.9", "GLIBC_PRIVATE"))
    _library(
        folder / "libstdc++.so.6", "libstdc++.so.6", ("GLIBCXX_3.4", "GLIBCXX_3.4.30", "GLIBCXX_3.4.9", "CXXABI_9")
    )
    found = _probe(tmp_path)
    assert found.glibc == Known("2.39", seen_in=f"/lib/{ARCH}-linux-gnu/libc.so.6")
    assert found.libstdcxx == Known("3.4.30", seen_in=f"/lib/{ARCH}-linux-gnu/libstdc++.so.6")
    assert found.libstdcxx_path == Known(f"/lib/{ARCH}-linux-gnu/libstdc++.so.6", seen_in="default folder")


@pytest.mark.parametrize(("arch", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_both_machines_are_read_from_anywhere(tmp_path: Path, arch: str, number: int) -> None:
    _library(tmp_path / f"lib/{arch}-linux-gnu/libc.so.6", "libc.so.6", ("GLIBC_2.35",), machine_number=number)
    found = _probe(tmp_path, arch)
    assert found.glibc == Known("2.35", seen_in=f"/lib/{arch}-linux-gnu/libc.so.6")
    assert found.libstdcxx == Unknown("no libstdc++.so.6 in LD_LIBRARY_PATH, ld.so.cache or the default folders")


def test_an_older_libstdcxx_on_ld_library_path_is_the_one_that_counts(tmp_path: Path) -> None:
    _library(tmp_path / f"lib/{ARCH}-linux-gnu/libstdc++.so.6", "libstdc++.so.6", ("GLIBCXX_3.4.33",))
    _library(tmp_path / "opt/old/libstdc++.so.6", "libstdc++.so.6", ("GLIBCXX_3.4.21",))
    found = _probe(tmp_path, LD_LIBRARY_PATH="/opt/old")
    assert found.libstdcxx == Known("3.4.21", seen_in="/opt/old/libstdc++.so.6")
    assert found.libstdcxx_path == Known("/opt/old/libstdc++.so.6", seen_in="LD_LIBRARY_PATH")


def test_musl_is_named(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / f"lib/ld-musl-{ARCH}.so.1").write_bytes(b"")
    assert _probe(tmp_path).glibc == Unknown(f"the C library is musl (/lib/ld-musl-{ARCH}.so.1), not glibc")


def test_damaged_libraries_are_unknown(tmp_path: Path) -> None:
    folder = tmp_path / f"lib/{ARCH}-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libc.so.6").write_bytes(b"")
    _library(folder / "libstdc++.so.6", "libstdc++.so.6", ())
    found = _probe(tmp_path)
    assert found.glibc == Unknown(f"/lib/{ARCH}-linux-gnu/libc.so.6 is not an ELF file")
    assert found.libstdcxx == Unknown(f"/lib/{ARCH}-linux-gnu/libstdc++.so.6 defines no GLIBCXX_ version")


def test_a_recording_gives_the_same_answer() -> None:
    recording = RecordingMachine(LiveMachine(environ={}))
    live = probe_runtime_libraries(recording)
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    assert probe_runtime_libraries(RecordedMachine(from_document(document, "test"))) == live

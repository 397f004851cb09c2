"""Which libcuda.so.1 loads and what it answers: a libcuda built for the purpose, called in a real child process."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zipapp
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.elf.loader import FoundBy
from firstlight.facts.children import child_script
from firstlight.facts.compat import LIBCUDA_CHILD
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import NOT_FOUND, CudaDevice, LibcudaFacts, probe_libcuda
from firstlight.machine import ChildAnswer
from firstlight.machine.evidence import from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion

ARCH = os.uname().machine
TRIPLET = f"usr/lib/{ARCH}-linux-gnu"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libcuda.so.1 -> libcuda.so.580.95.05; what it does is chosen by FAKE_LIBCUDA."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("driver")
    file = folder / "libcuda.so.580.95.05"
    source = Path(__file__).with_name("fake_libcuda.c")
    subprocess.run([gcc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(file), str(source)], check=True)
    (folder / "libcuda.so.1").symlink_to(file.name)
    return file


def _put(library: Path, folder: Path, name: str = "libcuda.so.580.95.05") -> Path:
    """A copy of the library in a folder, with the link that the loader looks for."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, folder / name)
    if name != "libcuda.so.1":
        (folder / "libcuda.so.1").symlink_to(name)
    return folder / "libcuda.so.1"


def _probe(library: Path, behaviour: str = "") -> LibcudaFacts:
    return probe_libcuda(LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent), "FAKE_LIBCUDA": behaviour}))


def _first(facts: LibcudaFacts) -> str:
    assert isinstance(facts.would_load, Known), facts.would_load
    return facts.would_load.value.path


def test_a_working_library_is_found_loaded_and_asked(library: Path) -> None:
    facts = _probe(library)
    assert isinstance(facts.would_load, Known)
    chosen = facts.would_load.value
    assert (chosen.path, chosen.real_path) == (str(library.parent / "libcuda.so.1"), str(library))
    assert (chosen.found_by, chosen.entry) == (FoundBy.LIBRARY_PATH, str(library.parent))
    assert chosen.version == Known(DriverVersion.parse("580.95.05"), seen_in=str(library))
    assert (chosen.is_stub, chosen.is_compat, chosen.is_damaged) == (False, False, False)
    assert facts.loaded_path == Known(str(library), seen_in="/proc/self/maps of a child process")
    assert facts.driver_cuda == Known(CudaVersion(13, 0), seen_in="cuDriverGetVersion")
    assert facts.init_code == Known(0, seen_in="cuInit")
    assert facts.init_name == Known("CUDA_SUCCESS", seen_in="cuGetErrorName")
    assert facts.device_count == Known(2, seen_in="cuDeviceGetCount")
    assert facts.devices == (
        CudaDevice("NVIDIA H200", ComputeCapability(9, 0), 150754820096),
        CudaDevice("NVIDIA GeForce RTX 4090", ComputeCapability(8, 9), 25757220864),
    )
    assert facts.ld_library_path == (str(library.parent),)


def test_an_error_of_cuinit_keeps_the_version_and_the_librarys_own_words(library: Path) -> None:
    facts = _probe(library, "803")
    assert facts.driver_cuda == Known(CudaVersion(13, 0), seen_in="cuDriverGetVersion")
    assert facts.init_code == Known(803, seen_in="cuInit")
    assert facts.init_name == Known("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", seen_in="cuGetErrorName")
    assert isinstance(facts.init_text, Known)
    assert facts.init_text.value.startswith("system has unsupported display driver")
    assert facts.device_count == Unknown("cuInit returned error 803")
    assert facts.devices == ()


def test_a_stub_answers_with_error_34_everywhere(library: Path) -> None:
    facts = _probe(library, "stub")
    assert facts.driver_cuda == Unknown("cuDriverGetVersion returned error 34")
    assert facts.init_code == Known(34, seen_in="cuInit")
    assert isinstance(facts.init_name, Unknown)


def test_a_driver_without_devices_says_none(library: Path) -> None:
    facts = _probe(library, "none")
    assert facts.device_count == Known(0, seen_in="cuDeviceGetCount")
    assert facts.devices == ()


def test_a_device_that_does_not_answer_is_left_out_and_the_count_tells(library: Path) -> None:
    facts = _probe(library, "lost")
    assert facts.device_count == Known(2, seen_in="cuDeviceGetCount")
    assert [device.name for device in facts.devices] == ["NVIDIA H200"]


def test_an_absurd_version_is_unknown(library: Path) -> None:
    facts = _probe(library, "absurd")
    assert isinstance(facts.driver_cuda, Unknown)
    assert facts.init_code == Known(0, seen_in="cuInit")


def test_a_library_that_kills_its_process_takes_only_the_child_with_it(library: Path) -> None:
    facts = _probe(library, "crash")
    assert _first(facts) == str(library.parent / "libcuda.so.1")
    assert isinstance(facts.init_code, Unknown)
    assert "killed by a signal" in facts.init_code.reason


def test_a_hung_cuinit_keeps_what_came_before(library: Path) -> None:
    machine = LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent), "FAKE_LIBCUDA": "hang"})
    start = time.monotonic()
    said = machine.child(child_script(LIBCUDA_CHILD), "0.5")
    assert time.monotonic() - start < 8
    assert said.ok, said.complaint
    assert (said.answer["hung"], said.answer["version"], said.answer["path"]) == ("cuInit", 13000, str(library))
    assert "init_code" not in said.answer


def _replayed(library: Path, said: ChildAnswer) -> LibcudaFacts:
    """The facts of a machine with this library whose child gave another answer."""
    recording = RecordingMachine(LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent)}))
    probe_libcuda(recording)
    recording.evidence.children[LIBCUDA_CHILD] = said
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    return probe_libcuda(RecordedMachine(from_document(document, "test")))


def test_a_hung_cuinit_is_unknown_with_the_call_named(library: Path) -> None:
    facts = _replayed(library, ChildAnswer({"hung": "cuInit", "version_code": 0, "version": 12040, "path": "/x"}, ""))
    assert facts.driver_cuda == Known(CudaVersion(12, 4), seen_in="cuDriverGetVersion")
    assert facts.init_code == Unknown("cuInit gave no answer within 8 s")
    assert facts.device_count == Unknown("cuInit gave no answer within 8 s")


def test_a_child_that_never_answers_is_unknown_with_the_limit(library: Path) -> None:
    complaint = "the libcuda child gave no answer within 10 s"
    facts = _replayed(library, ChildAnswer({}, complaint))
    assert facts.loaded_path == facts.init_code == facts.driver_cuda == Unknown(complaint)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"version": "13000", "init_code": True, "devices": "two", "path": 7, "hung": 3},
        {"version": -1, "version_code": None, "devices": [1, None, {"code": 0}], "init_code": 0, "count": "x"},
        {"init_code": 0, "count_code": 3, "count": 2},
    ],
)
def test_an_answer_with_nonsense_in_it_is_unknown_not_an_error(library: Path, answer: dict[str, object]) -> None:
    facts = _replayed(library, ChildAnswer(answer, ""))
    assert isinstance(facts.driver_cuda, Unknown)
    assert isinstance(facts.device_count, Unknown)
    assert facts.devices == ()


def test_a_recording_gives_the_same_facts(library: Path) -> None:
    live = _probe(library)
    recording = RecordingMachine(LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent)}))
    probe_libcuda(recording)
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    assert probe_libcuda(RecordedMachine(from_document(document, "test"))) == live


def _tree(tmp_path: Path, **environ: str) -> LiveMachine:
    """A machine of its own; its child process still runs here, so only what is found is looked at."""
    (tmp_path / TRIPLET).mkdir(parents=True, exist_ok=True)
    if not (tmp_path / "lib").exists():
        (tmp_path / "lib").symlink_to("usr/lib")
    return LiveMachine(root=str(tmp_path), environ=environ)


def _write_cache(tmp_path: Path, paths: list[str]) -> None:
    """A cache with libcuda.so.1 at these paths, in the form of glibc 2.32 and newer."""
    flags = {"x86_64": 0x0303, "aarch64": 0x0A03}[ARCH]
    strings, entries = b"", b""
    start = 48 + 24 * len(paths)
    for path in paths:
        key = start + len(strings) + path.rindex("/") + 1
        entries += struct.pack("<iIIIQ", flags, key, start + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(paths), len(strings), 2, 0)
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc" / "ld.so.cache").write_bytes(head + entries + strings)


def test_without_any_libcuda_nothing_is_run(tmp_path: Path) -> None:
    recording = RecordingMachine(_tree(tmp_path))
    facts = probe_libcuda(recording)
    assert facts.would_load == facts.init_code == facts.device_count == facts.loaded_path == Unknown(NOT_FOUND)
    assert (facts.candidates, facts.devices, facts.out_of_reach) == ((), (), ())
    assert recording.evidence.children == {}


def test_the_container_toolkits_compat_file_is_named_as_the_reason(tmp_path: Path, library: Path) -> None:
    compat = _put(library, tmp_path / "usr/local/cuda-13.0/compat")
    _put(library, tmp_path / TRIPLET, "libcuda.so.570.133.20")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    driver = f"/lib/{ARCH}-linux-gnu/libcuda.so.1"
    _write_cache(tmp_path, ["/usr/local/cuda/compat/libcuda.so.1", driver])
    conf = tmp_path / "etc/ld.so.conf.d"
    conf.mkdir()
    (conf / "00-compat-1827364554.conf").write_text("# by a hook\n/usr/local/cuda/compat/\n")
    (conf / "x86_64-linux-gnu.conf").write_text(f"/lib/{ARCH}-linux-gnu\n/usr/lib/{ARCH}-linux-gnu\n")
    facts = probe_libcuda(_tree(tmp_path))
    assert isinstance(facts.would_load, Known)
    chosen = facts.would_load.value
    assert (chosen.path, chosen.found_by) == ("/usr/local/cuda/compat/libcuda.so.1", FoundBy.CACHE)
    assert chosen.entry == "/etc/ld.so.conf.d/00-compat-1827364554.conf"
    assert chosen.is_compat
    assert chosen.real_path == str(compat.with_name("libcuda.so.580.95.05"))[len(str(tmp_path)) :]
    assert facts.compat_conf_files == ("/etc/ld.so.conf.d/00-compat-1827364554.conf",)
    [_, behind] = facts.candidates
    assert (behind.path, behind.is_compat) == (driver, False)
    assert behind.version == Known(
        DriverVersion.parse("570.133.20"), seen_in=f"/usr/lib/{ARCH}-linux-gnu/libcuda.so.570.133.20"
    )


def test_without_the_compat_file_the_driver_wins_through_the_cache(tmp_path: Path, library: Path) -> None:
    _put(library, tmp_path / "usr/local/cuda-13.0/compat")
    _put(library, tmp_path / TRIPLET, "libcuda.so.570.133.20")
    _write_cache(tmp_path, [f"/lib/{ARCH}-linux-gnu/libcuda.so.1"])
    facts = probe_libcuda(_tree(tmp_path))
    assert _first(facts) == f"/lib/{ARCH}-linux-gnu/libcuda.so.1"
    assert len(facts.candidates) == 1
    assert facts.compat_conf_files == ()


def test_a_library_that_ldconfig_does_not_know_is_found_in_the_default_folder(tmp_path: Path, library: Path) -> None:
    _put(library, tmp_path / TRIPLET, "libcuda.so.570.133.20")
    facts = probe_libcuda(_tree(tmp_path))
    assert isinstance(facts.would_load, Known)
    assert facts.would_load.value.found_by is FoundBy.DEFAULT
    assert facts.would_load.seen_in == f"default folder: /lib/{ARCH}-linux-gnu"


def test_a_stub_folder_on_the_path_is_flagged(tmp_path: Path, library: Path) -> None:
    _put(library, tmp_path / "usr/local/cuda/lib64/stubs", "libcuda.so.1")
    facts = probe_libcuda(_tree(tmp_path, LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs"))
    assert isinstance(facts.would_load, Known)
    assert facts.would_load.value.is_stub
    assert facts.would_load.value.version == Unknown("the file name libcuda.so.1 carries no driver version")


def test_an_empty_libcuda_stops_the_loader_and_nothing_is_run(tmp_path: Path, library: Path) -> None:
    (tmp_path / TRIPLET).mkdir(parents=True)
    (tmp_path / TRIPLET / "libcuda.so.1").write_bytes(b"")
    recording = RecordingMachine(_tree(tmp_path))
    facts = probe_libcuda(recording)
    assert facts.would_load == Unknown(
        f"the loader stops at /lib/{ARCH}-linux-gnu/libcuda.so.1, which is not an ELF file"
    )
    assert facts.candidates[0].is_damaged
    assert recording.evidence.children == {}


def test_a_driver_library_outside_every_search_path_is_out_of_reach(tmp_path: Path, library: Path) -> None:
    _put(library, tmp_path / "usr/lib/wsl/lib", "libcuda.so.1")
    facts = probe_libcuda(_tree(tmp_path))
    assert facts.would_load == Unknown(NOT_FOUND)
    assert facts.out_of_reach == ("/usr/lib/wsl/lib/libcuda.so.1",)
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/ld.wsl.conf").write_text("/usr/lib/wsl/lib\n")
    _write_cache(tmp_path, ["/usr/lib/wsl/lib/libcuda.so.1"])
    reached = probe_libcuda(_tree(tmp_path))
    assert _first(reached) == "/usr/lib/wsl/lib/libcuda.so.1"
    assert reached.candidates[0].entry == "/etc/ld.so.conf.d/ld.wsl.conf"
    assert reached.out_of_reach == ()


def test_a_stale_cache_is_told_from_no_library(tmp_path: Path, library: Path) -> None:
    _put(library, tmp_path / "opt/driver")
    _write_cache(tmp_path, ["/opt/gone/libcuda.so.1", "/opt/driver/libcuda.so.1"])
    facts = probe_libcuda(_tree(tmp_path))
    assert isinstance(facts.would_load, Unknown)
    assert "ldconfig" in facts.would_load.reason
    assert [item.found_by for item in facts.candidates] == [FoundBy.LATER_CACHE_ENTRY]


def test_tegras_file_name_has_no_driver_version(tmp_path: Path, library: Path) -> None:
    (tmp_path / "usr/lib/aarch64-linux-gnu/nvidia").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    data = bytearray(library.read_bytes())
    data[18:20] = struct.pack("<H", 183)
    folder = tmp_path / "usr/lib/aarch64-linux-gnu/nvidia"
    (folder / "libcuda.so.1.1").write_bytes(data)
    (folder / "libcuda.so.1").symlink_to("libcuda.so.1.1")
    host = replace(LiveMachine().host, arch="aarch64")
    environ = {"LD_LIBRARY_PATH": "/usr/lib/aarch64-linux-gnu/nvidia"}
    facts = probe_libcuda(LiveMachine(root=str(tmp_path), environ=environ, host=host))
    assert _first(facts) == "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1"
    assert facts.candidates[0].version == Unknown("the file name libcuda.so.1.1 carries no driver version")


def test_a_preloaded_libcuda_comes_before_every_search(tmp_path: Path, library: Path) -> None:
    file = _put(library, tmp_path / "opt/spoof", "libspoof.so")
    other = tmp_path / "opt/other.so"
    shutil.copy(library, other)
    facts = probe_libcuda(
        LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent), "LD_PRELOAD": str(file.with_name("libspoof.so"))})
    )
    assert isinstance(facts.would_load, Known)
    assert facts.would_load.value.found_by is FoundBy.PRELOAD
    assert facts.would_load.value.entry == str(file.with_name("libspoof.so"))
    assert facts.loaded_path == Known(str(file.with_name("libspoof.so")), "/proc/self/maps of a child process")
    assert facts.ld_preload == (str(file.with_name("libspoof.so")),)


def test_a_preloaded_library_of_another_name_changes_nothing(library: Path) -> None:
    machine = LiveMachine(environ={"LD_LIBRARY_PATH": str(library.parent), "LD_PRELOAD": "libm.so.6"})
    facts = probe_libcuda(machine)
    assert _first(facts) == str(library.parent / "libcuda.so.1")
    assert facts.ld_preload == ("libm.so.6",)


def test_unreadable_or_absurd_ldconfig_files_are_no_error(tmp_path: Path, library: Path) -> None:
    conf = tmp_path / "etc/ld.so.conf.d"
    conf.mkdir(parents=True)
    (conf / "a.conf").write_bytes(bytes(range(256)) * 10)
    (conf / "b.conf").mkdir()
    (conf / "c.conf").write_text("=\n/\n//compat\ninclude /etc/nowhere/*.conf\n/usr/local/cuda/compat=libc6 # x\n")
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 60)
    facts = probe_libcuda(_tree(tmp_path))
    assert facts.would_load == Unknown(NOT_FOUND)
    assert facts.compat_conf_files == ("/etc/ld.so.conf.d/c.conf",)


def test_inside_a_zipapp_the_child_script_is_found(tmp_path: Path, library: Path) -> None:
    package = Path(__file__).parents[2] / "src" / "firstlight"
    shutil.copytree(package, tmp_path / "app" / "firstlight", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "app" / "__main__.py").write_text(
        "from firstlight.facts.libcuda import probe_libcuda\n"
        "from firstlight.machine.live import LiveMachine\n"
        "print(probe_libcuda(LiveMachine()).device_count)\n"
    )
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "app.pyz")],
        env={"LD_LIBRARY_PATH": str(library.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Known(value=2, seen_in='cuDeviceGetCount', origin=<Origin.SEEN: 'seen'>)\n"


@pytest.mark.gpu
def test_this_machines_driver_library_answers() -> None:
    facts = probe_libcuda(LiveMachine())
    if facts.would_load == Unknown(NOT_FOUND):
        pytest.skip("no libcuda.so.1 here")
    assert isinstance(facts.loaded_path, Known)
    assert isinstance(facts.would_load, Known)
    assert facts.loaded_path.value == facts.would_load.value.real_path
    assert isinstance(facts.driver_cuda, Known)
    assert isinstance(facts.init_code, Known)

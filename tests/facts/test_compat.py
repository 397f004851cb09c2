"""Forward-compatibility libraries on disk: real ELF files with a real note, in the folders where packages put them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.facts.compat import (
    CompatLibrary,
    CompatNote,
    ask_compat,
    driver_version_of,
    is_compat_path,
    probe_compat,
    read_compat_note,
)
from firstlight.facts.known import Known, Unknown
from firstlight.machine.evidence import from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.versions import CudaVersion, DriverVersion
from tests.apply.stand_ins import build_libcuda

# The whole note of libcuda 580.95.05, and the form of Orin's library.
NOTE_13_0 = b'{"format":1,"CUDA version":"13.0","driver":[535,550,565,570,575,580],"device":[1,2,7,8,9,10,11,12,13,14]}'
ORIN_NOTE = b'{"format":1,"CUDA version":"13.2"}'


def _library(path: Path, note: bytes = NOTE_13_0, *, declared: int = 0) -> Path:
    """A libcuda with a forward-compatibility note, as the linker lays it out; `declared` overstates its size."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = (
        '.section .note.cuda.fwd_compatibility, "a", @note\n'
        f".long 19, {declared or len(note)}, 0\n"
        '.asciz "NVIDIA Corporation"\n.balign 4\n'
        f".byte {','.join(str(byte) for byte in note)}\n.balign 4\n"
    )
    command = [gcc, "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", str(path), "-x", "assembler"]
    subprocess.run([*command, "-" if note else "/dev/null"], input=source, text=True, check=True)
    return path


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _machine(root: Path, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ)


def test_the_apt_packages_library_is_found_once_with_its_note_and_package(tmp_path: Path) -> None:
    library = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"
    _library(tmp_path / library[1:])
    _link(tmp_path / "usr/local/cuda-13.0/compat/libcuda.so.1", "libcuda.so.580.95.05")
    _link(tmp_path / "usr/local/cuda-13", "cuda-13.0")
    _link(tmp_path / "usr/local/cuda", "cuda-13.0")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "cuda-compat-12-8.list").write_text("/usr/local/cuda-12.8/compat/libcuda.so.570.133.20\n")
    (info / "cuda-compat-13-0.list").write_text(f"/.\n/usr\n{library}\n")
    [found] = probe_compat(_machine(tmp_path))
    assert (found.folder, found.library) == ("/usr/local/cuda-13.0/compat", library)
    assert found.aliases == ("/usr/local/cuda/compat", "/usr/local/cuda-13/compat")
    assert found.version == Known(DriverVersion.parse("580.95.05"), seen_in=library)
    note = CompatNote(CudaVersion(13, 0), (535, 550, 565, 570, 575, 580), (1, 2, 7, 8, 9, 10, 11, 12, 13, 14))
    assert found.note == Known(note, seen_in=library)
    assert found.package == Known("cuda-compat-13-0", seen_in="/var/lib/dpkg/info/cuda-compat-13-0.list")


def test_two_toolkits_give_two_libraries(tmp_path: Path) -> None:
    _library(tmp_path / "usr/local/cuda-12.8/compat/libcuda.so.570.133.20")
    _library(tmp_path / "usr/local/cuda-13.0/compat/libcuda.so.580.95.05")
    found = probe_compat(_machine(tmp_path, CUDA_HOME="/usr/local/cuda-13.0/"))
    assert [item.folder for item in found] == ["/usr/local/cuda-12.8/compat", "/usr/local/cuda-13.0/compat"]
    assert all(item.package == Unknown("no dpkg or conda file list names it") for item in found)


@pytest.mark.parametrize(
    ("folder", "environ"),
    [
        ("/usr/local/cuda/compat/lib.real", {}),
        ("/usr/local/cuda/compat_orin", {}),
        ("/usr/local/cuda-13.2/compat-orin", {}),
        ("/opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/13.0/compat", {}),
        ("/opt/cuda/compat", {"CUDA_HOME": "/opt/cuda"}),
        ("/opt/cuda/compat", {"CUDA_PATH": "/opt/cuda/"}),
        ("/opt/conda/cuda-compat", {"CONDA_PREFIX": "/opt/conda"}),
        ("/srv/env/cuda-compat", {}),
    ],
)
def test_every_known_place_is_looked_at(tmp_path: Path, folder: str, environ: dict[str, str]) -> None:
    _library(tmp_path / folder[1:] / "libcuda.so.580.95.05")
    [found] = probe_compat(_machine(tmp_path, **environ), env_prefixes=("/srv/env",))
    assert (found.folder, found.aliases) == (folder, ())
    assert is_compat_path(found.library)


def test_ngcs_link_to_lib_real_is_an_alias(tmp_path: Path) -> None:
    _library(tmp_path / "usr/local/cuda/compat/lib.real/libcuda.so.580.95.05")
    _link(tmp_path / "usr/local/cuda/compat/lib", "lib.real")
    [found] = probe_compat(_machine(tmp_path))
    assert found.folder == "/usr/local/cuda/compat/lib.real"
    assert found.aliases == ("/usr/local/cuda/compat/lib",)


def test_condas_package_is_named(tmp_path: Path) -> None:
    _library(tmp_path / "opt/conda/cuda-compat/libcuda.so.580.95.05")
    meta = tmp_path / "opt/conda/conda-meta"
    meta.mkdir()
    (meta / "cuda-compat-impl-580.95.05-h123_0.json").write_text("{}")
    [found] = probe_compat(_machine(tmp_path, CONDA_PREFIX="/opt/conda"))
    assert isinstance(found.package, Known)
    assert found.package.value == "cuda-compat-impl-580.95.05-h123_0"


def test_orins_note_has_no_lists_and_its_file_name_no_version(tmp_path: Path) -> None:
    _library(tmp_path / "usr/local/cuda/compat_orin/libcuda.so.1.1", ORIN_NOTE, declared=200)
    [found] = probe_compat(_machine(tmp_path))
    assert isinstance(found.note, Known)
    assert found.note.value == CompatNote(CudaVersion(13, 2), (), ())
    assert found.version == Unknown("the file name libcuda.so.1.1 carries no driver version")


def test_the_case_of_the_notes_field_names_does_not_matter(tmp_path: Path) -> None:
    path = _library(tmp_path / "libcuda.so.590.44.01", b'{"Format":1,"CUDA Version":"13.1","Driver":[590]}\0\0')
    assert read_compat_note(LiveMachine(), str(path)) == Known(CompatNote(CudaVersion(13, 1), (590,), ()), str(path))


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (b"", "has no .note.cuda.fwd_compatibility note"),
        (b"hello", "is not a JSON object"),
        (b'{"CUDA version":', "is not a JSON object"),
        (b"[1,2,3]", "is not a JSON object"),
        (b'{"format":1}', "is not a CUDA version"),
        (b'{"CUDA version":"thirteen"}', "is not a CUDA version"),
        (b"{" * 4000 + b"}" * 4000, "is not a JSON object"),
    ],
)
def test_a_note_that_cannot_be_read_is_unknown_with_the_reason(tmp_path: Path, note: bytes, reason: str) -> None:
    path = _library(tmp_path / "libcuda.so.580.95.05", note)
    found = read_compat_note(LiveMachine(), str(path))
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_lists_with_nonsense_keep_the_numbers(tmp_path: Path) -> None:
    path = _library(
        tmp_path / "libcuda.so.580.95.05", b'{"CUDA version":"13.0","driver":[535,"550",true,null],"device":7}'
    )
    found = read_compat_note(LiveMachine(), str(path))
    assert isinstance(found, Known)
    assert found.value == CompatNote(CudaVersion(13, 0), (535,), ())


def test_a_file_that_is_no_library_has_no_note_and_a_link_to_nothing_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "usr/local/cuda/compat"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.580.95.05").write_bytes(b"\x7fELF garbage")
    _link(folder / "libcuda.so.1", "libcuda.so.999.gone")
    [broken] = probe_compat(_machine(tmp_path))
    assert broken.library == "/usr/local/cuda/compat/libcuda.so.580.95.05"
    assert isinstance(broken.note, Unknown)
    assert isinstance(broken.version, Known)


def test_a_machine_without_compat_folders_has_none(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda-13.0/lib64").mkdir(parents=True)
    (tmp_path / "usr/local/cuda-12.8/compat").mkdir(parents=True)
    assert probe_compat(_machine(tmp_path, CUDA_HOME="relative/path", CONDA_PREFIX="/")) == ()


def test_a_recording_gives_the_same_libraries(tmp_path: Path) -> None:
    _library(tmp_path / "usr/local/cuda-13.0/compat/libcuda.so.580.95.05")
    _link(tmp_path / "usr/local/cuda", "cuda-13.0")
    recording = RecordingMachine(_machine(tmp_path))
    live = probe_compat(recording)
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    assert probe_compat(RecordedMachine(from_document(document, "test"))) == live
    assert len(live) == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/local/cuda/compat/libcuda.so.1", True),
        ("/usr/local/cuda-13.0/compat", True),
        ("/usr/local/cuda/compat/lib/libcuda.so.1", True),
        ("/opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/12.9/compat/libcuda.so.1", True),
        ("/opt/conda/envs/a/cuda-compat/libcuda.so.1", True),
        ("/usr/local/cuda/compat_orin/libcuda.so.1.1", True),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", False),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", False),
        ("/srv/compat/libcuda.so.1", False),
        ("/usr/local/cuda/compatible/libcuda.so.1", False),
        ("compat", False),
    ],
)
def test_a_compat_path_is_told_from_others(path: str, expected: bool) -> None:  # noqa: FBT001
    assert is_compat_path(path) is expected


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so.1.1", "libcuda.so", "libcuda.so.580.x", "libspoof.so"])
def test_a_name_without_a_driver_version_is_unknown(name: str) -> None:
    assert isinstance(driver_version_of(f"/x/{name}"), Unknown)


@pytest.mark.parametrize(("answer", "code"), [("0", 0), ("803", 803), ("804", 804)])
def test_a_library_newer_than_the_driver_is_asked_in_a_child_of_its_own(tmp_path: Path, answer: str, code: int) -> None:
    folder = tmp_path / "cuda-13.0/compat"
    build_libcuda(folder, version="580.95.05", cuda=13000, answer=answer)
    [asked] = ask_compat(LiveMachine(), (_listed(folder),), kernel=Known(DriverVersion.parse("570.133.20"), "x"))
    assert asked.init_code == Known(code, f"cuInit in a child process with {folder} first")


def test_a_library_that_crashes_leaves_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "cuda-13.0/compat"
    build_libcuda(folder, version="580.95.05", cuda=13000, answer="crash")
    [asked] = ask_compat(LiveMachine(), (_listed(folder),), kernel=Known(DriverVersion.parse("570.133.20"), "x"))
    assert isinstance(asked.init_code, Unknown)
    assert asked.init_code.reason.startswith("cuInit with it: ")


def test_a_library_that_is_not_newer_than_the_driver_is_not_asked(tmp_path: Path) -> None:
    folder = tmp_path / "cuda-13.0/compat"
    build_libcuda(folder, version="580.95.05", cuda=13000, answer="hang")
    [asked] = ask_compat(LiveMachine(), (_listed(folder),), kernel=Known(DriverVersion.parse("580.159.04"), "x"))
    assert asked.init_code == Unknown("not asked: it is not newer than driver 580.159.04")


def _listed(folder: Path) -> CompatLibrary:
    library = str(folder / "libcuda.so.580.95.05")
    unknown = Unknown("not looked at")
    return CompatLibrary(str(folder), (), library, driver_version_of(library), unknown, unknown, unknown)

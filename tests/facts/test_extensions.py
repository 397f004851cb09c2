"""What compiled files ask of torch: real shared objects from gcc, held against the real loader and the real torch."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.collect import collect
from firstlight.facts.extensions import Extension, ExtensionFacts, Strings, probe_extensions
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import probe_environments
from firstlight.facts.torch_install import probe_torch
from firstlight.machine import Host, Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from tools.machines.elf_writer import ElfSpec, make_elf

HOST: Host = replace(LiveMachine().host, home="/home/maria", cwd="/home/maria", python_prefix="")
SITE = "/opt/venv/lib/python3.12/site-packages"
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
CHECK, ERROR = "_ZN3c106detail14torchCheckFailEPKcS2_jRK", "_ZN3c105ErrorC2ENS_14SourceLocationE"
HAS = (CHECK + STRING, ERROR + STRING, "_ZN3c104cuda9SetDeviceEab", "torch_library_impl")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def _write(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _install(root: Path, name: str, version: str, *files: str) -> None:
    record = f"{SITE}/{name}-{version}.dist-info"
    _write(root, f"{record}/METADATA", f"Name: {name}\nVersion: {version}\n\n")
    _write(root, f"{record}/RECORD", "".join(f"{file},sha256=x,1\n" for file in files))


def _compile(path: Path, *, has: tuple[str, ...] = (), asks: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> Path:
    """A real shared object with these names, linked without libc; what it asks for is bound when it is loaded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = "".join(f"void {name}(void) {{}}\n" for name in has)
    source += "".join(f"extern void {name}(void);\n" for name in asks)
    calls = "".join(f"  {name}();\n" for name in asks)
    source += f"void asks_{abs(hash(str(path)))}(void) {{\n{calls}}}\n" if asks else ""
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(path), "-x", "c", "-", "-x", "none", *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def _torch(root: Path, *, has: tuple[str, ...] = HAS, cuda: str = "'12.8'") -> Path:
    """torch with libraries that have these names; returns the folder of its libraries."""
    _write(root, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    _write(root, f"{SITE}/torch/version.py", f"__version__ = '2.9.0'\ncuda = {cuda}\n")
    _write(root, f"{SITE}/torch/__init__.py")
    _install(root, "torch", "2.9.0", "torch/__init__.py", "torch/lib/libc10.so")
    folder = root / f"{SITE}/torch/lib".lstrip("/")
    _compile(folder / "libc10.so", has=has, flags=("-Wl,-soname,libc10.so",))
    _compile(folder / "libtorch_cpu.so", has=("_ZN2at4fileEv",), flags=("-Wl,-soname,libtorch_cpu.so",))
    return folder


def _extension(root: Path, name: str, *asks: str, needs: tuple[str, ...] = ("libc10.so",)) -> Path:
    """An extension module in site-packages that asks for names; its libraries are named, whether they are there."""
    stubs = []
    for library in needs:
        stub = root / "build" / library
        _compile(stub, flags=(f"-Wl,-soname,{library}",))
        stubs.append(str(stub))
    return _compile(
        root / f"{SITE}/{name}".lstrip("/"), asks=asks, flags=("-Wl,--no-as-needed,--allow-shlib-undefined", *stubs)
    )


def _machine(root: Path) -> LiveMachine:
    return LiveMachine(root=str(root), environ={"VIRTUAL_ENV": "/opt/venv"}, host=HOST)


def _probe(machine: Machine) -> ExtensionFacts:
    environment = probe_environments(machine).environments[0]
    return probe_extensions(machine, environment, probe_torch(machine, environment))


def _one(root: Path) -> Extension:
    found = _probe(_machine(root)).files
    assert isinstance(found, Known)
    [one] = found.value
    return one


def test_a_file_whose_names_torch_has_lacks_nothing(tmp_path: Path) -> None:
    _torch(tmp_path)
    _extension(tmp_path, "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", ERROR + STRING, "torch_library_impl")
    _install(tmp_path, "flash_attn", "2.8.3", "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so")
    one = _one(tmp_path)
    assert (one.package, one.version) == (
        "flash-attn",
        Known("2.8.3", f"{SITE}/flash_attn-2.8.3.dist-info"),
    )
    assert isinstance(one.symbols, Known)
    assert (one.symbols.value.asked, one.symbols.value.lacking, one.symbols.value.names) == (2, 0, ())
    assert one.strings == Known(Strings.CXX11, one.path)
    assert one.lacks_libraries == ()


def test_a_file_of_the_other_strings_lacks_names_and_says_how_it_was_compiled(tmp_path: Path) -> None:
    _torch(tmp_path)
    _extension(tmp_path, "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", ERROR + "Ss", "_ZN3c104cuda9SetDeviceEab")
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.files, Known)
    [one] = facts.files.value
    assert isinstance(one.symbols, Known)
    assert (one.symbols.value.asked, one.symbols.value.lacking) == (2, 1)
    assert one.symbols.value.names == (ERROR + "Ss",)
    assert isinstance(one.strings, Known)
    assert one.strings.value is Strings.OLD
    assert isinstance(facts.torch_strings, Known)
    assert facts.torch_strings.value is Strings.CXX11


def test_a_word_with_ss_in_it_is_no_string(tmp_path: Path) -> None:
    _torch(tmp_path, has=("_ZN2at9ClassSs11Ev",))
    _extension(tmp_path, "pkg_cuda.so", "_ZN2at9ClassSs11Ev")
    assert isinstance(_one(tmp_path).strings, Unknown)


def test_what_the_loader_does_not_find_is_what_is_lacking(tmp_path: Path) -> None:
    """The real loader, told to bind all names at once, refuses the file with one of the names that we list."""
    lib = _torch(tmp_path)
    wrong = _extension(tmp_path, "wrong_cuda.so", ERROR + "Ss", CHECK + STRING)
    right = _extension(tmp_path, "right_cuda.so", ERROR + STRING, CHECK + STRING)
    found = _probe(_machine(tmp_path)).files
    assert isinstance(found, Known)
    lacking = {each.package: each.symbols.value for each in found.value if isinstance(each.symbols, Known)}
    script = (
        f"import ctypes, os\nctypes.CDLL({str(lib / 'libc10.so')!r}, os.RTLD_GLOBAL)\nctypes.CDLL(%r, os.RTLD_NOW)\n"
    )
    refused = subprocess.run([sys.executable, "-c", script % str(wrong)], capture_output=True, text=True, check=False)
    assert f"undefined symbol: {lacking['wrong-cuda'].names[0]}" in refused.stderr
    assert subprocess.run([sys.executable, "-c", script % str(right)], capture_output=True, check=False).returncode == 0
    assert lacking["right-cuda"].lacking == 0


def test_names_of_a_library_beside_the_file_are_not_lacking(tmp_path: Path) -> None:
    _torch(tmp_path)
    folder = tmp_path / f"{SITE}/pkg".lstrip("/")
    helper = _compile(folder / "libpkg_core.so", has=("_ZN2at6helperEv",), flags=("-Wl,-soname,libpkg_core.so",))
    stub = _compile(tmp_path / "build/libc10.so", flags=("-Wl,-soname,libc10.so",))
    _compile(
        folder / "_C.so",
        asks=("_ZN2at6helperEv", "_ZN2at6absentEv"),
        flags=("-Wl,--no-as-needed,-rpath,$ORIGIN", str(helper), str(stub), "-Wl,--unresolved-symbols=ignore-all"),
    )
    one = _one(tmp_path)
    assert isinstance(one.symbols, Known)
    assert one.symbols.value.names == ("_ZN2at6absentEv",)


def test_libraries_of_torchs_that_this_torch_does_not_bring_are_named(tmp_path: Path) -> None:
    _torch(tmp_path, cuda="None")
    _extension(tmp_path, "x_cuda.so", needs=("libc10.so", "libtorch_cuda.so", "libcudart.so.12"))
    one = _one(tmp_path)
    assert one.lacks_libraries == ("libtorch_cuda.so",)
    assert one.cuda_major == Known(12, one.path)


def test_a_torch_that_is_not_whole_is_not_said_to_lack_what_it_should_have(tmp_path: Path) -> None:
    folder = _torch(tmp_path)
    (folder / "libc10.so").unlink()
    _extension(tmp_path, "x_cuda.so", needs=("libc10.so", "libtorch.so", "libtorch_cuda.so"))
    assert _one(tmp_path).lacks_libraries == ()


def test_what_a_file_can_do_without_is_not_lacking(tmp_path: Path) -> None:
    _torch(tmp_path)
    path = tmp_path / f"{SITE}/weak_cuda.so".lstrip("/")
    stub = _compile(tmp_path / "build/libc10.so", flags=("-Wl,-soname,libc10.so",))
    source = (
        "extern void _ZN2at4weakEv(void) __attribute__((weak));\nvoid go(void) { if (_ZN2at4weakEv) _ZN2at4weakEv(); }"
    )
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(path), "-x", "c", "-", "-x", "none"]
    subprocess.run([*command, "-Wl,--no-as-needed", str(stub)], input=source, text=True, check=True)
    one = _one(tmp_path)
    assert isinstance(one.symbols, Known)
    assert one.symbols.value.asked == 0


def test_libraries_without_a_table_of_names_say_nothing_about_what_is_lacking(tmp_path: Path) -> None:
    folder = _torch(tmp_path)
    (folder / "libc10.so").write_bytes(make_elf(ElfSpec(needed=("libc.so.6",))))
    _extension(tmp_path, "x_cuda.so", ERROR + "Ss")
    assert isinstance(_one(tmp_path).symbols, Unknown)


def test_where_some_libraries_are_unread_a_name_is_lacking_that_torch_has_with_the_other_strings(
    tmp_path: Path,
) -> None:
    folder = _torch(tmp_path)
    (folder / "libtorch_cuda.so").write_bytes(make_elf(ElfSpec(needed=("libc.so.6",))))
    _extension(tmp_path, "x_cuda.so", ERROR + "Ss", "_ZN2at7unknownEv")
    one = _one(tmp_path)
    assert isinstance(one.symbols, Known)
    assert one.symbols.value.names == (ERROR + "Ss",)  # the other may be in the library that was not read


def test_files_with_the_older_kind_of_hash_table_are_read_too(tmp_path: Path) -> None:
    folder = _torch(tmp_path)
    flags = ("-Wl,--hash-style=sysv", "-Wl,-soname,libc10.so")
    _compile(folder / "libc10.so", has=(CHECK + STRING, ERROR + STRING), flags=flags)
    _extension(tmp_path, "right_cuda.so", ERROR + STRING)
    stub = _compile(tmp_path / "build/libc10.so", flags=("-Wl,-soname,libc10.so",))
    asking = tmp_path / f"{SITE}/wrong_cuda.so".lstrip("/")
    _compile(asking, asks=(ERROR + "Ss",), flags=("-Wl,--hash-style=sysv,--no-as-needed", str(stub)))
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.files, Known)
    lacking = {
        each.package: each.symbols.value.lacking for each in facts.files.value if isinstance(each.symbols, Known)
    }
    assert lacking == {"right-cuda": 0, "wrong-cuda": 1}
    assert isinstance(facts.torch_strings, Known)
    assert facts.torch_strings.value is Strings.CXX11


def test_files_that_do_not_ask_for_torch_are_left_alone(tmp_path: Path) -> None:
    _torch(tmp_path)
    _compile(tmp_path / f"{SITE}/other.so".lstrip("/"), has=("PyInit_other",))
    found = _probe(_machine(tmp_path)).files
    assert isinstance(found, Known)
    assert found.value == ()


def test_a_cut_off_file_is_unknown_and_no_crash(tmp_path: Path) -> None:
    _torch(tmp_path)
    whole = _extension(tmp_path, "x_cuda.so", ERROR + "Ss").read_bytes()
    path = tmp_path / f"{SITE}/x_cuda.so".lstrip("/")
    for size in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        _probe(_machine(tmp_path))


@pytest.mark.parametrize("node", ["nvidia0", "dxg", "nvhost-gpu"])
def test_gpu_code_is_read_where_there_is_a_gpu(tmp_path: Path, node: str) -> None:
    _torch(tmp_path)
    spec = ElfSpec(needed=("libc10.so",), gpu_code=("sm_80", "sm_90a", "compute_90"))
    path = _write(tmp_path, f"{SITE}/x_cuda.so")
    path.write_bytes(make_elf(spec))
    assert isinstance(_one(tmp_path).gpu_code, Unknown)
    _write(tmp_path, f"/dev/{node}")
    assert _one(tmp_path).gpu_code == Known(("sm_80", "compute_90", "sm_90a"), f"{SITE}/x_cuda.so")


def test_prebuilt_operators_deep_in_a_package_are_found_by_its_record(tmp_path: Path) -> None:
    _torch(tmp_path)
    name = "deepspeed/ops/adam/fused_adam_op.cpython-312-x86_64-linux-gnu.so"
    _install(tmp_path, "deepspeed", "0.18.2", "deepspeed/__init__.py", name, "deepspeed.libs/libtorch_other.so")
    _extension(tmp_path, name, ERROR + "Ss")
    one = _one(tmp_path)
    assert (one.package, one.path) == ("deepspeed", f"{SITE}/{name}")
    assert isinstance(one.symbols, Known)
    assert one.symbols.value.lacking == 1


def test_of_bitsandbytes_the_library_of_torchs_cuda_is_read(tmp_path: Path) -> None:
    _torch(tmp_path)
    names = [f"bitsandbytes/libbitsandbytes_cuda{tag}.so" for tag in ("118", "128", "130")]
    _install(tmp_path, "bitsandbytes", "0.50.2", *names, "bitsandbytes/libbitsandbytes_rocm70.so")
    for name in names:
        _extension(tmp_path, name, needs=("libcudart.so.12",))
    assert _one(tmp_path).path == f"{SITE}/bitsandbytes/libbitsandbytes_cuda128.so"


def test_a_recording_keeps_the_answer_and_not_the_tables(tmp_path: Path) -> None:
    _torch(tmp_path)
    _extension(tmp_path, "x_cuda.so", ERROR + "Ss", CHECK + STRING)
    recording = RecordingMachine(_machine(tmp_path))
    live = _probe(recording)
    replayed = _probe(RecordedMachine(recording.evidence))
    assert replayed == live
    kept = recording.evidence.at(f"{SITE}/torch/lib/libc10.so")
    assert sum(len(piece) for piece in kept.pieces.values()) < 4096


def test_an_older_recording_does_not_know_which_files_there_are(tmp_path: Path) -> None:
    _torch(tmp_path)
    _extension(tmp_path, "x_cuda.so", ERROR + "Ss")
    recording = RecordingMachine(_machine(tmp_path))
    _probe(recording)
    for seen in recording.evidence.paths.values():
        seen.matches.clear()
    facts = _probe(RecordedMachine(recording.evidence))
    assert isinstance(facts.files, Unknown)
    assert isinstance(facts.torch_strings, Unknown)


def test_without_torch_nothing_is_read(tmp_path: Path) -> None:
    _write(tmp_path, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    assert isinstance(collect(_machine(tmp_path)).extensions.files, Unknown)


def test_the_torch_that_is_installed_here_is_told_as_it_says_itself(tmp_path: Path) -> None:
    """Names of the real libc10.so: one that it has, one of the other strings; the loader agrees."""
    torch = pytest.importorskip("torch")
    site = Path(torch.__file__).parents[1]
    lib = tmp_path / SITE.lstrip("/") / "torch"
    _write(tmp_path, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    lib.parent.mkdir(parents=True, exist_ok=True)
    lib.symlink_to(site / "torch")
    own, other = (STRING, "Ss") if torch.compiled_with_cxx11_abi() else ("Ss", STRING)
    fits = _extension(tmp_path, "fits_cuda.so", CHECK + own)
    _extension(tmp_path, "differs_cuda.so", CHECK + other)
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.torch_strings, Known)
    assert (facts.torch_strings.value is Strings.CXX11) is torch.compiled_with_cxx11_abi()
    assert isinstance(facts.files, Known)
    lacking = {
        each.package: each.symbols.value.lacking for each in facts.files.value if isinstance(each.symbols, Known)
    }
    assert lacking == {"fits-cuda": 0, "differs-cuda": 1}
    ctypes.CDLL(str(fits))  # torch is loaded in this process

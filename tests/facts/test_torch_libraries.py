"""What the loader would do for torch, against the real loader: a torch of small libraries, built here and imported."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstlight.elf.loader import FoundBy
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import probe_environments
from firstlight.facts.torch_install import probe_torch
from firstlight.facts.torch_libraries import TorchLibraries, probe_torch_libraries
from firstlight.machine.evidence import from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from tools.machines.elf_writer import ElfSpec, make_elf

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

# As torch/__init__.py does it: the global dependencies first, then the library behind torch._C.
IMPORT = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
print("\\n".join(sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})))
"""
Make = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages folder of a virtual environment with torch's record in it and no library yet."""
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    (site / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python3").write_text("")
    (site / "torch" / "__init__.py").write_text("")
    (site / "torch" / "version.py").write_text("__version__ = '2.9.0+cu128'\ncuda = '12.8'\n")
    return site


def build(path: Path, *needed: Path, rpath: str = "", runpath: str = "", version: str = "") -> Path:
    """A library that needs others, with a search path of either kind; `version` is a symbol version it wants."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tags = "--disable-new-dtags" if rpath else "--enable-new-dtags"
    flags = ["-Wl,--no-as-needed", f"-Wl,-soname,{path.name}", f"-Wl,{tags}"]
    if rpath or runpath:
        flags.append(f"-Wl,-rpath,{rpath or runpath}")
    flags += [flag for each in needed for flag in (f"-L{each.parent}", f"-l:{each.name}")]
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,--allow-shlib-undefined", "-o", str(path), "-x", "c", "-"]
    subprocess.run([*command, "-x", "none", *flags], input="", text=True, check=True)
    return path


def torch_of(site: Path) -> Path:
    return site / "torch" / "lib"


def probe(site: Path, **environ: str) -> TorchLibraries:
    machine = LiveMachine(environ=environ)
    found = probe_environments(machine, python=str(site.parents[2]))
    known = probe_torch_libraries(machine, probe_torch(machine, found.environments[0]))
    assert isinstance(known, Known), known
    return known.value


def loaded(site: Path, **environ: str) -> dict[str, str]:
    return {each.name: os.path.realpath(each.path) for each in probe(site, **environ).loaded}


def really_loaded(site: Path, **environ: str) -> dict[str, str]:
    """Name -> file of the process after the import, for files below the test's folder."""
    paths = [torch_of(site) / name for name in ("libtorch_global_deps.so", "libtorch_python.so")]
    there = [str(path) for path in paths if path.exists()]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *there], env=environ, capture_output=True, text=True, check=True
    )
    found = [line for line in done.stdout.splitlines() if str(site.parents[3]) in line]
    return {Path(line).name: line for line in found}


def a_torch_with_cublas(site: Path, *, tag: str) -> Path:
    """torch -> libcublas -> libcublasLt as the wheels have it, libcublas with rpath or runpath; and a decoy folder."""
    cublas = site / "nvidia" / "cublas" / "lib"
    lt = build(cublas / "libcublasLt.so.12")
    own = build(cublas / "libcublas.so.12", lt, **{tag: "$ORIGIN"})
    search = "$ORIGIN/../../nvidia/cublas/lib:$ORIGIN"
    build(torch_of(site) / "libtorch_global_deps.so", own, rpath=search)
    build(torch_of(site) / "libtorch_python.so", own, lt, rpath=search)
    decoys = site.parents[3] / "cuda" / "lib64"
    for name in ("libcublas.so.12", "libcublasLt.so.12"):
        build(decoys / name)
    return decoys


@pytest.mark.parametrize("tag", ["rpath", "runpath"])
def test_the_files_are_those_that_the_real_loader_takes(site: Path, tag: str) -> None:
    decoys = a_torch_with_cublas(site, tag=tag)
    for environ in ({}, {"LD_LIBRARY_PATH": str(decoys)}):
        real = really_loaded(site, **environ)
        found = loaded(site, **environ)
        assert {name: path for name, path in real.items() if "torch" not in name} == {
            name: path for name, path in found.items() if name.startswith("libcublas")
        }


def test_library_path_exchanges_what_a_library_with_runpath_asks_for(site: Path) -> None:
    decoys = a_torch_with_cublas(site, tag="runpath")
    [shadow] = probe(site, LD_LIBRARY_PATH=str(decoys)).shadowed
    assert shadow.name == "libcublasLt.so.12"
    assert shadow.path == f"{decoys}/libcublasLt.so.12"
    assert shadow.entry == str(decoys)
    assert os.path.realpath(shadow.instead_of) == f"{site}/nvidia/cublas/lib/libcublasLt.so.12"
    assert Path(shadow.requested_by).name == "libcublas.so.12"


def test_without_the_global_dependencies_torch_itself_asks_first_and_nothing_is_exchanged(site: Path) -> None:
    decoys = a_torch_with_cublas(site, tag="runpath")
    (torch_of(site) / "libtorch_global_deps.so").unlink()
    assert probe(site, LD_LIBRARY_PATH=str(decoys)).shadowed == ()
    assert really_loaded(site, LD_LIBRARY_PATH=str(decoys))["libcublasLt.so.12"].startswith(str(site))


def test_library_path_exchanges_nothing_where_every_library_has_rpath(site: Path) -> None:
    decoys = a_torch_with_cublas(site, tag="rpath")
    found = probe(site, LD_LIBRARY_PATH=str(decoys))
    assert found.shadowed == ()
    assert {each.found_by for each in found.loaded} == {FoundBy.RPATH}


def test_a_library_path_that_leads_to_the_wheels_own_folder_exchanges_nothing(site: Path) -> None:
    a_torch_with_cublas(site, tag="runpath")
    (site.parents[3] / "link").symlink_to(site / "nvidia" / "cublas" / "lib")
    found = probe(site, LD_LIBRARY_PATH=str(site.parents[3] / "link"))
    assert found.shadowed == ()
    assert FoundBy.LIBRARY_PATH in {each.found_by for each in found.loaded}


def test_a_missing_name_is_listed_once_with_everybody_who_asks(site: Path) -> None:
    gone = build(site / "gone" / "libcudss.so.0")
    middle = build(torch_of(site) / "libtorch_cuda.so", gone, rpath="$ORIGIN")
    build(torch_of(site) / "libtorch_python.so", middle, gone, rpath="$ORIGIN")
    shutil.rmtree(site / "gone")
    [missing] = probe(site).missing
    assert missing.name == "libcudss.so.0"
    assert sorted(Path(path).name for path in missing.requested_by) == ["libtorch_cuda.so", "libtorch_python.so"]
    assert missing.damaged == ""


def test_a_file_cut_short_is_told_apart_from_a_missing_one(site: Path) -> None:
    broken = build(torch_of(site) / "libcublas.so.12")
    build(torch_of(site) / "libtorch_python.so", broken, rpath="$ORIGIN")
    broken.write_bytes(b"not an ELF file")
    [missing] = probe(site).missing
    assert (missing.name, missing.damaged) == ("libcublas.so.12", str(broken))


def test_what_is_missing_for_one_and_found_by_another_does_not_count_as_missing(site: Path) -> None:
    apart = build(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2")
    build(torch_of(site) / "libtorch_global_deps.so", apart)  # no search path of its own
    build(torch_of(site) / "libtorch_python.so", apart, rpath="$ORIGIN/../../nvidia/nccl/lib")
    found = probe(site)
    assert found.missing == ()
    assert [each.name for each in found.loaded] == ["libnccl.so.2"]


def test_needed_versions_are_the_highest_of_all_files_but_the_systems(site: Path) -> None:
    folder = torch_of(site)
    arch = os.uname().machine
    wanted = (("libc.so.6", ("GLIBC_2.17", "GLIBC_2.28")), ("libstdc++.so.6", ("GLIBCXX_3.4.9", "GLIBCXX_3.4.21")))
    python = ElfSpec(arch=arch, needed=("libcurand.so.10", "libc.so.6"), rpath="$ORIGIN", needs=wanted)
    curand = ElfSpec(arch=arch, needed=("libc.so.6",), needs=(("libm.so.6", ("GLIBC_2.29", "GLIBC_PRIVATE")),))
    (folder / "libtorch_python.so").write_bytes(make_elf(python))
    (folder / "libcurand.so.10").write_bytes(make_elf(curand))
    found = probe(site)
    assert found.glibc_needed == Known("2.29", seen_in=f"{folder}/libcurand.so.10")
    assert found.libstdcxx_needed == Known("3.4.21", seen_in=f"{folder}/libtorch_python.so")


def test_pyelftools_reads_the_same_needed_versions_from_a_made_file(tmp_path: Path) -> None:
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    wanted = (("libc.so.6", ("GLIBC_2.17", "GLIBC_2.28")), ("libm.so.6", ("GLIBC_2.29",)))
    path = tmp_path / "made.so"
    path.write_bytes(make_elf(ElfSpec(needed=("libc.so.6",), needs=wanted, defines=("A_1", "A_2"), note_section=".x")))
    with path.open("rb") as stream:
        elf: Any = ELFFile(stream)
        dynamic = next(each for each in elf.iter_segments() if isinstance(each, DynamicSegment))
        tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
        # The file has no section for the table, so the section is put together from the tags.
        header: Any = {"sh_info": tags["DT_VERNEEDNUM"], "sh_offset": tags["DT_VERNEED"], "sh_size": 0, "sh_flags": 0,
                       "sh_type": "SHT_GNU_verneed", "sh_addralign": 8}  # fmt: skip
        strings: Any = dynamic._get_stringtable()
        section = GNUVerNeedSection(header, ".gnu.version_r", elf, strings)
        read = tuple((need.name, tuple(each.name for each in versions)) for need, versions in section.iter_versions())
    assert read == wanted


def test_a_conda_environments_own_folder_counts_for_what_is_missing_and_for_libstdcxx(site: Path) -> None:
    prefix = site.parents[2]
    (prefix / "conda-meta").mkdir()
    (prefix / "pyvenv.cfg").unlink()
    arch = os.uname().machine
    wanted = (("libstdc++.so.6", ("GLIBCXX_3.4.30",)),)
    spec = ElfSpec(arch=arch, needed=("libstdc++.so.6", "libonly_in_conda.so.1"), rpath="$ORIGIN", needs=wanted)
    (torch_of(site) / "libtorch_python.so").write_bytes(make_elf(spec))
    assert [each.name for each in probe(site).missing][-1:] == ["libonly_in_conda.so.1"]
    before = probe(site).libstdcxx_offered
    build(prefix / "lib" / "libonly_in_conda.so.1")
    own = ElfSpec(arch=arch, soname="libstdc++.so.6", defines=("GLIBCXX_3.4.99",))
    (prefix / "lib" / "libstdc++.so.6").write_bytes(make_elf(own))
    found = probe(site)
    assert found.missing == ()
    assert found.libstdcxx_offered == Known("3.4.99", seen_in=f"{prefix}/lib/libstdc++.so.6")
    assert found.libstdcxx_offered != before


def test_absurd_version_names_are_none(site: Path) -> None:
    arch = os.uname().machine
    wanted = (("libc.so.6", ("GLIBC_", "GLIBC_2.x", "GLIBC_999999999.1", "GLIBC_ABI_DT_RELR")),)
    (torch_of(site) / "libtorch_python.so").write_bytes(make_elf(ElfSpec(arch=arch, needs=wanted)))
    assert isinstance(probe(site).glibc_needed, Unknown)


def test_a_torch_without_readable_libraries_is_unknown_with_the_folder(site: Path) -> None:
    (torch_of(site) / "libtorch_python.so").write_bytes(b"\x7fEL")
    machine = LiveMachine(environ={})
    torch = probe_torch(machine, probe_environments(machine, python=str(site.parents[2])).environments[0])
    found = probe_torch_libraries(machine, torch)
    assert isinstance(found, Unknown)
    assert str(torch_of(site)) in found.reason


def test_without_torch_there_is_nothing_to_load() -> None:
    assert probe_torch_libraries(LiveMachine(environ={}), Unknown("no torch")) == Unknown("torch is not installed")


def test_the_closure_of_a_cpu_torch_starts_at_its_python_library(site: Path) -> None:
    build(torch_of(site) / "libtorch_cpu.so")
    assert probe(site).root == f"{torch_of(site)}/libtorch_cpu.so"
    build(torch_of(site) / "libtorch_python.so")
    assert probe(site).root == f"{torch_of(site)}/libtorch_python.so"


def test_the_replayed_machine_gives_the_same_answer(site: Path) -> None:
    decoys = a_torch_with_cublas(site, tag="runpath")
    live = LiveMachine(environ={"LD_LIBRARY_PATH": str(decoys)})
    recording = RecordingMachine(live)
    environment = probe_environments(recording, python=str(site.parents[2])).environments[0]
    first = probe_torch_libraries(recording, probe_torch(recording, environment))
    document = json.loads(json.dumps(to_document(recording.evidence, lambda text: text, lambda data: data)))
    replay = RecordedMachine(from_document(document, "here"))
    again = probe_torch_libraries(replay, probe_torch(replay, environment))
    assert first == again


def test_of_an_installed_torch_the_files_are_those_of_a_real_import() -> None:
    spec = importlib.util.find_spec("torch")  # finds it without importing it
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed here")
    show = 'import torch; print(*{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}, sep="\\n")'
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    folder = os.path.realpath(Path(spec.origin).parent / "lib")
    real = {line for line in done.stdout.splitlines() if os.path.dirname(line) == folder}
    machine = LiveMachine()
    environment = probe_environments(machine, python=sys.prefix).environments[0]
    known = probe_torch_libraries(machine, probe_torch(machine, environment))
    assert isinstance(known, Known)
    found = {os.path.realpath(each.path) for each in known.value.loaded} | {os.path.realpath(known.value.root)}
    assert {path for path in found if os.path.dirname(path) == folder} | {f"{folder}/libtorch_global_deps.so"} == real
    assert known.value.missing == ()

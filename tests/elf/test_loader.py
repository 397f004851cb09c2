"""The search for one name, with the real loader as the referee wherever it can run."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.elf.ld_cache import read_ld_cache
from firstlight.elf.loader import FoundBy, LoaderSetup, expand, loader_setup, search, whole_setup
from firstlight.elf.reader import ElfFile, read_elf
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
LOADER = LOADERS.get(os.uname().machine, "")
OTHER_MACHINE = struct.pack("<H", 183 if os.uname().machine == "x86_64" else 62)

pytestmark = pytest.mark.skipif(not os.access(LOADER, os.X_OK), reason="glibc's loader is not installed")


def _environ(**variables: object) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", **{name: str(value) for name, value in variables.items()}}


def _really_loaded(program: Path, environ: dict[str, str]) -> dict[str, str]:
    """name -> path as the real loader resolves them; a name it does not find is 'not found'."""
    environ = environ | {"LD_TRACE_LOADED_OBJECTS": "1"}  # what ldd sets; goes on at a name that is not found
    done = subprocess.run([LOADER, str(program)], env=environ, capture_output=True, text=True, check=False)
    lines = re.findall(r"^\t(\S+)(?: => (.+?))?(?: \(0x\w+\))?$", done.stdout, re.MULTILINE)
    return {name: path or name for name, path in lines}


def _chosen(program: Path, name: str, environ: dict[str, str]) -> str:
    """The path our search chooses for a name that `program` needs."""
    machine = LiveMachine(environ=environ)
    file = read_elf(machine, str(program))
    assert file is not None
    winner = search(machine, whole_setup(machine), name=name, chain=(file,)).winner
    return "not found" if winner is None else winner.path


@pytest.fixture
def program(tmp_path: Path, build: Build) -> Path:
    """A library that needs libwanted.so.1, which lies nowhere yet."""
    stub = build(tmp_path / "link" / "libwanted.so.1", "-Wl,-soname,libwanted.so.1")
    return build(tmp_path / "program.so", str(stub))


def _put(tmp_path: Path, folder: str) -> Path:
    target = tmp_path / folder / "libwanted.so.1"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / "link" / "libwanted.so.1", target)
    return target


def test_default_folders_and_variables_are_those_of_the_real_loader() -> None:
    told = subprocess.run([LOADER, "--list-diagnostics"], capture_output=True, text=True, check=False).stdout
    if "path.system_dirs" not in told:
        pytest.skip("this loader has no --list-diagnostics (glibc before 2.33)")
    folders = [path.rstrip("/") for path in re.findall(r'^path\.system_dirs\[\w+\]="(.*)"$', told, re.MULTILINE)]
    setup = loader_setup(LiveMachine())
    assert [folder for folder in setup.default_folders if folder in folders] == folders
    assert re.findall(r'^dl_dst_lib="(.*)"$', told, re.MULTILINE) == [setup.lib]


def test_hwcaps_folders_are_those_the_real_loader_searches() -> None:
    told = subprocess.run([LOADER, "--help"], capture_output=True, text=True, check=False).stdout
    if "glibc-hwcaps" not in told:
        pytest.skip("this loader has no glibc-hwcaps folders")
    names = re.findall(r"^  (x86-64-v\d) \(supported, searched\)$", told, re.MULTILINE)
    assert list(loader_setup(LiveMachine()).hwcaps) == names


@pytest.mark.parametrize("library_path", ["{0}/a:{0}/b", "{0}/a;{0}/b", "{0}/nowhere:{0}/b//:{0}/a", "$LIB:{0}/b"])
def test_ld_library_path_is_searched_in_order(tmp_path: Path, program: Path, library_path: str) -> None:
    _put(tmp_path, "a")
    _put(tmp_path, "b")
    environ = _environ(LD_LIBRARY_PATH=library_path.format(tmp_path))
    real = _really_loaded(program, environ)["libwanted.so.1"]
    assert os.path.normpath(_chosen(program, "libwanted.so.1", environ)) == os.path.normpath(real)
    assert real != "not found"


def test_an_empty_element_means_the_working_folder(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _put(tmp_path, "here")
    monkeypatch.chdir(here.parent)
    environ = _environ(LD_LIBRARY_PATH=f"{tmp_path}/nowhere:")
    assert os.path.samefile(_really_loaded(program, environ)["libwanted.so.1"], here)
    assert _chosen(program, "libwanted.so.1", environ) == str(here)


def test_a_file_of_another_machine_is_passed_over(tmp_path: Path, program: Path) -> None:
    foreign = _put(tmp_path, "foreign")
    data = bytearray(foreign.read_bytes())
    data[18:20] = OTHER_MACHINE
    foreign.write_bytes(data)
    own = _put(tmp_path, "own")
    environ = _environ(LD_LIBRARY_PATH=f"{foreign.parent}:{own.parent}")
    assert _really_loaded(program, environ)["libwanted.so.1"] == str(own)
    machine = LiveMachine(environ=environ)
    found = search(machine, loader_setup(machine), name="libwanted.so.1")
    assert [item.path for item in found.candidates] == [str(own)]
    assert [item.path for item in found.passed_over] == [str(foreign)]


def test_at_an_empty_file_the_loader_stops_with_an_error_and_so_do_we(tmp_path: Path, program: Path) -> None:
    """A container image built with the GPU runtime can keep an empty libcuda.so.1."""
    empty = _put(tmp_path, "empty")
    empty.write_bytes(b"")
    own = _put(tmp_path, "own")
    environ = _environ(LD_LIBRARY_PATH=f"{empty.parent}:{own.parent}")
    done = subprocess.run([LOADER, "--list", str(program)], env=environ, capture_output=True, text=True, check=False)
    assert "file too short" in done.stderr
    machine = LiveMachine(environ=environ)
    found = search(machine, loader_setup(machine), name="libwanted.so.1")
    assert found.winner is None
    assert [(item.path, item.arch != "") for item in found.candidates] == [(str(empty), False), (str(own), True)]


@pytest.mark.skipif(not loader_setup(LiveMachine()).hwcaps, reason="this CPU has no glibc-hwcaps level")
def test_a_hwcaps_folder_comes_before_the_folder_that_holds_it(tmp_path: Path, program: Path) -> None:
    level = loader_setup(LiveMachine()).hwcaps[-1]
    _put(tmp_path, "lib")
    special = _put(tmp_path, f"lib/glibc-hwcaps/{level}")
    environ = _environ(LD_LIBRARY_PATH=tmp_path / "lib")
    assert _really_loaded(program, environ)["libwanted.so.1"] == str(special)
    assert _chosen(program, "libwanted.so.1", environ) == str(special)


def test_every_candidate_says_which_rule_and_which_entry_led_to_it(tmp_path: Path, build: Build) -> None:
    stub = build(tmp_path / "link" / "libwanted.so.1", "-Wl,-soname,libwanted.so.1")
    asking = build(tmp_path / "app" / "asking.so", str(stub), "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../own")
    loaded_by = build(tmp_path / "top.so", str(asking), "-Wl,--disable-new-dtags,-rpath,$ORIGIN/chain")
    for folder in ("own", "env", "chain"):
        _put(tmp_path, folder)
    machine = LiveMachine(environ=_environ(LD_LIBRARY_PATH=tmp_path / "env"))
    files = [read_elf(machine, str(path)) for path in (asking, loaded_by)]
    chain = tuple(file for file in files if file is not None)
    found = search(machine, loader_setup(machine), name="libwanted.so.1", chain=chain)
    assert [(item.rule, item.entry, item.owner) for item in found.candidates] == [
        (FoundBy.LIBRARY_PATH, str(tmp_path / "env"), str(loaded_by)),
        (FoundBy.RUNPATH, "$ORIGIN/../own", str(asking)),
    ]
    without_runpath = (replace(chain[0], runpath=()), chain[1])
    found = search(machine, loader_setup(machine), name="libwanted.so.1", chain=without_runpath)
    assert [(item.rule, item.entry, item.owner) for item in found.candidates] == [
        (FoundBy.RPATH, "$ORIGIN/chain", str(loaded_by)),
        (FoundBy.LIBRARY_PATH, str(tmp_path / "env"), str(loaded_by)),
    ]


def test_a_system_library_comes_from_the_cache() -> None:
    machine = LiveMachine(environ=_environ())
    winner = search(machine, loader_setup(machine), name="libc.so.6").winner
    assert winner is not None
    assert (winner.rule, winner.entry) == (FoundBy.CACHE, "/etc/ld.so.cache")


def test_a_later_cache_entry_is_shown_but_never_loaded(tmp_path: Path, program: Path) -> None:
    """The loader tries the first entry alone; the referee sees our cache in a mount namespace of its own."""
    first, second = _put(tmp_path, "first"), _put(tmp_path, "second")
    (tmp_path / "conf").write_text(f"{first.parent}\n{second.parent}\n")
    cache = tmp_path / "cache"
    command = ["/sbin/ldconfig", "-X", "-C", str(cache), "-f", str(tmp_path / "conf")]
    if shutil.which("unshare") is None or not os.access(command[0], os.X_OK):
        pytest.skip("unshare or ldconfig is not installed")
    subprocess.run(command, check=True, capture_output=True)
    first.unlink()
    script = 'mount --bind "$0" /etc/ld.so.cache && echo mounted && LD_TRACE_LOADED_OBJECTS=1 "$1" "$2"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(cache), LOADER, str(program)]
    done = subprocess.run(namespace, capture_output=True, text=True, check=False)
    if "mounted" not in done.stdout:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert "libwanted.so.1 => not found" in done.stdout
    machine = LiveMachine(environ=_environ())
    setup = loader_setup(machine)._replace(cache=read_ld_cache(machine, str(cache)))
    found = search(machine, setup, name="libwanted.so.1")
    assert found.winner is None
    assert [(item.path, item.rule) for item in found.candidates] == [(str(second), FoundBy.LATER_CACHE_ENTRY)]


def _setup() -> LoaderSetup:
    return loader_setup(LiveMachine(environ={}))._replace(lib="lib/x86_64-linux-gnu", arch="x86_64")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$ORIGIN", "/opt/x"),
        ("${ORIGIN}/../nvidia", "/opt/x/../nvidia"),
        ("$ORIGINAL", "$ORIGINAL"),
        ("/usr/$LIB:/p/$PLATFORM", "/usr/lib/x86_64-linux-gnu:/p/x86_64"),
        ("$UNKNOWN/$ORIGIN", "$UNKNOWN//opt/x"),
        ("plain", "plain"),
    ],
)
def test_variables_of_a_search_path_are_expanded(text: str, expanded: str) -> None:
    owner = ElfFile("/opt/x/liba.so", "x86_64", (), "", (), (), "")
    assert expand(text, owner, setup=_setup()) == expanded


def test_preloads_come_from_the_variable_then_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ld.so.preload").write_text("/opt/one.so /opt/two.so:three.so # not this.so\n")
    machine = LiveMachine(root=str(tmp_path), environ={"LD_PRELOAD": "a.so:b.so /c.so"})
    assert loader_setup(machine).preload == ("a.so", "b.so", "/c.so", "/opt/one.so", "/opt/two.so", "three.so")


def test_on_a_distribution_without_multiarch_folders_lib64_comes_first(tmp_path: Path) -> None:
    (tmp_path / "usr" / "lib64").mkdir(parents=True)
    setup = loader_setup(LiveMachine(root=str(tmp_path), environ={}))
    assert setup.default_folders == ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
    assert setup.lib == "lib64"
    assert setup.library_path == ()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the folders of this loader are those of x86_64")
def test_folders_for_a_platform_that_older_loaders_search_are_searched(tmp_path: Path, program: Path) -> None:
    """glibc before 2.37; a newer loader passes them over, and so do we."""
    below = ("", "/x86_64", "/x86_64/x86_64", "/avx512_1", "/haswell", "/haswell/avx512_1", "/haswell/avx512_1/x86_64")
    for folder in (f"a{tls}{name}" for tls in ("", "/tls") for name in below):
        _put(tmp_path, folder)
        environ = _environ(LD_LIBRARY_PATH=f"{tmp_path}/a")
        assert _chosen(program, "libwanted.so.1", environ) == _really_loaded(program, environ)["libwanted.so.1"]


def test_the_setup_of_another_arch_has_its_folders_and_no_cpu_levels(tmp_path: Path) -> None:
    (tmp_path / "lib" / "aarch64-linux-gnu").mkdir(parents=True)
    machine = LiveMachine(root=str(tmp_path), environ={})
    setup = loader_setup(machine, arch="aarch64")
    assert setup.default_folders[:2] == ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
    assert (setup.arch, setup.lib) == ("aarch64", "lib/aarch64-linux-gnu")
    assert setup.hwcaps == () or machine.host.arch == "aarch64"

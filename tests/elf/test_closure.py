"""What loads with a file, against the real loader: on files built to be awkward."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.elf.closure import Closure, closure
from firstlight.elf.loader import FoundBy
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
LOADER = LOADERS.get(os.uname().machine, "")

pytestmark = pytest.mark.skipif(not os.access(LOADER, os.X_OK), reason="glibc's loader is not installed")


def _real(path: Path, environ: dict[str, str]) -> set[tuple[str, str]]:
    """Names with the path the real loader loads for them, or 'not found'; the loader itself and the vdso left out.

    A name can be in both ways: not found for one requester, found later for another with a search path of its own.
    """
    environ = environ | {"LD_TRACE_LOADED_OBJECTS": "1"}  # what ldd sets; goes on at a name that is not found
    done = subprocess.run([LOADER, str(path)], env=environ, capture_output=True, text=True, check=False)
    lines = re.findall(r"^\t(\S+)(?: => (.+?))?(?: \(0x\w+\))?$", done.stdout, re.MULTILINE)
    return {(name, path or name) for name, path in lines if "ld-linux" not in name and "vdso" not in name}


def _ours(path: Path, environ: dict[str, str]) -> set[tuple[str, str]]:
    return _pairs(_closure(path, environ))


def _pairs(found: Closure) -> set[tuple[str, str]]:
    loaded = {(item.name, item.found.path) for item in found.objects}
    return loaded | {(item.name, "not found") for item in found.missing}


def _closure(path: Path, environ: dict[str, str]) -> Closure:
    found = closure(LiveMachine(environ=environ), str(path))
    assert found is not None
    return found


TAGS = {
    "rpath": "-Wl,--disable-new-dtags,-rpath,$ORIGIN",
    "runpath": "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
    "none": "-Wl,--enable-new-dtags",
}


def _a_b_c(tmp_path: Path, build: Build, a: str, b: str) -> Path:
    """a needs b needs c, all in `own`; decoys of b and c in `decoy`."""
    own, decoy = tmp_path / "own", tmp_path / "decoy"
    for folder in (own, decoy):
        build(folder / "libc3.so", "-Wl,-soname,libc3.so")
        build(folder / "libb3.so", "-Wl,-soname,libb3.so", str(folder / "libc3.so"), TAGS[b])
    return build(own / "liba3.so", str(own / "libb3.so"), TAGS[a])


# What shared-library searches come down to on a torch install, as measured with the real loader.
EXPECTED = {
    ("rpath", "rpath"): ("own", "own"),
    ("rpath", "none"): ("own", "own"),
    ("rpath", "runpath"): ("own", "decoy"),
    ("runpath", "rpath"): ("decoy", "decoy"),
    ("runpath", "none"): ("decoy", "decoy"),
    ("runpath", "runpath"): ("decoy", "decoy"),
}


@pytest.mark.parametrize(("a", "b"), list(EXPECTED))
def test_rpath_beats_ld_library_path_and_ld_library_path_beats_runpath(
    tmp_path: Path, build: Build, a: str, b: str
) -> None:
    path = _a_b_c(tmp_path, build, a, b)
    environ = {"LD_LIBRARY_PATH": str(tmp_path / "decoy")}
    ours = _ours(path, environ)
    assert ours == _real(path, environ)
    from_b, from_c = EXPECTED[a, b]
    assert ours == {("libb3.so", f"{tmp_path}/{from_b}/libb3.so"), ("libc3.so", f"{tmp_path}/{from_c}/libc3.so")}


@pytest.mark.parametrize(("a", "b"), list(itertools.product(TAGS, TAGS)))
def test_runpath_is_not_inherited_and_rpath_is(tmp_path: Path, build: Build, a: str, b: str) -> None:
    path = _a_b_c(tmp_path, build, a, b)
    ours = _ours(path, {})
    assert ours == _real(path, {})
    if a == "runpath":
        assert (("libc3.so", "not found") in ours) == (b == "none")


def test_origin_is_the_folder_of_the_link_not_of_the_file_behind_it(tmp_path: Path, build: Build) -> None:
    path = _a_b_c(tmp_path, build, "rpath", "rpath")
    (tmp_path / "elsewhere").mkdir()
    linked_file = tmp_path / "elsewhere" / "liba3.so"
    linked_file.symlink_to(path)
    (tmp_path / "linked-folder").symlink_to(path.parent)
    assert _ours(linked_file, {}) == _real(linked_file, {}) == {("libb3.so", "not found")}
    through_folder = tmp_path / "linked-folder" / "liba3.so"
    assert _ours(through_folder, {}) == _real(through_folder, {})
    assert ("libb3.so", str(tmp_path / "linked-folder" / "libb3.so")) in _ours(through_folder, {})


def test_one_file_under_two_names_is_loaded_once(tmp_path: Path, build: Build) -> None:
    file = build(tmp_path / "libreal.so.1.2")
    for name in ("libone.so", "libtwo.so"):
        (tmp_path / name).symlink_to(file.name)
    stubs = [build(tmp_path / "link" / name, f"-Wl,-soname,{name}") for name in ("libone.so", "libtwo.so")]
    path = build(tmp_path / "top.so", *(str(stub) for stub in stubs), TAGS["rpath"])
    assert _ours(path, {}) == _real(path, {}) == {("libone.so", str(tmp_path / "libone.so"))}


def test_a_library_loaded_by_path_answers_to_its_soname(tmp_path: Path, build: Build) -> None:
    """The way an application pins a library: needed by path first, by soname later."""
    pinned = build(tmp_path / "pinned" / "libp.so.1", "-Wl,-soname,libp.so.1")
    user = build(tmp_path / "libuser.so", "-Wl,-soname,libuser.so", str(pinned))
    nameless = build(tmp_path / "pinned" / "raw" / "libraw.so", "-Wl,-soname,libp.so.1")
    by_path = build(tmp_path / "link" / "x.so", f"-Wl,-soname,{nameless}")
    path = build(tmp_path / "top.so", str(by_path), str(user), TAGS["rpath"])
    assert _ours(path, {}) == _real(path, {})
    assert "libp.so.1" not in dict(_ours(path, {}))


def test_a_preloaded_library_is_there_before_the_search(tmp_path: Path, build: Build) -> None:
    path = _a_b_c(tmp_path, build, "rpath", "rpath")
    environ = {"LD_PRELOAD": str(tmp_path / "decoy" / "libc3.so")}
    found = _closure(path, environ)
    assert [(item.found.path, item.requested_by) for item in found.objects] == [
        (str(tmp_path / "decoy" / "libc3.so"), ("LD_PRELOAD", str(tmp_path / "own" / "libb3.so"))),
        (str(tmp_path / "own" / "libb3.so"), (str(path),)),
    ]
    done = subprocess.run(
        [LOADER, "--preload", environ["LD_PRELOAD"], "--list", str(path)], capture_output=True, text=True, check=True
    )
    assert str(tmp_path / "own" / "libc3.so") not in done.stdout


def test_what_is_missing_names_who_asks(tmp_path: Path, build: Build) -> None:
    path = _a_b_c(tmp_path, build, "rpath", "rpath")
    (tmp_path / "own" / "libc3.so").unlink()
    [missing] = _closure(path, {}).missing
    assert (missing.name, missing.requested_by) == ("libc3.so", str(tmp_path / "own" / "libb3.so"))
    (tmp_path / "own" / "libc3.so").write_bytes(b"not a library")
    [damaged] = _closure(path, {}).missing
    assert damaged.damaged == str(tmp_path / "own" / "libc3.so")


def test_the_rule_and_the_entry_that_led_to_each_file_are_told(tmp_path: Path, build: Build) -> None:
    path = _a_b_c(tmp_path, build, "rpath", "runpath")
    found = _closure(path, {"LD_LIBRARY_PATH": str(tmp_path / "decoy")})
    assert [(item.name, item.found.rule, item.found.entry) for item in found.objects] == [
        ("libb3.so", FoundBy.RPATH, "$ORIGIN"),
        ("libc3.so", FoundBy.LIBRARY_PATH, str(tmp_path / "decoy")),
    ]


def test_a_circle_of_libraries_ends(tmp_path: Path, build: Build) -> None:
    build(tmp_path / "libx9.so", "-Wl,-soname,libx9.so")
    build(tmp_path / "liby9.so", "-Wl,-soname,liby9.so", str(tmp_path / "libx9.so"), TAGS["rpath"])
    path = build(tmp_path / "libx9.so", "-Wl,-soname,libx9.so", str(tmp_path / "liby9.so"), TAGS["rpath"])
    assert _ours(path, {}) == _real(path, {}) == {("liby9.so", str(tmp_path / "liby9.so"))}


@pytest.mark.parametrize("present", ["libaux.so.1", ""])
def test_an_auxiliary_library_is_loaded_where_it_is_and_not_missed_where_it_is_not(
    tmp_path: Path, build: Build, present: str
) -> None:
    if present:
        build(tmp_path / present, f"-Wl,-soname,{present}")
    middle = build(tmp_path / "libmiddle.so", "-Wl,-soname,libmiddle.so", "-Wl,-f,libaux.so.1", TAGS["rpath"])
    path = build(tmp_path / "top.so", str(middle), TAGS["rpath"])  # ldd leaves out auxiliaries of the program itself
    # ldd prints "not found" for an absent one, yet the loader loads without it.
    assert _ours(path, {}) == _real(path, {}) - {("libaux.so.1", "not found")}
    assert (("libaux.so.1", str(tmp_path / "libaux.so.1")) in _ours(path, {})) == bool(present)
    assert _closure(path, {}).missing == ()
    subprocess.run([sys.executable, "-I", "-S", "-c", f"import ctypes; ctypes.CDLL({str(path)!r})"], env={}, check=True)


@pytest.mark.parametrize("present", ["libfull.so.1", ""])
def test_a_filtered_library_is_needed_like_any_other(tmp_path: Path, build: Build, present: str) -> None:
    if present:
        build(tmp_path / present, f"-Wl,-soname,{present}")
    path = build(tmp_path / "top.so", "-Wl,-F,libfull.so.1", TAGS["rpath"])
    found = _closure(path, {})
    assert [item.name for item in found.missing] == ([] if present else ["libfull.so.1"])
    assert [item.name for item in found.objects] == ([present] if present else [])


def test_what_is_not_an_elf_file_has_no_closure(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert closure(LiveMachine(), str(tmp_path / "script")) is None
    assert closure(LiveMachine(), str(tmp_path / "absent")) is None


@pytest.mark.parametrize("seed", range(12))
def test_random_families_of_libraries_load_as_the_real_loader_loads_them(
    tmp_path: Path, build: Build, seed: int
) -> None:
    """Six libraries spread and doubled over three folders, each needing some later ones, with random search paths."""
    chance = random.Random(seed)
    folders = [tmp_path / name for name in ("p", "q", "r")]
    names = [f"libn{n}.so" for n in range(6)]
    stubs = {name: build(tmp_path / "link" / name, f"-Wl,-soname,{name}") for name in names}

    def flags(position: int) -> list[str]:
        later = chance.sample(names[position + 1 :], k=min(len(names) - position - 1, chance.randint(0, 3)))
        search_path = ":".join(f"$ORIGIN/../{chance.choice('pqr')}" for _ in range(chance.randint(1, 2)))
        tag = chance.choice(["--enable-new-dtags", "--disable-new-dtags"])
        wanted = [f"-Wl,{tag},-rpath,{search_path}"] if chance.random() < 0.7 else []
        return [*(str(stubs[name]) for name in later), *wanted]

    for position, name in enumerate(names):
        for folder in chance.sample(folders, k=chance.randint(1, 2)):
            build(folder / name, f"-Wl,-soname,{name}", *flags(position))
    top = build(tmp_path / "p" / "top.so", *(str(stubs[name]) for name in names[:3]), *flags(2)[-1:])
    for library_path in ("", f"{folders[1]}", f"{folders[2]}:{folders[0]}"):
        environ = {"LD_LIBRARY_PATH": library_path} if library_path else {}
        assert _ours(top, environ) == _real(top, environ)

"""What `libs` sees of a chain: found, missing, shadowed, of two majors, stubs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from firstlight.elf.loader import FoundBy
from firstlight.libraries.analysis import Whose
from tests.libraries.library_wheels import build_library
from tests.libraries.trees import CU13, Tree


def test_a_chain_that_is_whole_is_sound_and_says_which_rule_found_what(tree: Tree) -> None:
    tree.torch(rpath="$ORIGIN")
    seen = tree.look()
    assert seen.sound
    [own] = [each for each in seen.loaded if each.name == "libc10.so"]
    assert (own.rule, own.entry, Path(own.owner).name) == (FoundBy.RPATH, "$ORIGIN", "libtorch_python.so")


def test_every_missing_name_is_told_at_once_with_who_asks(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0", "libnvshmem_host.so.3"), rpath=CU13)
    seen = tree.look()
    assert not seen.sound
    assert [each.name for each in seen.missing] == ["libcudss.so.0", "libnvshmem_host.so.3"]
    assert {Path(path).name for each in seen.missing for path in each.requested_by} == {"libtorch_python.so"}
    assert str(tree.site / "nvidia/cu13/lib") in seen.missing[0].reach


def test_libcuda_is_told_apart_from_packages(tree: Tree) -> None:
    tree.torch(lacks=("libcuda.so.1", "libcudss.so.0"), rpath=CU13)
    whose = {each.name: each.whose for each in tree.look().missing}
    assert whose == {"libcuda.so.1": Whose.DRIVER, "libcudss.so.0": Whose.PACKAGE}


def test_a_copy_on_library_path_that_beats_the_packages_own_is_called_exchanged(tree: Tree, tmp_path: Path) -> None:
    decoy = build_library(tmp_path / "toolkit/libc10.so")
    tree.torch(runpath="$ORIGIN")
    [shadow] = [each for each in tree.look(LD_LIBRARY_PATH=str(decoy.parent)).shadows if each.name == "libc10.so"]
    assert shadow.exchanged
    assert (shadow.path, shadow.rule) == (str(decoy), FoundBy.LIBRARY_PATH)
    assert [other.path for other in shadow.others] == [str(tree.lib / "libc10.so")]


def test_a_second_copy_that_loses_is_named_and_is_no_exchange(tree: Tree, tmp_path: Path) -> None:
    decoy = build_library(tmp_path / "toolkit/libc10.so")
    tree.torch(rpath="$ORIGIN")  # DT_RPATH comes before LD_LIBRARY_PATH
    seen = tree.look(LD_LIBRARY_PATH=str(decoy.parent))
    [shadow] = [each for each in seen.shadows if each.name == "libc10.so"]
    assert not shadow.exchanged
    assert [other.path for other in shadow.others] == [str(decoy)]
    assert seen.sound


def test_a_libcuda_in_a_stubs_folder_is_a_stub_and_not_sound(tree: Tree, tmp_path: Path) -> None:
    stub = build_library(tmp_path / "cuda/lib64/stubs/libcuda.so.1")
    tree.torch(lacks=("libcuda.so.1",), rpath="$ORIGIN")
    seen = tree.look(LD_LIBRARY_PATH=str(stub.parent))
    assert [each.path for each in seen.stubs] == [str(stub)]
    assert not seen.sound


def test_two_cuda_majors_are_seen_in_what_is_loaded_and_in_what_is_missing(tree: Tree) -> None:
    tree.library("nvidia/cu13/lib/libcudart.so.13")
    tree.torch(lacks=("libcudart.so.13", "libcublas.so.12"), rpath=CU13)
    assert [(each.major, each.names) for each in tree.look().majors] == [
        (12, ("libcublas.so.12",)),
        (13, ("libcudart.so.13",)),
    ]


def test_a_library_that_is_cut_short_is_missing_with_the_file_named(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath="$ORIGIN")
    (tree.lib / "libcudss.so.0").write_bytes(b"")
    [missing] = tree.look().missing
    assert missing.damaged == str(tree.lib / "libcudss.so.0")


def test_libraries_that_need_each_other_in_a_circle_are_looked_at_once(tree: Tree, tmp_path: Path) -> None:
    one = build_library(tmp_path / "ring/libone.so", runpath="$ORIGIN")
    two = build_library(tmp_path / "ring/libtwo.so", needs=(one,), runpath="$ORIGIN")
    build_library(one, needs=(two,), runpath="$ORIGIN")
    seen = tree.look(str(one))
    assert seen.sound
    assert [each.name for each in seen.loaded if each.name.startswith("libtwo")] == ["libtwo.so"]


def test_what_is_missing_and_which_file_wins_is_what_the_real_loader_says(tree: Tree, tmp_path: Path) -> None:
    decoy = build_library(tmp_path / "toolkit/libc10.so")
    tree.torch(lacks=("libcudss.so.0",), runpath="$ORIGIN")
    seen = tree.look(str(tree.lib / "libtorch_python.so"), LD_LIBRARY_PATH=str(decoy.parent))
    environ = {**os.environ, "LD_LIBRARY_PATH": str(decoy.parent)}
    ldd = subprocess.run(
        ["ldd", str(tree.lib / "libtorch_python.so")], env=environ, capture_output=True, text=True, check=False
    )
    said = dict(line.split(" (")[0].split(" => ") for line in ldd.stdout.replace("\t", "").splitlines() if "=>" in line)
    assert said["libcudss.so.0"] == "not found"
    assert [each.name for each in seen.missing] == ["libcudss.so.0"]
    assert said["libc10.so"] == next(each.path for each in seen.loaded if each.name == "libc10.so")


@pytest.mark.parametrize("kind", ["folder", "distribution", "file"])
def test_an_extension_of_torch_is_looked_at_after_torch(tree: Tree, kind: str) -> None:
    tree.torch(rpath="$ORIGIN")
    tree.library("extra/_C.so", needs=(tree.lib / "libc10.so",))  # no search path of its own
    tree.installed("extra", "1.0", "extra/_C.so")
    named = {"folder": str(tree.site / "extra"), "distribution": "extra", "file": str(tree.site / "extra/_C.so")}
    seen = tree.look(named[kind])
    assert seen.sound, seen.missing
    assert [Path(path).name for path in seen.target.openings[0]] == [
        "libtorch_global_deps.so",
        "libtorch_python.so",
        "_C.so",
    ]

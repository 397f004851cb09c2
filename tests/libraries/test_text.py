"""What a person reads of a chain, line by line."""

from __future__ import annotations

from pathlib import Path

from firstlight.libraries.analysis import analyse
from firstlight.libraries.closing import close
from firstlight.libraries.target import find_target
from firstlight.report.libs_text import Detail, libs_text
from firstlight.tables import load
from tests.libraries.library_wheels import build_library
from tests.libraries.trees import CU13, Tree
from tools.machines.elf_writer import ElfSpec, make_elf


def _text(tree: Tree, detail: Detail = Detail.SHORT, target: str = "torch", **environ: str) -> str:
    around, found = find_target(tree.around(**environ), target)
    analysis = analyse(around, found)
    return " ".join(libs_text(analysis, close(around, analysis, load()), detail).split())


def test_a_sound_chain_says_how_many_and_from_where_and_no_tree(tree: Tree) -> None:
    tree.torch(rpath="$ORIGIN")
    text = _text(tree)
    assert "OK: all " in text
    assert "1 in torch/lib by DT_RPATH $ORIGIN" in text
    assert "tree" not in text
    assert "libs --fix" not in text


def test_the_whole_tree_says_of_each_where_and_why(tree: Tree) -> None:
    tree.torch(rpath="$ORIGIN")
    assert "libc10.so torch/lib, by DT_RPATH $ORIGIN of libtorch_python.so" in _text(tree, Detail.WHOLE)


def test_the_short_tree_folds_what_is_found(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    tail = _text(tree).partition("tree (--all shows every branch)")[2]
    assert tail.startswith(" libtorch_python.so libcudss.so.0 MISSING + 1 found")


def test_each_kind_of_fault_has_its_own_words(tree: Tree, tmp_path: Path) -> None:
    toolkit = tmp_path / "cuda/lib64"
    build_library(toolkit / "libc10.so")
    stub = build_library(toolkit / "stubs/libcuda.so.1")
    tree.library("nvidia/cu13/lib/libcudart.so.13")
    lacks = ("libcuda.so.1", "libcudart.so.13", "libcublas.so.12", "libibverbs.so.1", "libnobody.so.7")
    tree.torch(lacks=lacks, runpath=CU13)
    text = _text(tree, LD_LIBRARY_PATH=f"{toolkit}:{stub.parent}")
    assert f"stub libcuda.so.1 is {stub}, by LD_LIBRARY_PATH: made to link against" in text
    assert "two CUDAs CUDA 12: libcublas.so.12 for libtorch_python.so CUDA 13: libcudart.so.13" in text
    assert f"exchanged libc10.so: {toolkit}/libc10.so by LD_LIBRARY_PATH" in text
    assert "system libibverbs.so.1, needed by libtorch_python.so the package libibverbs1 has it" in text
    assert "libnobody.so.7, needed by libtorch_python.so no package that the tables know has it" in text
    assert "unknown libcublas.so.12, needed by libtorch_python.so only packages for CUDA 12 have it" in text


def test_a_symbol_version_that_is_not_there_blocks(tree: Tree) -> None:
    old = build_library(tree.site / "old/libv.so.1")
    script = tree.folder / "v.map"
    script.write_text("V_2 { global: *; };\n")
    import subprocess

    new = tree.folder / "new/libv.so.1"
    new.parent.mkdir()
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libv.so.1", f"-Wl,--version-script={script}"]
    subprocess.run(
        ["gcc", *flags, "-o", str(new), "-x", "c", "-"], input="int v(void){return 2;}", text=True, check=True
    )
    asks = build_library(
        tree.site / "old/libasks.so", needs=(new,), runpath="$ORIGIN", source="int v(void); int a(void){return v();}"
    )
    script.write_text("V_1 { global: *; };\n")
    subprocess.run(
        ["gcc", *flags, "-o", str(old), "-x", "c", "-"], input="int v(void){return 1;}", text=True, check=True
    )
    text = _text(tree, target=str(asks))
    assert f"BLOCKED: {old}: version `V_2' not found (required by libasks.so)" in text


def test_names_from_a_file_cannot_write_to_the_terminal(tree: Tree, tmp_path: Path) -> None:
    evil = tmp_path / "libevil.so"
    evil.write_bytes(make_elf(ElfSpec(needed=("lib\x1b[2Jgone.so", "libc.so.6"))))
    around, found = find_target(tree.around(), str(evil))
    analysis = analyse(around, found)
    text = libs_text(analysis, close(around, analysis, load()), Detail.WHOLE)
    assert "\x1b" not in text
    assert r"lib\x1b[2Jgone.so" in text

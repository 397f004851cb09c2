"""What can be named, and what is refused with a sentence that helps."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from firstlight.errors import BadInput, CouldNotLook
from firstlight.libraries.analysis import analyse
from firstlight.libraries.target import TargetKind, find_target
from tests.libraries.library_wheels import build_library, library_wheel
from tests.libraries.trees import CU13, Tree
from tools.machines.elf_writer import ElfSpec, make_elf


def test_a_wheel_that_is_not_installed_is_looked_at_in_its_place_beside_what_is_installed(tree: Tree) -> None:
    tree.library("nvidia/cu13/lib/libcudart.so.13")
    needed = ("libcudart.so.13", "libcudss.so.0", "libc.so.6")
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": b"cuda = '13.0'\n",
        "torch/lib/libtorch_python.so": make_elf(ElfSpec(needed=needed, rpath=CU13)),
    }
    wheel = library_wheel(
        tree.folder,
        "torch",
        "2.11.0",
        files=files,
        requires=("nvidia-cudss-cu13==0.7.1.6",),
        tag="cp311-cp311-manylinux_2_28_x86_64",
    )
    seen = tree.look(str(wheel))
    assert seen.target.kind is TargetKind.WHEEL
    assert [each.name for each in seen.missing] == ["libcudss.so.0"]
    assert next(each.path for each in seen.loaded if each.name == "libcudart.so.13").startswith(str(tree.site))
    assert not (tree.site / "torch").exists(), "looking at a wheel unpacks nothing"
    [need] = tree.close(str(wheel)).needs
    assert (need.way.value, need.provided[0].version) == ("comes with it", "0.7.1.6")


def test_a_wheel_of_torch_hides_the_torch_that_it_would_replace(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    files = {
        "torch/__init__.py": b"",
        "torch/lib/libtorch_python.so": make_elf(ElfSpec(needed=("libc.so.6", "libc10.so"), rpath="$ORIGIN")),
    }
    wheel = library_wheel(tree.folder, "torch", "2.12.0", files=files, tag="cp311-cp311-manylinux_2_28_x86_64")
    assert [each.name for each in tree.look(str(wheel)).missing] == ["libc10.so"]


def test_a_folder_is_looked_at_file_by_file_and_says_what_it_passed_over(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    build_library(folder / "deep/er/libgood.so.1")
    (folder / "libarm.so").write_bytes(make_elf(ElfSpec(arch="aarch64")))
    (folder / "libtext.so").write_text("INPUT(-lgood)\n")
    (folder / "loop").symlink_to(folder)
    seen = tree.look(str(folder))
    assert [Path(path).name for [path] in seen.target.openings] == ["libgood.so.1"]
    assert sorted(each.partition(":")[0] for each in seen.target.skipped) == ["libarm.so", "libtext.so"]


def test_a_folder_here_may_be_named_without_a_slash(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_library(tmp_path / "build/libgood.so.1")
    monkeypatch.chdir(tmp_path)
    assert tree.look("build").target.place == str(tmp_path / "build")


def test_the_arch_chooses_among_the_files_of_a_folder(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    build_library(folder / "libgood.so.1")
    (folder / "libarm.so").write_bytes(make_elf(ElfSpec(arch="aarch64", needed=("libc.so.6", "libcudss.so.0"))))
    seen = tree.look(str(folder), arch="aarch64")
    assert seen.target.arch == "aarch64"
    assert [each.name for each in seen.missing] == ["libcudss.so.0"]
    assert seen.not_judged == ("libc.so.6",), "this machine cannot say what an aarch64 system has"


def _refused(tree: Tree, target: str, arch: str = "") -> str:
    with pytest.raises(BadInput) as caught:
        tree.look(target, arch=arch)
    return str(caught.value)


def test_what_cannot_be_looked_at_is_refused_with_the_reason_and_what_is_accepted(tree: Tree, tmp_path: Path) -> None:
    text = tmp_path / "notes.so"
    text.write_text("not a library")
    assert "not an ELF file" in _refused(tree, str(text))
    empty = tmp_path / "empty.so"
    empty.write_bytes(b"")
    assert "empty" in _refused(tree, str(empty))
    cut = tmp_path / "cut.so"
    cut.write_bytes(build_library(tmp_path / "libwhole.so").read_bytes()[:40])
    assert str(cut) in _refused(tree, str(cut))
    riscv = tmp_path / "libriscv.so"
    data = bytearray(make_elf(ElfSpec()))
    data[18:20] = (243).to_bytes(2, "little")
    riscv.write_bytes(bytes(data))
    assert "this file is for em-243; accepted: x86_64 and aarch64" in _refused(tree, str(riscv))
    assert "no such file" in _refused(tree, str(tmp_path / "gone.so"))
    assert "--arch says aarch64" in _refused(tree, str(tmp_path / "libwhole.so"), arch="aarch64")
    (tmp_path / "bare").mkdir()
    assert "no shared library lies in or below it" in _refused(tree, str(tmp_path / "bare"))
    assert "no such distribution" in _refused(tree, "no-such-thing")
    assert "'': no such file" in _refused(tree, "")


def test_a_wheel_that_is_no_zip_or_is_damaged_is_refused(tree: Tree, tmp_path: Path) -> None:
    name = "torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    (tmp_path / name).write_text("404: not found")
    assert "this is not a wheel" in _refused(tree, str(tmp_path / name))
    assert "no such file" in _refused(tree, str(tmp_path / "gone-1.0-py3-none-any.whl"))
    pure = library_wheel(tmp_path, "pure", "1.0", files={"pure.py": b""}, tag="py3-none-any")
    assert "no shared library" in _refused(tree, str(pure))
    odd = tmp_path / "odd.whl"
    odd.write_bytes(pure.read_bytes())
    assert "not named as a wheel" in _refused(tree, str(odd))
    whole = build_library(tmp_path / "libx.so").read_bytes() + bytes(range(256)) * 64
    bad = library_wheel(tmp_path, "bad", "1.0", files={"bad/libx.so": whole})
    with zipfile.ZipFile(bad) as archive:
        info = archive.getinfo("bad/libx.so")
        at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    data = bytearray(bad.read_bytes())
    data[at : at + 8] = bytes(each ^ 0xFF for each in data[at : at + 8])
    bad.write_bytes(bytes(data))
    assert "is damaged" in _refused(tree, str(bad))


def test_without_a_torch_it_says_so_and_how_to_name_another(tree: Tree) -> None:
    with pytest.raises(CouldNotLook, match=r"there is no torch to look at: torch is not installed in .* Give --python"):
        tree.look("torch")


def test_a_wheel_with_flipped_bytes_is_read_or_refused_and_never_crashes(tree: Tree, tmp_path: Path) -> None:
    source = (Path(__file__).parent / "data" / "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl").read_bytes()
    wheel = tmp_path / "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    around, flip, outcomes = tree.around(), random.Random(8), set()
    for _ in range(150):
        data = bytearray(source)
        for _ in range(flip.randrange(1, 5)):
            data[flip.randrange(len(data))] = flip.randrange(256)
        wheel.write_bytes(bytes(data[: flip.randrange(len(data))] if flip.random() < 0.2 else data))
        try:
            analyse(*find_target(around, str(wheel)))
            outcomes.add("read")
        except BadInput:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}

"""A wheel's own modules, and parts of torch that the torch here does not have by design."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries.library_wheels import build_library, library_wheel
from tests.libraries.trees import Tree

CP311 = "cp311-cp311-manylinux_2_28_x86_64"


def _plugin_wheel(folder: Path, *, source: str) -> Path:
    """A wheel laid out as triton 3.8.0: plug-ins that need libtriton.so and have no search path to it."""
    module = build_library(folder / "build/libtriton.so", source=source)
    plugin = build_library(folder / "build/libMLIRDialectPlugin.so", needs=(module,))
    files = {
        "triton/_C/libtriton.so": module.read_bytes(),
        "triton/plugins/libMLIRDialectPlugin.so": plugin.read_bytes(),
    }
    return library_wheel(folder, "triton", "3.8.0", files=files, tag=CP311)


def test_a_module_that_a_wheel_brings_itself_is_not_missing_for_its_plug_ins(tree: Tree, tmp_path: Path) -> None:
    wheel = _plugin_wheel(tmp_path, source="int PyInit_libtriton(void) { return 0; }")
    seen = tree.look(str(wheel))
    assert seen.missing == ()
    assert seen.sound
    assert [[Path(path).name for path in opening] for opening in seen.target.openings] == [
        ["libtriton.so"],
        ["libtriton.so", "libMLIRDialectPlugin.so"],
    ]


def test_a_plain_library_that_nothing_leads_to_stays_missing(tree: Tree, tmp_path: Path) -> None:
    """Nobody imports it, so nobody has opened it before."""
    wheel = _plugin_wheel(tmp_path, source="int something(void) { return 0; }")
    assert [each.name for each in tree.look(str(wheel)).missing] == ["libtriton.so"]


@pytest.mark.parametrize(
    ("cuda", "part", "said"),
    [
        ("", "libtorch_cuda.so", "a part of torch for CUDA, and torch 2.11.0 is built for the CPU"),
        ("", "libc10_cuda.so", "a part of torch for CUDA, and torch 2.11.0 is built for the CPU"),
        ("13.0", "libtorch_hip.so", "a part of torch for ROCm, and torch 2.11.0 is built for CUDA"),
        ("13.0", "libtorch_cuda.so", "or this torch is damaged"),
        ("", "libtorch.so", "or this torch is damaged"),
        ("no torch", "libtorch_cuda.so", "a part of torch, and there is none here"),
    ],
)
def test_a_wheel_built_for_another_kind_of_torch_is_told_that(
    tree: Tree, tmp_path: Path, cuda: str, part: str, said: str
) -> None:
    if cuda != "no torch":
        tree.torch(cuda=cuda, runpath="$ORIGIN")
    theirs = build_library(tmp_path / "theirs" / part)
    extension = build_library(tmp_path / "build/_C.so", needs=(theirs,))
    files = {"xformers/_C.so": extension.read_bytes()}
    wheel = library_wheel(tmp_path, "xformers", "0.0.33", files=files, tag=CP311)
    [need] = tree.close(str(wheel)).needs
    assert (need.missing.name, need.way.value) == (part, "unknown")
    assert said in need.reason

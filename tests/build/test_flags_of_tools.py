"""Flags that tools read whatever the tree says, names that setup.py composes, and the nearest by words."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.build.backend import Backend
from firstlight.build.flags import Flag, FlagVerdict, Through, judge_flag, parse_flag
from firstlight.build.source_reads import read_source
from firstlight.errors import BadInput

SETUP = """
import os
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension
if os.environ.get("ROLL_FP8"): pass
if os.environ.get("ROLL_NVCC_FLAGS"): pass
if os.environ.get("FORCE_CUDA"): pass
if os.environ.get("ROLL_DEBUG"): pass
for name in ("CUDA", "OPENMP"):
    value = os.environ.get(f"JOIN_{name}")
other = os.environ.get(f"JOIN_{value}_X")
setup(name="roll")
"""
CMAKE = "option(GW_CUDA x ON)\noption(GW_TESTS x ON)\noption(GW_SIMD x ON)\nset(GW_BITS 32 CACHE STRING x)\n"


@pytest.fixture
def roll(tmp_path: Path) -> Path:
    (tmp_path / "setup.py").write_text(SETUP)
    return tmp_path


@pytest.mark.parametrize("name", ["TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "TORCH_DONT_CHECK_COMPILER_ABI", "CXX", "CC"])
def test_what_torchs_own_extension_builder_reads_is_no_unread_flag(roll: Path, name: str) -> None:
    found = judge_flag(Flag(name, "1"), read_source(str(roll)), Backend.TORCH_EXTENSION)
    assert (found.verdict, found.through) == (FlagVerdict.READ, Through.ENVIRONMENT)


def test_what_scikit_build_core_reads_gets_in_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    for name in ("CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE"):
        found = judge_flag(Flag(name, "1"), read_source(str(tmp_path)), Backend.SKBUILD)
        assert (found.verdict, found.through) == (FlagVerdict.READ, Through.ENVIRONMENT)
    assert judge_flag(Flag("TORCH_CUDA_ARCH_LIST", "9.0"), read_source(str(tmp_path)), Backend.SKBUILD).reads == ()


def test_names_that_are_composed_over_a_list_are_read(roll: Path) -> None:
    names = set(read_source(str(roll)).names)
    assert {"JOIN_CUDA", "JOIN_OPENMP"} <= names
    assert not any(each.endswith("_X") for each in names), "what goes in there is not in the file"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("ROLL_USE_FP8", "ROLL_FP8"),
        ("ROLL_NVCC_ARGS", "ROLL_NVCC_FLAGS"),
        ("RL_DEBUG", "ROLL_DEBUG"),
        ("ROLL_TUNE", ""),
    ],
)
def test_the_nearest_name_is_found_by_its_telling_word(roll: Path, given: str, near: str) -> None:
    found = judge_flag(Flag(given, "1"), read_source(str(roll)), Backend.TORCH_EXTENSION)
    assert found.verdict is FlagVerdict.UNREAD
    assert found.near[:1] == ((near,) if near else ())


def test_a_switch_of_another_project_is_led_to_the_one_of_this(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    for given, near in (("USE_CUDA", ("GW_CUDA",)), ("GW_USE_CUDA", ("GW_CUDA",)), ("GW_MPI", ())):
        assert judge_flag(Flag(given, "1"), read_source(str(tmp_path)), Backend.SKBUILD).near == near


def test_jobs_are_no_flag() -> None:
    for name in ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"):
        with pytest.raises(BadInput, match="Give --jobs 4"):
            parse_flag(f"{name}=4")

"""What counts as a unit of a tree before anything of it was configured."""

from __future__ import annotations

from pathlib import Path

from firstlight.build.project import read_project
from firstlight.build.unit_count import Units

SOURCES = ("csrc/api.cpp", "csrc/flash_fwd.cu", "csrc/other.cu", "csrc/amd.cpp", "csrc/lib/examples_of_it/one.cu")
HEAD = "from torch.utils.cpp_extension import CUDAExtension\nimport glob, os\n"


def units(tree: Path, setup: str, sources: tuple[str, ...] = SOURCES) -> Units:
    for name in (*sources, "csrc/lib/include/cutlass/cutlass.h"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    (tree / "setup.py").write_text(HEAD + setup)
    return read_project(str(tree)).units


def test_sources_that_setup_py_names_are_the_units(tmp_path: Path) -> None:
    named = 'CUDAExtension("x", sources=["csrc/api.cpp", os.path.join(here, "csrc", "flash_fwd.cu")])\n'
    assert units(tmp_path, named) == Units(cxx=1, cuda=0, heavy=1)


def test_sources_behind_a_condition_for_other_gpus_are_none(tmp_path: Path) -> None:
    text = """
if not SKIP and not IS_ROCM:
    CUDAExtension("x", ["csrc/api.cpp", "csrc/other.cu"])
elif not SKIP and IS_ROCM:
    CUDAExtension("x", ["csrc/amd.cpp"] + glob.glob("build/fmha_*.cu"))
"""
    assert units(tmp_path, text) == Units(cxx=1, cuda=1, heavy=0)


def test_a_list_that_is_computed_counts_what_lies_in_the_tree_but_in_libraries_of_headers(tmp_path: Path) -> None:
    both = 'CUDAExtension("x", ["csrc/api.cpp"])\nCUDAExtension("y", sources=glob.glob("csrc/*.cu"))\n'
    assert units(tmp_path, both) == Units(cxx=2, cuda=1, heavy=1)


def test_a_source_that_is_named_and_not_there_makes_the_list_no_count(tmp_path: Path) -> None:
    assert units(tmp_path, 'CUDAExtension("x", ["csrc/made_later.cu"])\n') == Units(cxx=2, cuda=1, heavy=1)

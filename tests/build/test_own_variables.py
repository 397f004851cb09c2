"""--archs, jobs and a folder that stays reach a setup.py that has variables of its own for them."""

from __future__ import annotations

from pathlib import Path

from firstlight.build.archs import parse_archs
from firstlight.build.case import BuildCase, BuildPlace, case_of
from firstlight.build.engines import wheel_engine
from firstlight.build.flags import parse_flag
from firstlight.build.planning import source_of, source_spec, spec_of
from firstlight.build.preflight import preflight
from firstlight.build.project import read_project
from firstlight.build.request import BuildRequest, Target
from firstlight.build.source_reads import read_source
from firstlight.build.tools import tools_of_saved
from firstlight.build.tree_state import TreeState
from firstlight.tables import load
from tests.build.plans import PLACES, facts_of

NATTENS = """
import multiprocessing, os, tempfile
from setuptools import setup
from torch.utils.cpp_extension import LIB_EXT
CUDA_ARCH = os.getenv("NATTEN_CUDA_ARCH", "")
BUILD_DIR = os.getenv("NATTEN_BUILD_DIR", tempfile.mkdtemp())
WORKERS = int(os.getenv("NATTEN_N_WORKERS", multiprocessing.cpu_count() // 4))
setup(name="natten", version="0.21.0")
"""
ANOTHERS = """
import os
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension
ARCHS = os.environ.get("ENGINE_CUDA_ARCHS", "70;80")
setup(name="engine", version="2")
"""


def case(tree: Path, setup: str, *flags: str) -> BuildCase:
    tree.mkdir(exist_ok=True)
    (tree / "setup.py").write_text(setup)
    (tree / "a.cu").touch()
    facts = facts_of(PLACES[0], "13.0.48")
    asked = BuildRequest(Target("x"), archs=parse_archs("9.0a,12.0+PTX"), flags=tuple(map(parse_flag, flags)))
    place = BuildPlace(facts, tools_of_saved(facts), load())
    return case_of(asked, read_project(str(tree)), read_source(str(tree)), place)


def settings(found: BuildCase, folder: Path) -> dict[str, str]:
    where = source_spec("x-1", str(folder), source_of(found.request.target, found.project.root, ()))
    spec = spec_of(found, where, TreeState("", (), ""))
    return {each.name: each.value for each in wheel_engine(spec, 3).settings}


def test_natten_gets_its_gpus_its_jobs_and_a_folder_that_outlives_a_stop(tmp_path: Path) -> None:
    found = settings(case(tmp_path / "tree", NATTENS), tmp_path / "b")
    assert (found["NATTEN_CUDA_ARCH"], found["NATTEN_N_WORKERS"]) == ("9.0;12.0", "3")
    assert (found["NATTEN_BUILD_DIR"], found["CMAKE_GENERATOR"]) == (f"{tmp_path}/b/build", "Ninja")
    given = settings(case(tmp_path / "tree", NATTENS, "NATTEN_CUDA_ARCH=9.0"), tmp_path / "b")
    assert given["NATTEN_CUDA_ARCH"] == "9.0"


def test_a_variable_whose_form_nobody_knows_is_named(tmp_path: Path) -> None:
    found = {each.code: each for each in preflight(case(tmp_path / "tree", ANOTHERS))}
    assert "takes its GPUs from ENGINE_CUDA_ARCHS (default 70;80)" in found["arch-variable"].saw
    given = {each.code for each in preflight(case(tmp_path / "tree", ANOTHERS, "ENGINE_CUDA_ARCHS=90"))}
    assert "arch-variable" not in given
    assert "arch-variable" not in {each.code for each in preflight(case(tmp_path / "other", NATTENS))}


def test_a_setup_py_that_starts_compilers_itself_is_not_said_to_take_one_unit_after_the_other(tmp_path: Path) -> None:
    script = "import subprocess\nfrom setuptools import setup\nsubprocess.call(['nvcc'])\nsetup(name='own')\n"
    found = {each.code: each for each in preflight(case(tmp_path / "tree", script))}
    assert "--jobs has no say" in found["max-jobs-ignored"].saw
    plain = {each.code: each for each in preflight(case(tmp_path / "tree", "from setuptools import setup\nsetup()\n"))}
    assert "one unit after the other" in plain["max-jobs-ignored"].saw

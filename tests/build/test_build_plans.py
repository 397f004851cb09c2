"""Plans for the machines of real reports, as committed; and what decides jobs, architectures and faults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.archs import Ptx, parse_archs, what_ptx_buys
from firstlight.build.case import BuildPlace, case_of
from firstlight.build.fault import Fault
from firstlight.build.flags import parse_flag
from firstlight.build.preflight import preflight
from firstlight.build.project import read_project
from firstlight.build.request import BuildRequest, Target, check_jobs, parse_target
from firstlight.build.source_reads import read_source
from firstlight.build.tools import tools_of_saved
from firstlight.errors import BadInput
from firstlight.tables import load
from firstlight.ways.compile_jobs import GIB
from tests.build.plans import GOLDEN, PLACES, facts_of, plans
from tests.build.trees import read_tree

_TORCH = Target("torch==2.6.0", "torch", "2.6.0")


def test_the_plans_are_those_that_were_read_and_committed() -> None:
    assert plans() == json.loads(GOLDEN.read_text())


def test_a_thor_is_refused_by_cuda_12_8_and_not_by_13() -> None:
    golden = json.loads(GOLDEN.read_text())
    for toolkit, refused in (("12.8", True), ("13.0", False), ("13.1", False)):
        faults = golden[f"thor, CUDA {toolkit}, as it comes"]["faults"]
        assert any("arch-unknown-to-toolkit" in each for each in faults) is refused, toolkit


def test_memory_bounds_the_kinds_apart_where_processors_are_many() -> None:
    plan = json.loads(GOLDEN.read_text())["rtx-5090-x2, CUDA 12.8, as it comes"]
    assert plan["jobs"]["c++"] == 122 > plan["jobs"]["cuda"] > plan["jobs"]["attention"]


def test_a_limit_of_the_cgroup_counts_and_so_does_a_small_machine() -> None:
    place = PLACES[-1]
    small = facts_of(place, "13.0.88")
    from firstlight.facts.override import override

    small = override(small, (f"resources.memory_limit_bytes={6 * GIB}", f"resources.memory_bytes={6 * GIB}"))
    project, source = read_tree("torch-2.6.0")
    case = case_of(BuildRequest(_TORCH), project, source, BuildPlace(small, tools_of_saved(small), load()))
    assert {each.kind.value: each.jobs for each in case.needs.by_kind} == {"c++": 2, "cuda": 1, "attention": 1}
    tiny = override(small, (f"resources.memory_limit_bytes={4 * GIB}", f"resources.memory_bytes={4 * GIB}"))
    case = case_of(BuildRequest(_TORCH), project, source, BuildPlace(tiny, tools_of_saved(tiny), load()))
    assert "too-little-memory" in {each.code for each in preflight(case)}


def test_lightgbm_with_cuda_needs_nccl_and_says_so_before_configuring() -> None:
    facts = facts_of(PLACES[0], "13.0.48")
    project, source = read_tree("lightgbm-4.7.0")
    request = BuildRequest(Target("x"), flags=(parse_flag("USE_CUDA=ON"),))
    case = case_of(request, project, source, BuildPlace(facts, tools_of_saved(facts), load()))
    fault = next(each for each in preflight(case) if each.code == "no-nccl")
    assert fault.command.endswith("-m pip install nvidia-nccl-cu13")
    without = case_of(BuildRequest(Target("x")), project, source, BuildPlace(facts, tools_of_saved(facts), load()))
    assert not without.cuda.compiled
    assert "no-nccl" not in {each.code for each in preflight(without)}


@pytest.mark.parametrize(("text", "cmake"), [("9.0a", "90a-real"), ("12.0+PTX", "120"), ("8.6,9.0", "86-real;90-real")])
def test_architectures_as_cmake_has_them(text: str, cmake: str) -> None:
    assert ";".join(each.cmake for each in parse_archs(text)) == cmake


def test_what_ptx_buys_is_said() -> None:
    assert "later GPUs compile it" in what_ptx_buys(parse_archs("12.0+PTX"))
    assert "no later generation" in what_ptx_buys(parse_archs("9.0"))
    assert parse_archs("auto") == ()
    assert parse_archs("9.0+PTX")[0].ptx is Ptx.WITH


@pytest.mark.parametrize("text", ["sm_90", "9", "9.0b", "9.0+SASS", "", "9.0,,x"])
def test_an_architecture_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="accepted: auto"):
        parse_archs(text)


@pytest.mark.parametrize("jobs", [0, -1, 100_000])
def test_jobs_are_at_least_one(jobs: int) -> None:
    with pytest.raises(BadInput, match="--jobs"):
        check_jobs(jobs)


@pytest.mark.parametrize("text", ["torch", "torch>=2", "/nowhere/at/all", "gone.tar.gz", "git+ftp://x/y", "x y==1"])
def test_what_cannot_be_built_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_target(text)


def test_the_four_kinds_of_target() -> None:
    assert parse_target("flash-attn==2.8.3").version == "2.8.3"
    git = parse_target("git+https://github.com/pytorch/pytorch@v2.9.1")
    assert (git.url, git.ref) == ("https://github.com/pytorch/pytorch", "v2.9.1")
    assert parse_target("git+ssh://git@example.org/x.git").ref == ""


def faults_of(tree: Path, request: BuildRequest) -> dict[str, Fault]:
    """What preflight says of a tree on a machine of the reports."""
    facts = facts_of(PLACES[0], "13.0.88")
    place = BuildPlace(facts, tools_of_saved(facts), load())
    return {
        each.code: each for each in preflight(case_of(request, read_project(str(tree)), read_source(str(tree)), place))
    }


def setup_tree(folder: Path, script: str) -> Path:
    (folder / "setup.py").write_text(script)
    (folder / "CMakeLists.txt").write_text('option(USE_FAST "f" ON)\n')
    return folder


def test_a_flag_without_a_way_in_is_refused_with_the_nearest_door(tmp_path: Path) -> None:
    request = BuildRequest(Target("x"), flags=(parse_flag("USE_FAST=0"),))
    tree = setup_tree(tmp_path, "import os\nSLOW = os.getenv('USE_FEST')\n")
    fault = faults_of(tree, request)["flag-has-no-way-in"]
    assert fault.saw.startswith("USE_FAST=0: CMake reads it (CMakeLists.txt:1)")
    assert fault.do == "The nearest names that get in: USE_FEST."
    setup_tree(tmp_path, "import os\nARGS = os.environ.get('CMAKE_ARGS', '').split()\n")
    fault = faults_of(tree, request)["flag-has-no-way-in"]
    assert fault.do == "Give --flag CMAKE_ARGS=-DUSE_FAST=0 instead, which setup.py:2 reads and hands to CMake."
    assert "flag-has-no-way-in" not in faults_of(tree, replace(request, flags=(parse_flag("CMAKE_ARGS=-DUSE_FAST=0"),)))


def test_one_target_is_refused_where_everything_is_compiled_as_a_whole(tmp_path: Path) -> None:
    tree = setup_tree(tmp_path, "from setuptools import setup\nsetup()\n")
    fault = faults_of(tree, BuildRequest(Target("x"), only="nothing_like_it"))["no-single-targets"]
    assert fault.saw == "--target nothing_like_it: setuptools compiles everything it has, as a whole"
    assert "no-single-targets" not in faults_of(tree, BuildRequest(Target("x")))

"""What preflight says of the machine alone: the host compiler by who reads it, the toolkit that is named, the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.backend import Backend
from firstlight.build.case import BuildPlace, BuildRoom, case_of, with_toolkit
from firstlight.build.fault import Fault, Weight
from firstlight.build.flags import parse_flag
from firstlight.build.planning import source_of, source_spec, spec_of
from firstlight.build.preflight import preflight
from firstlight.build.request import BuildRequest, Target
from firstlight.build.tools import tools_of_saved
from firstlight.build.tree_state import TreeState
from firstlight.facts.compilers import ChosenCompiler, NumberedGcc, Tool
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.report.build_text import plan_text
from firstlight.tables import load
from firstlight.ways.compile_jobs import GIB
from tests.build.plans import PLACES, facts_of
from tests.build.trees import read_tree

FACTS = facts_of(PLACES[0], "12.8.93")  # its headers take gcc 14
REQUEST = BuildRequest(Target("x"))


def with_compilers(*chosen: ChosenCompiler) -> BuildPlace:
    """g++ 15 by default, g++ 13 beside it."""
    path = Known("/usr/bin/g++-13", "PATH")
    compilers = replace(
        FACTS.compilers, compilers=(Tool("g++", "/usr/bin/g++", Known("15.2.0", "g++")),), chosen=chosen,
        numbered=(NumberedGcc(13, path, path),),
    )  # fmt: skip
    facts = replace(FACTS, compilers=compilers)
    return BuildPlace(facts, tools_of_saved(facts), load())


def faults(place: BuildPlace, request: BuildRequest = REQUEST, backend: Backend = Backend.PYTORCH) -> dict[str, Fault]:
    project, source = read_tree("torch-2.6.0")
    case = case_of(request, replace(project, backend=backend), source, place)
    return {each.code: each for each in preflight(case)}


def chosen(variable: str, number: int) -> ChosenCompiler:
    name = f"g++-{number}"
    return ChosenCompiler(variable, name, Known(f"/usr/bin/{name}", "PATH"), Known(f"{number}.1.0", name))


@pytest.mark.parametrize(
    ("backend", "command", "helps", "useless"),
    [
        (Backend.PYTORCH, "export CUDAHOSTCXX=g++-13", "CUDAHOSTCXX", "CC"),
        (Backend.TORCH_EXTENSION, "export CC=gcc-13 CXX=g++-13", "CC", "CUDAHOSTCXX"),
    ],
)
def test_the_advice_on_the_host_compiler_ends_the_fault(
    backend: Backend, command: str, helps: str, useless: str
) -> None:
    fault = faults(with_compilers(), backend=backend)["host-compiler-too-new"]
    assert fault.saw.startswith("g++ 15.2.0 is newer than gcc 14")
    assert fault.command == command
    assert "host-compiler-too-new" not in faults(with_compilers(chosen(helps, 13)), backend=backend)
    assert "host-compiler-too-new" in faults(with_compilers(chosen(useless, 13)), backend=backend)
    still = faults(with_compilers(chosen(helps, 15)), backend=backend)["host-compiler-too-new"]
    assert still.saw.startswith(f"{helps}=g++-15, gcc 15.1.0 is newer")


def test_a_host_compiler_given_as_a_flag_counts() -> None:
    request = replace(REQUEST, flags=(parse_flag("CUDAHOSTCXX=/usr/bin/g++-13"),))
    assert not {"host-compiler-too-new", "flag-not-read"} & set(faults(with_compilers(), request))


def test_a_toolkit_that_is_named_by_a_link_or_lies_anywhere_is_taken(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / "version.json").write_text('{"cuda": {"version": "13.0.2"}}')
    link = tmp_path / "cuda"
    link.symlink_to(real)
    for path in (link, real):
        facts = with_toolkit(FACTS, LiveMachine(), f"{path}/")
        place = BuildPlace(facts, tools_of_saved(facts), load())
        found = faults(place, replace(REQUEST, toolkit=f"{path}/"))
        assert "no-toolkit" not in found
        assert found["toolkit-incomplete"].saw.startswith(f"{real} lacks")
    assert with_toolkit(FACTS, LiveMachine(), str(tmp_path / "nowhere")) == FACTS


def test_the_disk_that_is_looked_at_is_the_one_that_is_written_to() -> None:
    place = replace(with_compilers(), room=BuildRoom("/small", Known(GIB, "statvfs")))
    assert faults(place)["too-little-space"].saw.startswith("/small has 1.0 GiB free; the build takes about")
    assert faults(place)["too-little-space"].weight is Weight.NOTE  # the size of PyTorch's objects is assumed
    full = replace(with_compilers(), room=BuildRoom("/full", Known(100, "statvfs")))
    assert faults(full)["too-little-space"].weight is Weight.STOPS
    large = replace(with_compilers(), room=BuildRoom("/large", Known(4000 * GIB, "statvfs")))
    assert "too-little-space" not in faults(large)


def test_a_space_is_answered_by_what_moves_it(tmp_path: Path) -> None:
    project, source = read_tree("torch-2.6.0")
    spaced = replace(project, root="/my trees/x")
    place = with_compilers()
    for request, do in (
        (replace(REQUEST, source="/my trees/x"), "Move the tree."),
        (REQUEST, "Give --build-dir a path without a space."),
    ):
        (fault,) = (each for each in preflight(case_of(request, spaced, source, place)) if each.code == "space-in-path")
        assert fault.do == do


def test_a_tool_that_is_missing_comes_with_the_command_that_brings_it() -> None:
    place = with_compilers()
    none = replace(place.tools, cmake=Unknown("no cmake in the environment or on PATH"))
    fault = faults(replace(place, tools=none))["no-cmake"]
    assert fault.do == "Install it into the environment, or give --bring."
    assert "-m pip install 'cmake" in fault.command


def test_one_job_is_one_job() -> None:
    project, source = read_tree("torch-2.6.0")
    case = case_of(replace(REQUEST, jobs=1), project, source, with_compilers())
    where = source_spec("torch-1", "/builds/torch-1", source_of(REQUEST.target, "/src/tree", ()))
    text = plan_text(case, spec_of(case, where, TreeState("", (), "")), (), ())
    assert "1 job at a time" in " ".join(text.split())
    assert "1 jobs" not in text

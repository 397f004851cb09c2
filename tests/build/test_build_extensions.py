"""Builds of torch extensions: headers that torch's own include, wheels not fetched; what a kill leaves."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.conditions import ANSWERED_HERE, look
from firstlight.build import done
from firstlight.build.case import BuildCase, BuildPlace, case_of
from firstlight.build.engines import wheel_engine
from firstlight.build.fault import Weight
from firstlight.build.ninja_output import first_error
from firstlight.build.planning import build_steps, source_of, source_spec, spec_of
from firstlight.build.preflight import preflight
from firstlight.build.progress import Progress, read_peaks
from firstlight.build.request import BuildRequest, Target
from firstlight.build.spec import BuildSpec, Stage
from firstlight.build.tools import tools_of_saved
from firstlight.build.torch_headers import INCLUDED, folder_for_torch, probe_torch_headers
from firstlight.build.tree_state import TreeState
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Toolkit
from firstlight.machine.live import LiveMachine
from firstlight.tables import load
from firstlight.ways.step import CheckKind, Condition
from tests.build.plans import PLACES, facts_of
from tests.build.trees import read_tree

FACTS = facts_of(PLACES[0], "13.0.88")
TOOLKIT = FACTS.toolkits.toolkits[0]
OWN = TOOLKIT.include_folders or (f"{TOOLKIT.path}/include",)


def case_with(*folders: str) -> BuildCase:
    """flash-attn on a machine where these folders have what torch's headers include."""
    project, source = read_tree("flash-attn-2.8.3")
    toolkit: Toolkit = replace(TOOLKIT, include_folders=OWN)
    facts = replace(FACTS, toolkits=replace(FACTS.toolkits, toolkits=(toolkit,)))
    tools = replace(tools_of_saved(facts), torch_headers=Known(folders, "a test"))
    return case_of(BuildRequest(Target("x")), project, source, BuildPlace(facts, tools, load()))


def spec_with(folder: str, *folders: str) -> BuildSpec:
    case, request = case_with(*folders), BuildRequest(Target("x"))
    where = source_spec("flash-attn-1", folder, source_of(request.target, "/src/tree", ()))
    return spec_of(case, where, TreeState("", (), ""))


def test_the_folder_of_the_wheels_is_named_where_the_toolkit_is_in_parts() -> None:
    wheels = "/env/lib/python3.12/site-packages/nvidia/cu13/include"
    settings = {each.name: each.value for each in spec_with("/b", wheels).settings}
    assert settings["CPATH"] == wheels
    assert "headers-of-wheels" in {each.code for each in preflight(case_with(wheels))}
    whole = {each.name: each.value for each in spec_with("/b", *OWN, wheels).settings}
    assert "CPATH" not in whole


def test_a_build_without_those_headers_is_refused_before_it_begins() -> None:
    found = {each.code: each for each in preflight(case_with())}
    assert found["torch-headers-missing"].weight is Weight.STOPS
    assert "pip install nvidia-cublas nvidia-cusparse nvidia-cusolver" in found["torch-headers-missing"].command


def test_a_machine_that_was_not_asked_is_not_accused() -> None:
    assert folder_for_torch(Unknown("saved"), OWN) == Known("", seen_in="the toolkit")


def test_headers_are_found_in_the_wheels_of_the_environment(tmp_path: Path) -> None:
    include = tmp_path / "nvidia/cu13/include"
    include.mkdir(parents=True)
    assert FACTS.environment is not None
    environment = replace(FACTS.environment, site_packages=(str(tmp_path),))
    python = replace(FACTS.python, environments=(environment,), selected=Known(0, "a test"))
    facts = replace(FACTS, python=python)
    for name in INCLUDED:
        assert probe_torch_headers(LiveMachine(), facts) == Known((), seen_in="the folders")
        (include / name).touch()
    assert probe_torch_headers(LiveMachine(), facts) == Known((str(include),), seen_in="the folders")


def test_a_setup_py_that_would_fetch_a_wheel_is_told_to_build() -> None:
    spec = spec_with("/b", *OWN)
    assert {each.name: each.value for each in spec.settings}["FLASH_ATTENTION_FORCE_BUILD"] == "TRUE"
    assert "--skip-dependency-check" in wheel_engine(spec, 1).argv


def test_what_units_took_is_written_while_the_build_goes_on(tmp_path: Path) -> None:
    spec = replace(spec_with(str(tmp_path)), folder=str(tmp_path))
    progress = Progress(spec, Stage.COMPILE)
    progress.watch.peaks["a.o"] = 5
    progress.write()
    assert [(each.unit, each.bytes) for each in read_peaks(str(tmp_path))] == [("a.o", 5)]
    later = Progress(spec, Stage.COMPILE)  # after a kill
    later.watch.peaks |= {"a.o": 3, "b.o": 7}
    later.write()
    assert [(each.unit, each.bytes) for each in read_peaks(str(tmp_path))] == [("a.o", 5), ("b.o", 7)]


def test_whether_a_stage_is_done_is_answered_here_as_by_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step, *_) = build_steps(spec_with(str(tmp_path)), sys.executable)
    condition = step.done_when[-1]
    asked: list[list[str]] = []
    before = look(condition)

    def answer(words: list[str]) -> int:
        asked.append(words)
        return done.main(words)

    monkeypatch.setitem(ANSWERED_HERE, done.MODULE, answer)
    assert (look(condition), len(asked)) == (before, 1)
    look(Condition(CheckKind.COMMAND, "true", argv=("true",)))
    look(Condition(CheckKind.COMMAND, "sh", argv=("/bin/sh", "-m", done.MODULE)))
    assert len(asked) == 1, "another program's question is its own"


def test_an_error_of_cmake_is_told_to_its_end_and_not_beyond() -> None:
    lines = [
        "CMake Error at cmake/Dependencies.cmake:504 (add_subdirectory):", "  The source directory", "",
        "    /src/third_party/QNNPACK", "", "  does not contain a CMakeLists.txt file.",
        "Call Stack (most recent call first):", "  CMakeLists.txt:722 (include)",
    ]  # fmt: skip
    assert first_error(lines).endswith("(add_subdirectory): The source directory /src/third_party/QNNPACK does not "
                                       "contain a CMakeLists.txt file.")  # fmt: skip


def test_a_stage_that_compiles_starts_without_what_the_others_need() -> None:
    asked = "import sys, firstlight.build.stage, firstlight.build.compiling; print(*sys.modules)"
    with os.popen(f"PYTHONPATH={':'.join(sys.path)} {sys.executable} -c '{asked}'") as said:
        modules = said.read().split()
    assert "firstlight.build.compiling" in modules
    heavy = ("firstlight.facts.collect", "firstlight.libraries.analysis", "packaging.requirements")
    assert [each for each in heavy if each in modules] == []

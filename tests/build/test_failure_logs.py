"""The first real error of a failed build, in logs that were made by breaking real ones (make_failure_logs.py)."""

from __future__ import annotations

import pytest

from firstlight.build.compiling import failure_text, fewer_jobs
from firstlight.build.ninja_output import FailedUnit, failed_units, first_error, kind_of_unit, progress_of
from firstlight.tables.build_rows import UnitKind
from tests.build.make_failure_logs import BREAKS, LOGS, Break


def _lines(case: Break) -> list[str]:
    return (LOGS / f"{case.name}.log").read_text().splitlines()[1:]


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: case.name)
def test_the_first_real_error_is_found(case: Break) -> None:
    lines = _lines(case)
    failed = failed_units(lines)
    said = failed[0].first_error if failed else first_error(lines)
    accepted = case.error.split("|")
    assert any(each in said for each in accepted), said
    first = next(line for line in lines if any(each in line for each in accepted))
    assert first.strip() in said, "another line states it earlier"


def test_there_are_at_least_25_logs_and_each_says_how_it_was_made() -> None:
    logs = sorted(LOGS.glob("*.log"))
    assert len(logs) >= 25
    assert {each.stem for each in logs} == {case.name for case in BREAKS}
    assert all(each.read_text().startswith("# made by: ") for each in logs)


def test_a_unit_is_told_to_have_died_for_memory_and_no_other_is() -> None:
    starved = {case.name for case in BREAKS if any(each.for_memory for each in failed_units(_lines(case)))}
    assert starved == {"memory-limit", "killed"}


def test_all_faults_are_told_and_the_first_with_its_command() -> None:
    case = next(each for each in BREAKS if each.name == "second-of-three")
    failed = failed_units(_lines(case))
    assert [each.output for each in failed] == ["b.o", "c.o"]
    said = failure_text(failed, ())
    assert said.startswith("b.o did not compile: b.cpp:1:")
    assert "1 more failed: c.o." in said
    assert said.endswith("Its command: g++ -c b.cpp -o b.o")


@pytest.mark.parametrize(("jobs", "starved", "fewer"), [(16, 4, 8), (2, 2, 1), (16, 1, 1), (1, 3, 1)])
def test_memory_costs_half_of_the_jobs_and_one_unit_goes_alone(jobs: int, starved: int, fewer: int) -> None:
    assert fewer_jobs(jobs, starved) == fewer


def test_lines_and_units_of_ninja() -> None:
    assert progress_of("[12/265] Building CXX object x.cpp.o") == (12, 265)
    assert progress_of("-- [1/2] text of others") is None
    assert kind_of_unit("a/b.cu.o") is UnitKind.CUDA
    assert kind_of_unit("flash_attn/flash_bwd_hdim64.cu.o") is UnitKind.ATTENTION
    assert kind_of_unit("a/b.cpp.o") is UnitKind.CXX
    assert kind_of_unit("libx.so") is None


def test_the_newer_ninja_that_names_the_exit_code_is_read_as_well() -> None:
    lines = ["[1/2] Building", "FAILED: [code=137] a.o ", "g++ -c a.cpp", "Killed", "ninja: build stopped: x."]
    (unit,) = failed_units(lines)
    assert (unit.output, unit.command, unit.said, unit.for_memory) == ("a.o", "g++ -c a.cpp", ("Killed",), True)


def test_the_frame_of_pip_is_no_error_and_a_network_that_is_not_there_comes_before_no_version() -> None:
    frame = [
        "  error: subprocess-exited-with-error",
        "  × Building wheel for x (pyproject.toml) did not run successfully.",
    ]
    assert first_error([*frame, "      Killed"]) == "Killed"
    offline = [
        "  WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError': name resolution",
        "  ERROR: Could not find a version that satisfies the requirement ninja (from versions: none)",
    ]
    assert first_error([*frame, *offline]).startswith("WARNING: Retrying")
    assert first_error(offline[1:]).startswith("ERROR: Could not find")


def test_of_a_trial_of_cmake_the_compilers_own_error_is_told() -> None:
    lines = [
        "CMake Error at /usr/share/cmake/Modules/CMakeDetermineCompilerId.cmake:814 (message):",
        "  Compiling the CUDA compiler identification source file failed.",
        "",
        "  host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later",
        "  than 13 are not supported!",
        "Call Stack (most recent call first):",
    ]
    said = (
        "host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13 are not supported!"
    )
    assert first_error(lines) == said


def test_two_faults_of_one_build_are_both_told_and_one_header_once() -> None:
    missing = "fatal error: cutlass/cutlass.h: No such file or directory"
    failed = tuple(FailedUnit(f"{name}.o", "g++", (f"/src/{name}.cpp:2:10: {missing}",)) for name in ("a", "b"))
    other = FailedUnit("c.o", "g++", ("/src/c.cpp:9:1: error: 'x' was not declared in this scope",))
    said = failure_text((*failed, other), ())
    assert said.count(missing) == 1
    assert "Another fault, of c.o: /src/c.cpp:9:1: error: 'x' was not declared" in said

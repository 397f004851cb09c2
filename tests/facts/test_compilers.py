"""Compilers: which one a build would start, and its version, asked once and cheaply."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.compilers import CompilerFacts, Tool, probe_compilers, with_version
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs with the same path inside the tree and outside it, so that they can really be run."""
    folder = tmp_path / "tools"
    folder.mkdir()
    link = tmp_path / "root" / str(folder).lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    return folder


def machine_of(tools: Path, **environ: str) -> LiveMachine:
    environ.setdefault("PATH", f"{tools}:/usr/bin:/bin")
    return LiveMachine(
        root=str(tools.parent / "root"), environ=environ, host=replace(LiveMachine().host, arch="x86_64")
    )


def program(tools: Path, name: str, *, prints: str, status: int = 0) -> Path:
    path = tools / name
    path.write_text(f'#!/bin/sh\necho "$0 $*" >> {tools.parent}/log\necho "{prints}"\nexit {status}\n')
    path.chmod(0o755)
    return path


def runs(tools: Path) -> list[str]:
    log = tools.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_one_compiler_behind_four_names_is_asked_once(tools: Path) -> None:
    program(tools, "gcc-13", prints="13.2.0")
    for name in ("gcc", "cc", "g++", "c++"):
        (tools / name).symlink_to("gcc-13")
    facts = probe_compilers(machine_of(tools))
    assert [(tool.name, tool.version) for tool in facts.compilers] == [
        (name, Known("13.2.0", seen_in=f"{tools}/gcc -dumpfullversion")) for name in ("gcc", "g++", "cc", "c++")
    ]
    assert runs(tools) == [f"{tools}/gcc -dumpfullversion -dumpversion"]


def test_clang_is_asked_in_its_own_words(tools: Path) -> None:
    program(tools, "clang", prints="18.1.3")
    facts = probe_compilers(machine_of(tools))
    assert facts.compilers == (Tool("clang", f"{tools}/clang", Known("18.1.3", seen_in=f"{tools}/clang -dumpversion")),)


def test_a_clang_behind_the_name_cc_is_asked_as_clang(tools: Path) -> None:
    program(tools, "clang-18", prints="18.1.3")
    (tools / "cc").symlink_to("clang-18")
    [cc] = probe_compilers(machine_of(tools)).compilers
    assert cc.version == Known("18.1.3", seen_in=f"{tools}/cc -dumpversion")


def test_links_to_ccache_are_each_asked(tools: Path) -> None:
    program(tools, "ccache", prints="14.1.0")
    for name in ("gcc", "g++"):
        (tools / name).symlink_to("ccache")
    facts = probe_compilers(machine_of(tools))
    assert [tool.version for tool in facts.compilers] == [
        Known("14.1.0", seen_in=f"{tools}/{name} -dumpfullversion") for name in ("gcc", "g++")
    ]
    assert len(runs(tools)) == 2


@pytest.mark.parametrize(("prints", "status"), [("13.2.0", 1), ("gcc: fatal error", 0), ("", 0), ("13.2.0-evil", 0)])
def test_a_broken_compiler_is_there_without_a_version(tools: Path, prints: str, status: int) -> None:
    program(tools, "gcc", prints=prints, status=status)
    [gcc] = probe_compilers(machine_of(tools)).compilers
    assert gcc.path == f"{tools}/gcc"
    assert isinstance(gcc.version, Unknown)


def test_numbered_compilers_come_in_pairs_and_a_missing_half_is_told(tools: Path) -> None:
    for name in ("gcc-12", "g++-12", "gcc-15", "gcc-ar-12", "gcc-12-notes"):
        program(tools, name, prints="x")
    facts = probe_compilers(machine_of(tools))
    assert [(each.number, each.gcc, each.gxx) for each in facts.numbered] == [
        (12, Known(f"{tools}/gcc-12", seen_in="PATH"), Known(f"{tools}/g++-12", seen_in="PATH")),
        (15, Known(f"{tools}/gcc-15", seen_in="PATH"), Unknown("no g++-15 on PATH")),
    ]
    assert runs(tools) == []


def test_the_first_folder_on_path_wins_for_numbered_compilers(tools: Path) -> None:
    for folder in ("first", "second"):
        (tools / folder).mkdir()
        program(tools / folder, "gcc-12", prints="x")
    [found] = probe_compilers(machine_of(tools, PATH=f"{tools}/first:{tools}/second")).numbered
    assert found.gcc == Known(f"{tools}/first/gcc-12", seen_in="PATH")


def test_the_compiler_a_variable_chooses_is_found_behind_its_launcher(tools: Path) -> None:
    program(tools, "gcc-12", prints="12.3.0")
    [chosen] = probe_compilers(machine_of(tools, CC="ccache gcc-12 -m64")).chosen
    assert (chosen.variable, chosen.command) == ("CC", "ccache gcc-12 -m64")
    assert chosen.path == Known(f"{tools}/gcc-12", seen_in="CC")
    assert chosen.version == Known("12.3.0", seen_in=f"{tools}/gcc-12 -dumpfullversion")


def test_a_chosen_compiler_may_be_a_path_with_options(tools: Path) -> None:
    gxx = program(tools, "g++-12", prints="12.3.0")
    [chosen] = probe_compilers(machine_of(tools, CXX=f"{gxx} -std=c++17")).chosen
    assert chosen.path == Known(str(gxx), seen_in="CXX")


def test_nvcc_ccbin_may_be_a_folder(tools: Path) -> None:
    program(tools, "g++", prints="11.4.0")
    [chosen] = probe_compilers(machine_of(tools, NVCC_CCBIN=str(tools))).chosen
    assert chosen.path == Known(f"{tools}/g++", seen_in="NVCC_CCBIN")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("gcc-99 -m64", "gcc-99"), ("/opt/none/g++ -m64", "/opt/none/g++"), ("/opt/../none", "/none"), ("/\x01", "/\x01")],
)
def test_a_variable_that_names_nothing_says_so(tools: Path, value: str, shown: str) -> None:
    [chosen] = probe_compilers(machine_of(tools, CUDAHOSTCXX=value)).chosen
    assert chosen.path == Unknown(f"{shown}: no such file")
    assert isinstance(chosen.version, Unknown)


def test_a_variable_that_names_no_compiler_is_reported_and_not_run(tools: Path) -> None:
    program(tools, "deploy", prints="1.2.3")
    [chosen] = probe_compilers(machine_of(tools, CC="deploy")).chosen
    assert chosen.path == Known(f"{tools}/deploy", seen_in="CC")
    assert chosen.version == Unknown("not run: deploy is not the name of a compiler")
    assert runs(tools) == []


def test_build_tools_are_found_and_not_started_until_a_version_is_asked_for(tools: Path) -> None:
    program(tools, "cmake", prints="cmake version 3.28.3")
    program(tools, "uv", prints="no number here")
    machine = machine_of(tools)
    facts = probe_compilers(machine)
    assert [tool.name for tool in facts.tools] == ["cmake", "uv"]
    assert runs(tools) == []
    cmake = facts.find("cmake")
    assert isinstance(cmake, Known)
    assert with_version(machine, cmake.value).version == Known("3.28.3", seen_in=f"{tools}/cmake --version")
    assert with_version(machine, facts.tools[1]).version == Unknown(f"{tools}/uv --version names none")
    assert facts.find("ninja") == Unknown("no ninja on PATH")


def test_a_bare_machine_has_none(tools: Path) -> None:
    assert probe_compilers(machine_of(tools, PATH="")) == CompilerFacts((), (), (), ())


def test_the_answer_can_be_written_down_and_replayed(tools: Path) -> None:
    for name in ("gcc", "gcc-12", "g++-12", "ninja"):
        program(tools, name, prints="12.2.0")
    recording = RecordingMachine(machine_of(tools, CC="gcc-12"))
    facts = probe_compilers(recording)
    assert probe_compilers(RecordedMachine(recording.evidence)) == facts
    assert decode(CompilerFacts, json.loads(json.dumps(encode(facts))), "compilers") == facts

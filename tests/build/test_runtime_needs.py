"""What a wheel needs when it runs, found before anything is compiled: requirements, libraries of other wheels."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.case import BuildCase, BuildPlace, case_of
from firstlight.build.fault import Fault, Weight
from firstlight.build.flags import parse_flag
from firstlight.build.loading_chain import chain_of
from firstlight.build.planning import build_steps, source_of, source_spec, spec_of
from firstlight.build.preflight import preflight
from firstlight.build.project import read_project
from firstlight.build.request import BuildRequest, Target
from firstlight.build.runtime_needs import gaps_in, stated_requirements
from firstlight.build.spec import BuildSpec, read_spec, write_document, write_spec
from firstlight.build.tools import InstalledProject, tools_of_saved
from firstlight.build.tree_state import TreeState
from firstlight.facts.cuda_libraries import FoundIn, LibraryFound
from firstlight.facts.known import Known
from firstlight.records import encode
from firstlight.tables import load
from tests.build.plans import PLACES, facts_of
from tests.build.standin import make_environment
from tests.build.test_build_sources import spec_in
from tests.build.trees import read_tree

NCCL = "/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
HERE = (InstalledProject("numpy", "2.4.6"), InstalledProject("torch", "2.11.0+cu130"))


def lightgbm(installed: tuple[InstalledProject, ...], **request: object) -> BuildCase:
    """LightGBM with CUDA on a machine whose NCCL is a wheel's."""
    facts = facts_of(PLACES[0], "13.0.48")
    nccl = LibraryFound("nccl", "libnccl.so.2", NCCL, Known("2.28.9", "file name"), FoundIn.WHEEL)
    facts = replace(facts, cuda_libraries=replace(facts.cuda_libraries, libraries=(nccl,)))
    tools = replace(tools_of_saved(facts), installed=Known(installed, "test"), python=Known("/venv/bin/python", "test"))
    project, source = read_tree("lightgbm-4.7.0")
    flags = tuple(map(parse_flag, ("USE_CUDA=ON", "BUILD_WITH_SHARED_NCCL=ON")))
    asked = BuildRequest(Target("x"), flags=flags, **request)  # type: ignore[arg-type]
    return case_of(asked, project, source, BuildPlace(facts, tools, load()))


def faults(case: BuildCase) -> dict[str, Fault]:
    return {each.code: each for each in preflight(case)}


def spec(case: BuildCase) -> BuildSpec:
    where = source_spec("x-1", "/state/builds/x-1", source_of(Target("x"), "/src", ()))
    return spec_of(case, where, TreeState("", (), "t"))


def test_lightgbm_lacks_narwhals_and_scipy_which_a_step_brings_before_it_configures() -> None:
    case = lightgbm(HERE)
    found = faults(case)["runtime-requirements"]
    assert (found.weight, "narwhals>=1.15, scipy" in found.saw) == (Weight.NOTE, True)
    steps = build_steps(spec(case), "/fl/python")
    assert [each.id for each in steps][:2] == ["requirements", "configure"]
    assert steps[0].commands[0][-3:] == ("narwhals>=1.15", "numpy>=1.21.3", "scipy")
    assert steps[0].commands[0][4:6] == ("--constraint", "/state/builds/x-1/kept.txt")


def test_the_step_is_the_same_before_and_after_it_was_done() -> None:
    whole = (*HERE, InstalledProject("narwhals", "2.1"), InstalledProject("scipy", "1.17"))
    assert build_steps(spec(lightgbm(HERE)), "p") == build_steps(spec(lightgbm(whole)), "p")
    assert "runtime-requirements" not in faults(lightgbm(whole))


def test_another_version_is_not_exchanged_but_named_with_what_does_it() -> None:
    found = faults(lightgbm((InstalledProject("numpy", "1.19.0"),)))["runtime-requirements-differ"]
    assert (found.weight, found.saw.endswith("numpy>=1.21.3 (1.19.0 is installed)")) == (Weight.STOPS, True)
    assert found.command.startswith("/venv/bin/python -m pip install 'narwhals>=1.15'")


def test_what_a_prefix_lacks_stops_and_no_deps_only_names_it() -> None:
    case = lightgbm(HERE, prefix="/opt/x")
    assert faults(case)["runtime-requirements"].weight is Weight.STOPS
    assert spec(case).requires == ()
    case = lightgbm(HERE, no_deps=True)
    assert faults(case)["runtime-requirements"].weight is Weight.NOTE
    assert spec(case).requires == ()
    assert "runtime-requirements" not in faults(lightgbm(HERE, wheel_only=True))


def test_a_library_of_a_wheel_gets_a_way_to_it_and_that_is_said_before() -> None:
    case = lightgbm(HERE)
    assert "nvidia/nccl/lib of site-packages" in faults(case)["library-of-a-wheel"].saw
    defines = {each.name: each.value for each in spec(case).defines}
    assert "$ORIGIN/../../nvidia/nccl/lib" in defines["CMAKE_INSTALL_RPATH"].split(";")
    assert {each.name: each.value for each in spec(case).settings}["LD_RUN_PATH"].startswith("$ORIGIN/nvidia/nccl/lib:")
    assert "library-of-a-wheel-and-prefix" in faults(lightgbm(HERE, prefix="/opt/x"))


def test_a_library_of_the_system_needs_no_way_of_its_own() -> None:
    case = lightgbm(HERE)
    system = replace(case.libraries[0], link=Known("/usr/lib/libnccl.so", "system"))
    assert "library-of-a-wheel" not in faults(replace(case, libraries=(system,)))


@pytest.mark.parametrize(
    ("document", "info", "script", "found"),
    [
        ({"project": {"dependencies": ["a>=1"]}}, "Requires-Dist: b\n", "", ("a>=1",)),
        ({"project": {"dynamic": ["dependencies"]}}, "Name: x\nRequires-Dist: b>2\n\nRequires-Dist: c\n", "", ("b>2",)),
        ({}, "", "setup(install_requires=['a', 'b==1'])", ("a", "b==1")),
        ({}, "", "needs = ['a']\nsetup(name='x', install_requires=needs)", ("a",)),
        ({}, "", "setup(install_requires=read('requirements.txt'))", ()),
        ({}, "", "this is no Python (", ()),
    ],
)
def test_requirements_are_read_where_a_tree_states_them(
    tmp_path: Path, document: dict[str, object], info: str, script: str, found: tuple[str, ...]
) -> None:
    if info:
        (tmp_path / "PKG-INFO").write_text(info)
    assert stated_requirements(str(tmp_path), document, script) == found


def test_markers_extras_and_programs_count() -> None:
    asked = ("a; python_version < '3.9'", "b; extra == 'test'", "ninja", "numpy<2", "not a requirement !!")
    gaps = gaps_in(asked, HERE, python="3.12.4", by_program=("ninja",))
    assert (gaps.missing, gaps.unfit, gaps.wanted) == ((), ("numpy<2 (2.4.6 is installed)",), ("numpy<2",))
    assert gaps_in(asked, HERE, python="3.8.1", by_program=()).missing == ("a", "ninja")


def test_a_spec_of_another_release_is_taken_for_none(tmp_path: Path) -> None:
    kept = spec_in(tmp_path)
    write_spec(kept)
    assert read_spec(str(tmp_path)) == kept
    document = encode(kept)
    assert isinstance(document, dict)
    del document["requires"]
    write_document(str(tmp_path), "build.json", document)
    assert read_spec(str(tmp_path)) is None


def test_what_the_loader_does_not_find_is_named_with_who_has_it_and_what_closes_it(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env")
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    (tmp_path / "n.c").write_text("int ncclAnswer() { return 42; }\n")
    (tmp_path / "x.c").write_text("int ncclAnswer(); int answer() { return ncclAnswer(); }\n")
    (site / "x").mkdir()
    (site / "nvidia/nccl/lib").mkdir(parents=True)
    nccl, own = site / "nvidia/nccl/lib/libnccl.so.2", site / "x/libx.so"
    gcc = ["gcc", "-shared", "-fPIC", "-o"]
    subprocess.run([*gcc, str(nccl), "-Wl,-soname,libnccl.so.2", str(tmp_path / "n.c")], check=True)
    subprocess.run([*gcc, str(own), str(tmp_path / "x.c"), str(nccl)], check=True)
    for name, version, file in (
        ("x", "1.0", "x/libx.so"),
        ("nvidia_nccl_cu13", "2.28.9", "nvidia/nccl/lib/libnccl.so.2"),
    ):
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info/RECORD").write_text(f"{file},,\n")
        (site / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    chain = chain_of(spec_in(tmp_path, python=str(python)))
    assert chain.missing == ("libnccl.so.2",)
    assert (
        "libnccl.so.2, which libx.so asks for, is not found (nvidia-nccl-cu13 has it and is installed)" in chain.words
    )
    assert chain.command == f"firstlight libs x --fix --python {python}"
    subprocess.run(
        [*gcc, str(own), str(tmp_path / "x.c"), str(nccl), "-Wl,-rpath,$ORIGIN/../nvidia/nccl/lib"], check=True
    )
    assert chain_of(spec_in(tmp_path, python=str(python))).missing == ()


def test_a_project_without_requirements_gets_no_step(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    assert read_project(str(tmp_path)).runtime == ()
    assert build_steps(spec_in(tmp_path), "p")[0].id == "configure"

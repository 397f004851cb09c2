"""What is said of a machine on which something is to be built, and what must not be said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.build_rules import (
    BUILD_RULES,
    cuda_home_unset,
    nvcc_is_wrapper,
    nvcc_major_differs,
    nvcc_minor_differs,
    toolkit_incomplete,
)
from firstlight.diagnosis.finding import Goal, Question, Severity
from firstlight.diagnosis.host_compiler_rules import glibc_breaks_cuda_headers, host_compiler_out_of_range
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.toolkit_in_use import toolkit_in_use
from firstlight.facts.ability import Sudo
from firstlight.facts.collect import Facts
from firstlight.facts.compilers import NumberedGcc
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import (
    InstallConda,
    InstallPackages,
    InstallWheels,
    LinkFile,
    Package,
    Scope,
    SetUpRepository,
    SetVariables,
    UseImage,
    Variable,
)
from firstlight.ways.way import Proof, Way
from tests.diagnosis.building import BUILD, TABLES, changed, chosen, seen, tool, with_compilers, with_variables
from tests.diagnosis.rule_case import MACHINES, facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known
from tests.diagnosis.wheels import torches

OWN = (
    "h100-nvcc-13-torch-cu128", "nvcc-12-9-torch-cu128", "fedora-44-cuda-12-8", "pip-toolkit-without-lib64",
    "no-toolkit", "orin-flash-attention", "nvcc-wrapper", "thor-source-build",
)  # fmt: skip
CU13 = "/root/venv/lib/python3.12/site-packages/nvidia/cu13"
LINKS = (LinkFile(f"{CU13}/lib64", "lib"), LinkFile(f"{CU13}/lib/libcudart.so", "libcudart.so.13"))


def home(path: str) -> SetVariables:
    return SetVariables((Variable("CUDA_HOME", path),), Scope.BUILD)


def package(cuda: CudaVersion) -> tuple[Way, ...]:
    named = f"cuda-toolkit-{cuda.major}-{cuda.minor}"
    return SetUpRepository(), InstallPackages((named,), (f"/usr/local/cuda-{cuda}/bin/nvcc",))


def toolkit(release: str) -> InstallWheels:
    return InstallWheels((Package("cuda-toolkit", release, ("nvcc", "cudart", "cccl", "crt", "nvvm")),))


def conda(cuda: str) -> InstallConda:
    return InstallConda(f"cuda-toolkit={cuda}", "conda-forge", f"~/cuda-{cuda}", "bin/nvcc")


def codes(facts: Facts, goal: Goal = BUILD) -> list[str]:
    return [rule.code for rule in BUILD_RULES if seen(rule.check, facts, goal)]


# nvcc against torch


def test_nvcc_13_cannot_build_for_torch_cu128() -> None:
    [found] = seen(nvcc_major_differs, facts_of("h100-nvcc-13-torch-cu128"))
    assert found.saw == (
        "nvcc 13.0.88 (/usr/local/cuda-13.0/bin/nvcc --version); torch 2.8.0+cu128 is built for CUDA 12.8 "
        "(/usr/local/lib/python3.12/dist-packages/torch/version.py)"
    )
    assert ways_of(found) == [
        (*package(CudaVersion(12, 8)), home("/usr/local/cuda-12.8")),
    ]  # no conda beside the system's own, and no torch for CUDA 13: driver 550 does not run it
    refused = {each.title: each.why_not for each in found.answers if each.why_not}
    assert refused["the CUDA 12.8 toolkit from wheels"].startswith("nvidia-cuda-nvcc-cu12 has no nvcc")
    assert "error 35" in refused["compile with nvcc 13.0, run with the CUDA 12.8 libraries of torch"]
    assert "another torch wheel" in refused


def test_the_refusal_is_quoted_as_this_torch_prints_it() -> None:
    [new] = seen(nvcc_major_differs, facts_of("h100-nvcc-13-torch-cu128"))
    assert "used to compilePyTorch (%s). Please make sure to use the same CUDA versions.', '13.0', '12.8')" in new.means
    [old] = seen(nvcc_major_differs, changed("h100-nvcc-13-torch-cu128", "torch.version=2.7.1+cu128"))
    assert "The detected CUDA version (13.0) mismatches" in old.means
    assert "used to compile PyTorch (12.8)." in old.means


def test_a_toolkit_of_the_right_major_on_the_machine_is_the_first_way_out() -> None:
    facts = facts_of("h100-nvcc-13-torch-cu128")
    older = facts_of("nvcc-12-9-torch-cu128").toolkits.toolkits[0]
    both = replace(facts.toolkits, toolkits=(*facts.toolkits.toolkits, older))
    [found] = seen(nvcc_major_differs, replace(facts, toolkits=both))
    assert ways_of(found)[0] == (home("/usr/local/cuda-12.9"),)
    assert "nvcc 12.9.86" in found.answers[0].proof_by


def test_where_the_driver_runs_cuda_13_a_torch_for_it_is_offered_too() -> None:
    facts = changed("h100-nvcc-13-torch-cu128", "driver=580.95.05", "driver_cuda=13.0")
    [found] = seen(nvcc_major_differs, facts)
    assert torches(found)[-1] == "2.15.0"  # PyPI's, of CUDA 13.2
    assert all(each.startswith("2.15") or each.endswith("+cu130") for each in torches(found))


def test_another_minor_is_a_note_whatever_the_goal() -> None:
    facts = facts_of("nvcc-12-9-torch-cu128")
    for goal in Goal:
        diagnosis = judge(Question(facts, TABLES, goal), BUILD_RULES)
        [finding] = diagnosis.findings
        assert (finding.code, finding.severity) == ("nvcc-minor-differs", Severity.NOTE)
    assert seen(nvcc_major_differs, facts) == []


def test_no_cuda_torch_means_no_comparison() -> None:
    facts = changed("h100-nvcc-13-torch-cu128", "torch.wheel_cuda=unknown")
    assert seen(nvcc_major_differs, facts) == seen(nvcc_minor_differs, facts) == []


# which toolkit


def test_the_compiler_from_wheels_is_not_found_by_torch_and_lacks_two_links() -> None:
    facts = facts_of("pip-toolkit-without-lib64")
    [unset] = seen(cuda_home_unset, facts)
    assert unset.saw == f"no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda; nvcc is in {CU13} (13.0.88)"
    assert ways_of(unset)[0] == (*LINKS, home(CU13))
    [incomplete] = seen(toolkit_incomplete, facts)
    assert incomplete.saw == f"the toolkit at {CU13} lacks libcudart.so and lib64"
    assert ways_of(incomplete)[0] == LINKS


def test_no_toolkit_at_all_matters_only_to_those_who_build() -> None:
    facts = facts_of("no-toolkit")
    assert seen(cuda_home_unset, facts, Goal.INFER) == []
    assert seen(cuda_home_unset, facts, Goal.TRAIN) == []
    [found] = seen(cuda_home_unset, facts)
    assert found.saw == "no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda; no nvcc was found anywhere"
    assert ways_of(found)[0] == (toolkit("13.0.3.0"), *LINKS, home(CU13))


def test_where_the_judged_environment_is_not_to_be_changed_the_toolkit_lies_in_one_of_our_own() -> None:
    [found] = seen(cuda_home_unset, changed("no-toolkit", "python.environments.0.externally_managed=true"))
    assert ways_of(found)[0][-1] == home("~/firstlight-venv/lib/python3.12/site-packages/nvidia/cu13")


def test_without_a_torch_one_comes_first_because_the_toolkit_follows_it() -> None:
    facts = replace(facts_of("no-toolkit"), torch=Unknown("torch is not installed in /root/venv"))
    [found] = seen(cuda_home_unset, facts)
    [*_, last] = ways_of(found)[0]
    assert torches(found)[0] == "2.15.0"
    assert last == home("/root/venv/lib/python3.12/site-packages/nvidia/cu13")
    assert found.answers[-1].why_not == "the CUDA of torch is not known, and a toolkit has to have its major"


def test_the_toolkit_release_follows_the_installed_runtime() -> None:
    facts = facts_of("no-toolkit")
    older = replace(facts, nvidia_wheels=(replace(facts.nvidia_wheels[0], version="13.0.48"),))
    [found] = seen(cuda_home_unset, older)
    assert ways_of(found)[0][0] == toolkit("13.0.0")


def test_cuda_12_has_no_nvcc_on_pypi_and_none_is_offered() -> None:
    [found] = seen(cuda_home_unset, changed("no-toolkit", "torch.wheel_cuda=12.8"))
    assert not any(isinstance(way, InstallWheels) for ways in ways_of(found) for way in ways)
    assert ways_of(found)[-1] == (*package(CudaVersion(12, 8)), home("/usr/local/cuda-12.8"))


def test_conda_forge_has_no_compiler_before_cuda_12_and_nvidias_channel_none_before_11_3() -> None:
    user = replace(facts_of("no-toolkit").ability, is_root=False, uid=1000, sudo=Sudo.ABSENT)
    found = {}
    for cuda in ("12.8", "11.8", "10.2"):
        facts = replace(changed("no-toolkit", f"torch.wheel_cuda={cuda}"), ability=user)
        [unset] = seen(cuda_home_unset, facts)
        found[cuda] = [way.channel for ways in ways_of(unset) for way in ways if isinstance(way, InstallConda)]
    assert found == {"12.8": ["conda-forge"], "11.8": ["nvidia/label/cuda-11.8.0"], "10.2": []}


def test_without_root_no_package_of_the_system_is_promised() -> None:
    facts = facts_of("h100-nvcc-13-torch-cu128")
    user = replace(facts, ability=replace(facts.ability, is_root=False, uid=1000, sudo=Sudo.ABSENT))
    [found] = seen(nvcc_major_differs, user)
    assert ways_of(found) == [(conda("12.8"), home("~/cuda-12.8"))]
    assert "neither root nor sudo" in " ".join(each.why_not for each in found.answers)


def test_a_cuda_home_that_leads_nowhere_is_named() -> None:
    facts = changed("no-toolkit", "toolkits.cuda_home=/usr/local/cuda-13.1")
    nowhere = Known("/usr/local/cuda-13.1", "CUDA_HOME")
    facts = replace(facts, toolkits=replace(facts.toolkits, cpp_extension_home=nowhere))
    [found] = seen(cuda_home_unset, facts, Goal.INFER)
    assert found.saw.startswith("no toolkit is at /usr/local/cuda-13.1 (CUDA_HOME); ")


def test_a_runtime_image_is_incomplete_only_for_those_who_build() -> None:
    facts = facts_of("nvcc-12-9-torch-cu128")
    part = replace(facts.toolkits.toolkits[0], has=(Part.CUDART,), missing=tuple(Part)[:6])
    facts = replace(facts, toolkits=replace(facts.toolkits, toolkits=(part,)))
    assert seen(toolkit_incomplete, facts, Goal.INFER) == []
    [found] = seen(toolkit_incomplete, facts)
    assert "lacks nvcc, ptxas, cicc" in found.saw
    assert ways_of(found)[0] == package(CudaVersion(12, 9))


def test_nvrtc_and_the_lib64_of_a_system_toolkit_are_not_missed() -> None:
    facts = facts_of("nvcc-12-9-torch-cu128")
    part = replace(facts.toolkits.toolkits[0], missing=(Part.NVRTC, Part.LIB64))
    assert seen(toolkit_incomplete, replace(facts, toolkits=replace(facts.toolkits, toolkits=(part,)))) == []


def test_a_wrapper_makes_torch_take_the_wrong_folder() -> None:
    facts = facts_of("nvcc-wrapper")
    [found] = seen(nvcc_is_wrapper, facts)
    assert found.saw == (
        "/usr/local/bin/nvcc is a wrapper that starts /usr/local/cuda-13.0/bin/nvcc; "
        "cpp_extension takes /usr/local for CUDA_HOME"
    )
    assert ways_of(found) == [(home("/usr/local/cuda-13.0"),)]
    used = toolkit_in_use(facts)
    assert used is not None
    assert used.path == "/usr/local/cuda-13.0"  # whose nvcc the wrapper starts, so versions are compared with it
    named = Known("/usr/local/cuda-13.0", "CUDA_HOME")
    told = replace(facts, toolkits=replace(facts.toolkits, cpp_extension_home=named))
    assert seen(nvcc_is_wrapper, told) == []
    assert seen(nvcc_is_wrapper, changed("nvcc-wrapper", "torch.build=cpu")) == []


def test_the_wrapper_of_a_real_machine_is_seen_when_building_is_the_goal() -> None:
    [found] = seen(nvcc_is_wrapper, facts_of("gpu-less"))
    assert ways_of(found) == [(home("/usr/local/cuda-13.0"),)]
    assert seen(nvcc_is_wrapper, facts_of("gpu-less"), Goal.INFER) == []


# host compiler and C library


def compilers(gcc: str, gxx: str) -> SetVariables:
    return SetVariables((Variable("CC", gcc), Variable("CXX", gxx), Variable("CUDAHOSTCXX", gxx)), Scope.BUILD)


def test_gcc_15_is_too_new_for_cuda_12_8() -> None:
    [found] = seen(host_compiler_out_of_range, facts_of("fedora-44-cuda-12-8"))
    assert found.saw == (
        "/usr/bin/gcc is gcc 15.2.1 (PATH); the toolkit at /usr/local/cuda-12.8 takes gcc up to 14 "
        "(/usr/local/cuda-12.8/include/crt/host_config.h)"
    )
    gxx = "bin/x86_64-conda-linux-gnu-g++"
    own = compilers("~/gcc-14/bin/x86_64-conda-linux-gnu-gcc", f"~/gcc-14/{gxx}")
    of_fedora = InstallPackages(("gcc14", "gcc14-c++"), ("/usr/bin/g++-14",))
    assert ways_of(found)[0] == (of_fedora, compilers("gcc-14", "g++-14"))
    assert ways_of(found)[1] == (InstallConda("gxx_linux-64=14", "conda-forge", "~/gcc-14", gxx), own)
    last = found.answers[-1]
    assert last.ways == (SetVariables((Variable("NVCC_APPEND_FLAGS", "-allow-unsupported-compiler"),), Scope.BUILD),)
    assert last.proof is Proof.GUESSED


def test_an_older_gcc_beside_it_is_the_way_out() -> None:
    pairs = [
        NumberedGcc(number, Known(f"/usr/bin/gcc-{number}", "PATH"), Known(f"/usr/bin/g++-{number}", "PATH"))
        for number in (12, 14, 15)
    ]
    facts = with_compilers(facts_of("fedora-44-cuda-12-8"), tool("gcc", "15.2.1"), tool("g++", "15.2.1"), *pairs)
    [found] = seen(host_compiler_out_of_range, facts)
    assert ways_of(found)[0] == (compilers("/usr/bin/gcc-14", "/usr/bin/g++-14"),)


@pytest.mark.parametrize(
    ("name", "release", "number"), [("ubuntu", "24.04", 14), ("ubuntu", "22.04", 12), ("debian", "12", 12)]
)
def test_the_older_gcc_is_the_newest_that_the_release_has(name: str, release: str, number: int) -> None:
    facts = facts_of("fedora-44-cuda-12-8")
    place = replace(facts.place, os_id=Known(name, "t"), os_version=Known(release, "t"))
    facts = replace(facts, place=place, ability=replace(facts.ability, package_managers=("apt-get",)))
    [found] = seen(host_compiler_out_of_range, facts)
    packages = InstallPackages((f"gcc-{number}", f"g++-{number}"), (f"/usr/bin/g++-{number}",))
    assert ways_of(found)[0] == (packages, compilers(f"gcc-{number}", f"g++-{number}"))


def test_chosen_compilers_count_before_those_on_path() -> None:
    facts = facts_of("fedora-44-cuda-12-8")
    on_path = (tool("gcc", "15.2.1"), tool("c++", "15.2.1"))
    right = (chosen("CC", "/usr/bin/gcc-14", "14.3.0"), chosen("CXX", "/usr/bin/g++-14", "14.3.0"))
    assert seen(host_compiler_out_of_range, with_compilers(facts, *on_path, *right)) == []
    [half] = seen(host_compiler_out_of_range, with_compilers(facts, *on_path, right[0]))
    assert half.saw.startswith("/usr/bin/c++ is gcc 15.2.1 (PATH)")
    wrong = chosen("CUDAHOSTCXX", "/usr/bin/g++-15", "15.2.1")
    [told] = seen(host_compiler_out_of_range, with_compilers(facts, *on_path, *right, wrong))
    assert "(CUDAHOSTCXX)" in told.saw


def test_clang_has_a_limit_of_its_own_from_the_tables() -> None:
    facts = facts_of("fedora-44-cuda-12-8")
    clang = (chosen("CC", "/usr/bin/clang", "20.1.8"), chosen("CXX", "/usr/bin/clang++", "20.1.8"))
    [found] = seen(host_compiler_out_of_range, with_compilers(facts, *clang))
    assert "takes clang up to 19" in found.saw
    fine = (chosen("CC", "/usr/bin/clang", "19.1.0"), chosen("CXX", "/usr/bin/clang++", "19.1.0"))
    assert seen(host_compiler_out_of_range, with_compilers(facts, *fine)) == []


def test_who_told_nvcc_to_accept_any_compiler_is_not_told_again() -> None:
    facts = with_variables(facts_of("fedora-44-cuda-12-8"), NVCC_APPEND_FLAGS="-allow-unsupported-compiler")
    assert seen(host_compiler_out_of_range, facts) == []


@pytest.mark.parametrize(
    ("glibc", "toolkit", "breaks"),
    [("2.41", "12.9", True), ("2.42", "12.8", True), ("2.40", "12.9", False), ("2.43", "13.3", False)],
)
def test_glibc_2_41_breaks_the_headers_of_cuda_12_alone(glibc: str, toolkit: str, breaks: bool) -> None:  # noqa: FBT001
    facts = changed("fedora-44-cuda-12-8", f"glibc={glibc}", f"toolkits.toolkits.0.version={toolkit}")
    assert bool(seen(glibc_breaks_cuda_headers, facts)) is breaks


def test_headers_that_glibc_breaks_are_used_in_an_image_or_left_for_those_of_cuda_13() -> None:
    [found] = seen(glibc_breaks_cuda_headers, facts_of("fedora-44-cuda-12-8"))
    assert ways_of(found)[0] == (UseImage("nvidia/cuda:12.8.1-devel-ubuntu24.04"),)
    assert torches(found) == ["2.11.0+cu130", "2.15.0"]
    with_torch = ways_of(found)[1:3]
    assert [ways[1] for ways in with_torch] == [toolkit("13.0.2"), toolkit("13.2.2")]  # as each torch pins it
    assert all(isinstance(ways[-1], SetVariables) for ways in with_torch)


# all of them


def test_building_rules_block_builders_alone() -> None:
    for rule in BUILD_RULES:
        for goal in (Goal.INFER, Goal.TRAIN):
            assert rule.severity_for(Question(facts_of("no-toolkit"), TABLES, goal)) is Severity.NOTE
    blocked = judge(Question(facts_of("h100-nvcc-13-torch-cu128"), TABLES, BUILD), BUILD_RULES)
    assert blocked.primary == "nvcc-major-differs"
    assert judge(Question(facts_of("h100-nvcc-13-torch-cu128"), TABLES), BUILD_RULES).primary == ""


@pytest.mark.parametrize("name", ["h200-healthy", "h100-driver-570", "gb10-torch-cu130", "wsl2-healthy", "gpu-less"])
def test_who_only_runs_models_hears_nothing_about_building_on_a_sound_machine(name: str) -> None:
    assert codes(facts_of(name), Goal.INFER) == []


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))
def test_of_a_machine_of_which_nothing_is_known_only_absences_are_said(name: str) -> None:
    nothing = nothing_known(facts_of(name))
    assert codes(nothing, Goal.INFER) == []
    assert set(codes(nothing)) <= {"cuda-home-unset", "build-tools-missing"}


@pytest.mark.parametrize("name", OWN)
def test_one_fact_fewer_makes_no_rule_stumble(name: str) -> None:
    facts = facts_of(name)
    full = set(codes(facts))
    for path, less in one_less_known(facts):
        extra = set(codes(less)) - full
        # What is not found is missing for a build; nothing else may appear from knowing less.
        assert extra <= {"cuda-home-unset", "build-tools-missing"}, path


def test_an_unknown_home_of_the_toolkit_is_not_compared() -> None:
    facts = facts_of("h100-nvcc-13-torch-cu128")
    lost = replace(facts, toolkits=replace(facts.toolkits, cpp_extension_home=Unknown("not looked at")))
    assert toolkit_in_use(lost) is None
    assert seen(nvcc_major_differs, lost) == []

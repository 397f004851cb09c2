"""What is said of the way a build would be run: architectures, flags, jobs, rights and tools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.build_flags_rules import (
    arch_flag_drops_features,
    arch_unknown_to_toolkit,
    build_tools_missing,
    externally_managed_python,
    prefix_not_writable,
    too_little_memory_per_job,
)
from firstlight.diagnosis.build_rules import BUILD_RULES
from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.facts.ability import Sudo
from firstlight.facts.build_variables import BuildVariable
from firstlight.facts.known import Known
from firstlight.ways.kinds import InstallConda, InstallPackages, MakeEnvironment, Scope, SetVariables, Variable
from tests.diagnosis.building import BUILD, TABLES, changed, chosen, seen, with_compilers, with_variables
from tests.diagnosis.rule_case import facts_of, ways_of
from tests.diagnosis.wheels import wheels


def told(**variables: str) -> SetVariables:
    """Variables of the shell that builds."""
    return SetVariables(tuple(Variable(name, value) for name, value in variables.items()), Scope.BUILD)


# flags and architectures


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        ("-gencode arch=compute_90,code=sm_90a", True),
        ("-gencode=arch=compute_100,code=[sm_100a,compute_100]", True),
        ("-gencode arch=compute_120,code=sm_120f -O3", True),
        ("-gencode arch=compute_90a,code=sm_90a", False),
        ("-gencode arch=compute_100f,code=sm_103", False),
        ("-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90a,code=sm_90a", False),
        ("-arch=sm_90a", False),
        ("", False),
    ],
)
def test_a_flag_drops_features_when_only_the_code_carries_the_letter(flags: str, wrong: bool) -> None:  # noqa: FBT001
    facts = with_variables(facts_of("nvcc-wrapper"), NVCC_PREPEND_FLAGS=flags)
    assert bool(seen(arch_flag_drops_features, facts)) is wrong


def test_the_corrected_flag_is_given() -> None:
    [found] = seen(arch_flag_drops_features, facts_of("h100-nvcc-13-torch-cu128"))
    assert ways_of(found) == [(told(NVCC_APPEND_FLAGS="-gencode arch=compute_90a,code=sm_90a"),)]


@pytest.mark.parametrize(
    ("given", "bad"),
    [
        ("7.0;8.0;9.0", "7.0"),
        ("6.1 7.0 9.0", "6.1 and 7.0"),
        ("9.0a;10.1", "10.1"),
        ("Volta;Hopper", "Volta"),
        ("8.6+PTX", ""),
        ("9.0a 10.0a 12.0+PTX", ""),
        ("Blackwell", ""),
        ("native", ""),
    ],
)
def test_architectures_are_held_against_what_nvcc_13_knows(given: str, bad: str) -> None:
    facts = with_variables(facts_of("nvcc-wrapper"), TORCH_CUDA_ARCH_LIST=given)
    found = seen(arch_unknown_to_toolkit, facts)
    assert [each.saw.split(" names ")[1].split(";")[0] for each in found] == ([bad] if bad else [])


def test_a_renamed_architecture_is_replaced_by_its_new_name() -> None:
    facts = with_variables(facts_of("nvcc-wrapper"), TORCH_CUDA_ARCH_LIST="9.0;10.1")
    [found] = seen(arch_unknown_to_toolkit, facts)
    assert ways_of(found) == [(told(TORCH_CUDA_ARCH_LIST="9.0;11.0"),)]


def test_a_dropped_architecture_names_the_last_toolkit_that_knows_it() -> None:
    [found] = seen(arch_unknown_to_toolkit, facts_of("nvcc-wrapper"))
    assert ways_of(found) == [(told(TORCH_CUDA_ARCH_LIST="8.0;9.0;12.0"),)]  # torch's CUDA 13 takes no nvcc 12
    other = changed("nvcc-wrapper", "torch.wheel_cuda=12.8", "torch.version=2.9.0+cu128")
    [found] = seen(arch_unknown_to_toolkit, other)
    assert ways_of(found)[1][-1] == told(CUDA_HOME="/usr/local/cuda-12.9")


def test_a_list_with_nothing_left_falls_back_to_the_gpu_here() -> None:
    facts = with_variables(facts_of("nvcc-wrapper"), TORCH_CUDA_ARCH_LIST="7.0")
    [found] = seen(arch_unknown_to_toolkit, facts)
    assert ways_of(found)[0] == (told(TORCH_CUDA_ARCH_LIST="12.0"),)


def test_cmakes_variable_is_read_in_its_own_spelling() -> None:
    facts = with_variables(facts_of("nvcc-wrapper"), CUDAARCHS="70-real;90a;all-major")
    [found] = seen(arch_unknown_to_toolkit, facts)
    assert found.saw.startswith("CUDAARCHS=70-real;90a;all-major names 70-real; nvcc 13.0.88")
    assert ways_of(found)[0] == (told(CUDAARCHS="90a;all-major"),)


def test_torch_takes_no_family_name() -> None:
    facts = with_variables(facts_of("nvcc-wrapper"), TORCH_CUDA_ARCH_LIST="10.0f;12.0")
    [found] = seen(arch_unknown_to_toolkit, facts)
    assert ways_of(found) == [(told(TORCH_CUDA_ARCH_LIST="10.0;12.0"),)]
    assert "Unknown CUDA arch (10.0f) or GPU not supported" in found.means


# memory and jobs


def test_flash_attention_with_all_processors_of_an_orin_does_not_fit() -> None:
    [found] = seen(too_little_memory_per_job, facts_of("orin-flash-attention"), Goal.INFER)
    assert found.saw == (
        "12 jobs (one for each processor: MAX_JOBS is not set) share 61.4 GiB (/proc/meminfo), 5.1 GiB each; "
        "flash-attention (FLASH_ATTENTION_FORCE_BUILD) takes about 20"
    )
    assert ways_of(found) == [(told(MAX_JOBS="3", TORCH_CUDA_ARCH_LIST="8.7"),)]


def test_the_same_board_is_large_enough_for_other_builds() -> None:
    facts = with_variables(facts_of("orin-flash-attention"))
    assert seen(too_little_memory_per_job, facts) == []


def test_an_orin_nano_with_8_gb_is_not() -> None:  # pytorch/pytorch#143861: cc1plus was killed
    facts = with_variables(
        changed("orin-flash-attention", f"resources.memory_bytes={7 << 30}", "resources.processors=6")
    )
    [found] = seen(too_little_memory_per_job, facts)
    assert ways_of(found) == [(told(MAX_JOBS="1", TORCH_CUDA_ARCH_LIST="8.7"),)]
    assert seen(too_little_memory_per_job, facts, Goal.INFER) == []


def test_the_containers_limit_counts_and_not_the_hosts_memory() -> None:
    facts = changed("h100-nvcc-13-torch-cu128", f"resources.memory_limit_bytes={64 << 30}")
    limited = replace(facts.resources, memory_bytes=Known(64 << 30, "/sys/fs/cgroup/memory.max"))
    [found] = seen(too_little_memory_per_job, replace(facts, resources=limited))
    assert "share 64.0 GiB (/sys/fs/cgroup/memory.max)" in found.saw
    assert ways_of(found) == [(told(MAX_JOBS="16", TORCH_CUDA_ARCH_LIST="9.0"),)]
    assert seen(too_little_memory_per_job, facts_of("h100-nvcc-13-torch-cu128")) == []


@pytest.mark.parametrize(("jobs", "fires"), [("15", False), ("16", True), ("many", False), ("0", False)])
def test_max_jobs_decides_where_it_is_a_number(jobs: str, fires: bool) -> None:  # noqa: FBT001
    facts = with_variables(
        changed("no-toolkit", f"resources.memory_bytes={60 << 30}", "resources.processors=4"), MAX_JOBS=jobs
    )
    assert bool(seen(too_little_memory_per_job, facts)) is fires


def test_fewer_threads_of_nvcc_leave_room_for_more_jobs() -> None:
    facts = facts_of("orin-flash-attention")
    one = (*facts.build_variables, BuildVariable("NVCC_THREADS", "1"))
    assert seen(too_little_memory_per_job, replace(facts, build_variables=one)) == []


# rights and tools


def test_a_source_build_for_the_systems_python_ends_at_its_last_step() -> None:
    facts = facts_of("thor-source-build")
    [found] = seen(prefix_not_writable, facts)
    assert found.saw == "/usr/local/lib/python3.12/dist-packages cannot be written to by user 1000"
    assert ways_of(found) == [(MakeEnvironment(),)]
    [managed] = seen(externally_managed_python, facts)
    assert ways_of(managed) == [(MakeEnvironment(),)]
    assert managed.saw.startswith("/usr is marked EXTERNALLY-MANAGED")


def test_the_mark_explains_the_closed_folder() -> None:
    diagnosis = judge(Question(facts_of("thor-source-build"), TABLES, BUILD), BUILD_RULES)
    assert diagnosis.primary == "externally-managed-python"
    closed = diagnosis.of("prefix-not-writable")
    assert closed is not None
    assert closed.caused_by == "externally-managed-python"


def test_an_installed_torch_that_nobody_wants_to_change_needs_no_rights() -> None:
    facts = replace(facts_of("thor-source-build"), torch=facts_of("thor-missing-libraries").torch)
    assert seen(prefix_not_writable, facts, Goal.INFER) == seen(externally_managed_python, facts, Goal.INFER) == []
    assert seen(prefix_not_writable, facts) != []
    wanted = Question(facts, TABLES, Goal.INFER, ("torch==2.11.0",))
    assert list(prefix_not_writable(wanted)) != []


def test_the_users_own_folder_of_pip_does_not_hide_a_closed_one() -> None:
    facts = facts_of("thor-source-build")
    own = "/home/user/.local/lib/python3.12/site-packages"
    environment = facts.python.environments[0]
    with_own = replace(environment, site_packages=(own, *environment.site_packages))
    python = replace(facts.python, environments=(with_own,))
    assert seen(prefix_not_writable, replace(facts, python=python)) == seen(prefix_not_writable, facts)


def test_a_bare_machine_lacks_compiler_and_ninja() -> None:
    facts = facts_of("no-toolkit")
    compiler, ninja = seen(build_tools_missing, facts)
    folder = "~/gcc/bin/x86_64-conda-linux-gnu"
    own = told(CC=f"{folder}-gcc", CXX=f"{folder}-g++", CUDAHOSTCXX=f"{folder}-g++")
    assert (compiler.saw, ninja.saw) == ("no c++, g++ or clang++ on PATH, and CXX names none", "no ninja on PATH")
    assert ways_of(compiler) == [(InstallPackages(("build-essential",), ("/usr/bin/g++",)),)]
    assert ways_of(ninja) == [(InstallPackages(("ninja-build",)),)], "from where the compiler is"
    with_compiler = with_compilers(facts, chosen("CXX", "/opt/gcc/bin/g++", "14.2.0"))
    assert ways_of(seen(build_tools_missing, with_compiler)[0]) == [*ways_of(ninja), (wheels("ninja"),)]
    user = replace(facts, ability=replace(facts.ability, is_root=False, uid=1000, sudo=Sudo.ABSENT))
    without_root = [ways_of(each) for each in seen(build_tools_missing, user)]
    conda = InstallConda("gxx_linux-64", "conda-forge", "~/gcc", "bin/x86_64-conda-linux-gnu-g++")
    assert without_root == [[(conda, own)], [(wheels("ninja"),)]]
    assert seen(build_tools_missing, facts_of("no-toolkit"), Goal.INFER) == []


def test_a_compiler_named_by_cxx_is_one() -> None:
    facts = with_compilers(facts_of("no-toolkit"), chosen("CXX", "/opt/gcc/bin/g++", "14.2.0"))
    assert [each.saw for each in seen(build_tools_missing, facts)] == ["no ninja on PATH"]

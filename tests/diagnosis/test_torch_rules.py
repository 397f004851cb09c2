"""What is said of the installed torch on machines that were reported, and the warnings that are no findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.torch_build_rules import (
    aarch64_wheel_without_cuda,
    arch_not_in_wheel,
    jetson_needs_own_wheel,
    torch_cpu_only,
    torch_for_other_vendor,
)
from firstlight.diagnosis.torch_rules import (
    TORCH_RULES,
    nvidia_wheel_off_pin,
    torch_not_installed,
    triton_too_old_for_gpu,
)
from firstlight.diagnosis.torch_shadow_rules import torch_shadowed
from firstlight.diagnosis.wheel_answers import torch_answers
from firstlight.diagnosis.wheel_choice import wheels_that_run
from firstlight.facts.build_variables import BuildVariable
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Distribution
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import ComputeCapability, CudaVersion
from firstlight.ways.kinds import (
    AskPerson,
    BuildFromSource,
    InstallWheels,
    Package,
    RemoveDistributions,
    SetVariables,
    UnsetVariables,
    Variable,
    Why,
)
from firstlight.ways.way import Proof
from tests.diagnosis.rule_case import facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known
from tests.diagnosis.wheels import torches, wheels

TABLES = load()
Check = Callable[[Question], Iterator[Seen]]
HEALTHY = ("gb10-torch-cu130", "rtx5090-source-build", "l40s-driver-570-compat-12-9")


def seen(check: Check, facts: Facts) -> list[Seen]:
    return list(check(Question(facts, TABLES)))


def changed(machine: str, *settings: str) -> Facts:
    return override(facts_of(machine), settings)


def with_torches(facts: Facts, *folders: str, version: str = "2.2.0") -> Facts:
    """The facts with a torch in each of these folders of the judged environment, in the order of sys.path."""
    environment = facts.environment
    assert environment is not None
    others = tuple(each for each in environment.distributions if each.name != "torch")
    found = tuple(Distribution("torch", version, folder, f"torch-{version}.dist-info") for folder in folders)
    environments = tuple(
        replace(each, distributions=(*found, *others)) if each is environment else each
        for each in facts.python.environments
    )
    return replace(facts, python=replace(facts.python, environments=environments))


def codes(facts: Facts) -> list[str]:
    return [rule.code for rule in TORCH_RULES if seen(rule.check, facts)]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_machine_that_works_has_no_finding_about_torch(name: str) -> None:
    assert codes(facts_of(name)) == []


def test_gb10_runs_code_for_12_0_whatever_torch_2_10_warns() -> None:
    facts = facts_of("gb10-torch-cu130")
    assert isinstance(facts.gpus.devices[0].capability, Known)
    assert str(facts.gpus.devices[0].capability.value) == "12.1"
    assert not seen(arch_not_in_wheel, facts)
    assert seen(arch_not_in_wheel, override(facts, ("torch.compiled_for=sm_80, sm_90, sm_100, sm_110",)))


def test_volta_is_not_in_a_cu130_wheel_and_the_same_torch_in_the_cuda_that_stays_for_it_is_offered() -> None:
    [left_out] = seen(arch_not_in_wheel, facts_of("v100-torch-cu130"))
    assert left_out.saw == (
        "Tesla V100-PCIE-16GB has compute capability 7.0 (NVML); torch 2.9.0+cu130 has code for sm_75, sm_80, sm_86, "
        "sm_90, sm_100, sm_120 (/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so), none of which "
        "runs on it"
    )
    # 12.6 and not 12.8: the newest torch has code for a V100 in its CUDA 12.6 build alone.
    assert ways_of(left_out) == [
        (wheels("torch==2.9.0+cu126", cuda="cu126"),),
        (wheels("torch==2.14.1+cu126", cuda="cu126"),),
        (BuildFromSource("torch", "2.9.0", (ComputeCapability(7, 0),)),),
    ]


def test_volta_is_never_sent_to_2_15_of_which_no_cuda_12_wheel_is_known_to_be_published() -> None:
    facts = changed("v100-torch-cu130", "torch.version=2.15.0+cu132", "torch.wheel_cuda=13.2")
    [left_out] = seen(arch_not_in_wheel, facts)
    assert torches(left_out) == ["2.14.1+cu126"]


@pytest.mark.parametrize(
    ("capability", "compiled_for", "wheel_cuda", "fires"),
    [
        ("9.0", "sm_90a", "13.0", False),  # a: that capability alone
        ("10.0", "sm_90a", "13.0", True),
        ("10.3", "sm_100", "13.0", False),  # B300 runs code for B200
        ("8.9", "sm_86", "13.0", False),
        ("8.7", "sm_80, sm_86", "13.0", True),  # server code does not run on an Orin ...
        ("8.7", "sm_80, sm_86", "13.2", False),  # ... before CUDA 13.2
        ("11.0", "sm_100, sm_120", "12.8", True),
        ("11.0", "sm_101", "12.8", False),  # Thor's name before CUDA 13
        ("12.0", "sm_90, compute_90", "12.6", False),  # PTX is compiled by the driver
        ("12.0", "sm_90, compute_90a", "12.6", True),
        ("10.3", "compute_100f", "13.0", False),
        ("12.0", "compute_100f", "13.0", True),
        ("7.0", "sm_999x", "13.0", False),  # what cannot be read is no proof
    ],
)
def test_code_runs_where_nvidias_rules_say(capability: str, compiled_for: str, wheel_cuda: str, *, fires: bool) -> None:
    settings = (f"capability={capability}", f"torch.compiled_for={compiled_for}", f"torch.wheel_cuda={wheel_cuda}")
    assert bool(seen(arch_not_in_wheel, changed("v100-torch-cu130", *settings))) is fires


def test_without_its_own_list_a_release_is_judged_by_the_tables() -> None:
    facts = changed("v100-torch-cu130", "torch.compiled_for=unknown", "torch.version=2.11.0+cu130")
    [left_out] = seen(arch_not_in_wheel, facts)
    assert "of this PyPI wheel" in left_out.saw
    [left_out] = seen(arch_not_in_wheel, override(facts, ("torch.version=2.9.0+cu130",)))
    assert "RELEASE.md" in left_out.saw
    [left_out] = seen(arch_not_in_wheel, override(facts, ("torch.version=2.8.0+cu130",)))  # no row: the compiler tells
    assert "built with CUDA 13.0, whose compiler knows no code that runs on it" in left_out.saw
    assert not seen(arch_not_in_wheel, override(facts, ("torch.version=2.8.0+cu130", "capability=9.0")))
    assert not seen(arch_not_in_wheel, override(facts, ("torch.version=2.8.0+nv25", "torch.wheel_cuda=13.0")))


def test_a_v100_is_not_sent_to_cu128_of_2_11_which_has_no_code_for_it() -> None:
    found = wheels_that_run(Question(facts_of("v100-torch-cu130"), TABLES))
    assert {str(wheel.cuda) for wheel in found if wheel.torch.release[:2] == (2, 11)} == {"12.6"}


def test_thor_is_sent_to_a_cu130_wheel_and_not_to_an_index_of_its_own() -> None:
    facts = facts_of("thor-torch-cu128")
    [left_out] = seen(arch_not_in_wheel, facts)
    assert "NVIDIA Thor has compute capability 11.0" in left_out.saw
    assert ways_of(left_out)[0] == (wheels("torch==2.14.1+cu130", cuda="cu130"),)
    assert not seen(jetson_needs_own_wheel, facts)


def test_thor_with_pypis_cpu_wheel_is_a_matter_of_the_wheel_not_of_the_board() -> None:
    settings = (
        "torch.build=cpu",
        "torch.version=2.9.0+cpu",
        "torch.recorded_version=2.9.0",
        "torch.wheel_cuda=unknown",
    )
    facts = changed("thor-torch-cu128", *settings)
    assert codes(facts) == ["aarch64-wheel-without-cuda"]


def test_orin_needs_a_wheel_of_its_own_and_the_index_follows_the_jetpack() -> None:
    [own] = seen(jetson_needs_own_wheel, facts_of("orin-torch-pypi"))
    assert own.saw == (
        "torch 2.9.0+cpu (/home/user/venv/lib/python3.10/site-packages/torch/version.py) was built without CUDA; this "
        "is Orin, compute capability 8.7 (libcuda), Jetson Linux 36.4.3, for which PyTorch publishes no wheel"
    )
    packages = Package("torch"), Package("torchvision")
    assert ways_of(own) == [
        (InstallWheels(packages, "https://pypi.jetson-ai-lab.io/jp6/cu126"),),
        (AskPerson("take-jetpack-torch", Why.BOARD, of=(" (6.2)", ", for Python 3.10")),),
        (BuildFromSource("torch", "2.9.0", (ComputeCapability(8, 7),)),),
    ]
    assert codes(facts_of("orin-torch-pypi")) == ["jetson-needs-own-wheel"]


def test_orin_under_cuda_13_2_takes_the_official_wheel() -> None:
    facts = changed("orin-torch-pypi", "driver_cuda=13.2", "python.environments.0.python_version=3.12.3")
    assert "jetson-needs-own-wheel" not in codes(facts)
    wheel = next(wheels_that_run(Question(facts, TABLES)))
    assert (str(wheel.torch), wheel.cuda, wheel.index) == ("2.15.0", CudaVersion(13, 2), "")


def test_an_arm_server_with_pypis_2_9_is_sent_to_pytorchs_index() -> None:
    [plain] = seen(aarch64_wheel_without_cuda, facts_of("gh200-torch-pypi"))
    assert "is PyPI's wheel for aarch64, which had no CUDA at this release" in plain.saw
    assert ways_of(plain) == [(wheels("torch==2.9.0+cu128", cuda="cu128"),), (wheels("torch==2.15.0"),)]
    assert not seen(torch_cpu_only, facts_of("gh200-torch-pypi"))


def test_a_cpu_wheel_without_a_gpu_is_no_fault() -> None:
    facts = facts_of("gpu-box-cpu-wheel")
    assert seen(torch_cpu_only, facts)
    driver = replace(facts.driver, nodes=())
    none = replace(facts.gpus, devices=(), pci=(), count=Known(0, "NVML"))
    libcuda = replace(facts.libcuda, device_count=Unknown("no libcuda was found"))
    assert not seen(torch_cpu_only, replace(facts, gpus=none, driver=driver, libcuda=libcuda))


def test_a_rocm_build_on_nvidia_is_named() -> None:
    [other] = seen(torch_for_other_vendor, facts_of("rocm-torch-on-nvidia"))
    assert other.saw == (
        "torch 2.9.0+rocm6.4 (/opt/venv/lib/python3.12/site-packages/torch/version.py) was built for AMD (ROCm); "
        "NVIDIA H100 80GB HBM3 is here (NVML)"
    )
    assert torches(other)[0] == "2.9.0+cu130"


def test_a_machine_without_torch_is_told_what_to_install_and_one_without_a_gpu_nothing() -> None:
    [missing] = seen(torch_not_installed, facts_of("h200-no-torch"))
    assert missing.saw == "torch is not installed in /opt/venv"
    assert ways_of(missing) == [(wheels("torch==2.15.0"),)]
    assert not seen(torch_not_installed, facts_of("gpu-less"))


def test_on_driver_550_the_newest_torch_with_cuda_12_is_offered() -> None:
    facts = changed("h200-no-torch", "driver=550.54.15", "driver_cuda=12.4")
    [missing] = seen(torch_not_installed, facts)
    assert ways_of(missing) == [(wheels("torch==2.14.1+cu126", cuda="cu126"),)]


def test_a_wheel_is_for_the_python_that_is_judged() -> None:
    [missing] = seen(torch_not_installed, changed("h200-no-torch", "python.environments.0.python_version=3.10.12"))
    assert torches(missing) == ["2.14.1+cu130"]


def test_torchvision_follows_torch_and_both_name_the_build_since_pip_takes_any_local_part() -> None:
    facts = changed("h100-driver-570", "driver_cuda=12.8")
    first = torch_answers(Question(facts, TABLES))[0]
    both = ("torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "torchaudio==2.9.0+cu128")
    assert first.ways == (wheels(*both, cuda="cu128"),)


def test_pypis_build_of_the_installed_release_takes_the_installed_one_out_first_since_it_has_no_local_part() -> None:
    facts = changed("h200-no-torch", "driver=580.95.05")
    torch = facts_of("rocm-torch-on-nvidia").torch
    assert isinstance(torch, Known)
    other = with_torches(
        replace(facts, torch=torch), "/opt/venv/lib/python3.12/site-packages", version="2.15.0+rocm7.0"
    )
    other = override(other, ("torch.version=2.15.0+rocm7.0",))
    [found] = seen(torch_for_other_vendor, other)
    assert ways_of(found) == [(RemoveDistributions(("torch",)), wheels("torch==2.15.0"))]


def test_triton_3_5_on_gb10_takes_the_toolkits_ptxas() -> None:
    [old] = seen(triton_too_old_for_gpu, facts_of("gb10-triton-3-5"))
    assert "has ptxas 12.8.93, which does not know sm_121" in old.saw
    ptxas = Variable("TRITON_PTXAS_PATH", "/usr/local/cuda-13.0/bin/ptxas")
    torch = wheels("torch==2.14.1+cu130", cuda="cu130")  # it brings Triton under its other name
    assert ways_of(old) == [(SetVariables((ptxas,)),), (RemoveDistributions(("pytorch-triton",)), torch)]


def test_triton_is_let_be_where_its_ptxas_is_replaced_or_the_gpu_is_known_to_it() -> None:
    facts = facts_of("gb10-triton-3-5")
    own = BuildVariable("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas")
    assert not seen(triton_too_old_for_gpu, replace(facts, build_variables=(own,)))
    assert not seen(triton_too_old_for_gpu, override(facts, ("capability=12.0",)))
    assert not seen(triton_too_old_for_gpu, override(facts, ("companions.0.version=99.0",)))  # not in the tables
    assert seen(triton_too_old_for_gpu, override(facts, ("companions.0.version=3.6.0", "capability=11.0")))


def test_an_old_triton_degrades_inference_and_blocks_kernels() -> None:
    [rule] = [rule for rule in TORCH_RULES if rule.code == "triton-too-old-for-gpu"]
    facts = facts_of("gb10-triton-3-5")
    assert rule.severity_for(Question(facts, TABLES, Goal.INFER)) is Severity.DEGRADES
    assert rule.severity_for(Question(facts, TABLES, Goal.KERNELS)) is Severity.BLOCKS


def test_a_file_called_torch_py_is_renamed_and_a_checkout_is_left() -> None:
    [folder] = seen(torch_shadowed, facts_of("pytorch-checkout-shadows"))
    away = AskPerson("start-elsewhere", Why.PROGRAM, (("cd", "/root"),))
    without = AskPerson("start-with-P", Why.PROGRAM)
    assert ways_of(folder) == [(away,), (without,)]
    older = changed("pytorch-checkout-shadows", "python.environments.0.python_version=3.10.12")
    assert [ways_of(each) for each in seen(torch_shadowed, older)] == [[(away,)]]
    [file] = seen(torch_shadowed, changed("pytorch-checkout-shadows", "torch.shadowed_by=/root/app/torch.py"))
    renamed = ("mv", "/root/app/torch.py", "/root/app/my_torch.py")
    assert ways_of(file) == [(AskPerson("rename-torch-file", Why.PROGRAM, (renamed,)),)]


def test_a_torch_on_pythonpath_hides_the_installed_one() -> None:
    facts = changed(
        "pytorch-checkout-shadows", "torch.shadowed_by=", "torch.found_via=PYTHONPATH", "python.python_path=/opt/lib"
    )
    [hidden] = seen(torch_shadowed, facts)
    assert "PYTHONPATH (/opt/lib) makes Python import torch 2.9.0+cu130" in hidden.saw
    assert ways_of(hidden) == [(UnsetVariables(("PYTHONPATH",)),)]


def test_a_torch_on_pythonpath_is_put_aside_and_the_installed_one_is_not_changed() -> None:
    facts = changed("gpu-box-cpu-wheel", "torch.found_via=PYTHONPATH", "python.python_path=/opt/lib")
    [cpu] = seen(torch_cpu_only, facts)
    assert ways_of(cpu) == [(UnsetVariables(("PYTHONPATH",)),)]
    bare = with_torches(facts)
    [cpu] = seen(torch_cpu_only, bare)  # nothing lies behind it: one is installed besides
    assert ways_of(cpu)[0] == (UnsetVariables(("PYTHONPATH",)), wheels("torch==2.2.0+cu121", cuda="cu121"))


def test_a_torch_of_pips_user_folder_is_removed_and_the_environments_own_is_not_changed() -> None:
    facts = facts_of("gpu-box-cpu-wheel")
    assert isinstance(facts.torch, Known)
    own = facts.torch.value.folder.removesuffix("/torch")
    user = "/root/.local/lib/python3.11/site-packages"
    there = replace(facts, torch=Known(replace(facts.torch.value, folder=f"{user}/torch"), "there"))
    [cpu] = seen(torch_cpu_only, with_torches(there, user, own))
    assert ways_of(cpu) == [(RemoveDistributions(("torch",), folder=user, version="2.2.0"),)]
    [cpu] = seen(torch_cpu_only, with_torches(there, user))  # it is the only one: another takes its place
    assert torches(cpu)[0] == "2.2.0+cu121"
    [cpu] = seen(torch_cpu_only, with_torches(facts, own, "/usr/lib/python3/dist-packages"))  # its own is in front
    assert torches(cpu)[0] == "2.2.0+cu121"


def test_a_moved_cudnn_is_named_with_torchs_pin() -> None:
    [moved] = seen(nvidia_wheel_off_pin, facts_of("h100-cudnn-off-pin"))
    assert moved.saw == (
        "torch 2.6.0 requires nvidia-cudnn-cu12==9.1.0.70 "
        "(/opt/venv/lib/python3.12/site-packages/torch-2.6.0.dist-info/METADATA); installed is 9.8.0.87 "
        "(/opt/venv/lib/python3.12/site-packages)"
    )


def test_of_a_cudnn_of_an_earlier_minor_it_is_said_that_torch_refuses_it() -> None:
    facts = facts_of("h100-cudnn-off-pin")
    for version, refused in (("9.0.0.312", True), ("9.1.1.17", False), ("9.8.0.87", False)):
        wheels = tuple(replace(each, version=version) for each in facts.nvidia_wheels if "cudnn" in each.name)
        [moved] = seen(nvidia_wheel_off_pin, replace(facts, nvidia_wheels=wheels))
        assert ("torch refuses" in moved.means) is refused, version


def test_a_pinned_wheel_that_is_not_there_is_left_to_the_rule_about_missing_libraries() -> None:
    facts = facts_of("h100-cudnn-off-pin")
    assert not seen(nvidia_wheel_off_pin, replace(facts, nvidia_wheels=()))


@pytest.mark.parametrize("rule", TORCH_RULES, ids=lambda rule: rule.code)
def test_a_rule_says_nothing_of_a_machine_of_which_nothing_is_known(rule: Rule) -> None:
    assert not seen(rule.check, nothing_known(facts_of("h200-no-torch")))


@pytest.mark.parametrize("name", ["orin-torch-pypi", "v100-torch-cu130", "gb10-triton-3-5", "h100-cudnn-off-pin"])
def test_no_rule_fails_whatever_single_fact_is_missing(name: str) -> None:
    for path, facts in one_less_known(facts_of(name)):
        for rule in TORCH_RULES:
            for each in seen(rule.check, facts):
                assert "Unknown(" not in each.saw, path
                assert "Unknown(" not in repr(each.answers), path


def test_the_install_command_of_every_machine_names_a_version_and_never_a_bare_torch() -> None:
    for name in ("v100-torch-cu130", "gh200-torch-pypi", "gpu-box-cpu-wheel", "rocm-torch-on-nvidia", "h200-no-torch"):
        for rule in TORCH_RULES:
            for each in seen(rule.check, facts_of(name)):
                assert all(torches(each)), name


def test_no_wheel_is_offered_where_none_is_known_to_run() -> None:
    facts = changed("v100-torch-cu130", "capability=3.5")
    assert list(wheels_that_run(Question(facts, TABLES))) == []
    [left_out] = seen(arch_not_in_wheel, facts)
    assert all(each.proof is Proof.GUESSED for each in left_out.answers if not each.why_not)
    assert ways_of(left_out)[-1] == (BuildFromSource("torch", "2.9.0", (ComputeCapability(3, 5),)),)


def test_unknown_reasons_are_shown_as_they_are() -> None:
    facts = replace(facts_of("h200-no-torch"), torch=Unknown("torch-2.9.0.dist-info is there, but no torch package"))
    assert seen(torch_not_installed, facts)[0].saw == "torch-2.9.0.dist-info is there, but no torch package"

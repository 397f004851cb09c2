"""What is said of compiled files that do not fit torch, and of JAX, ONNX Runtime and CuPy beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.companion_rules import extension_for_other_cuda
from firstlight.diagnosis.extension_rules import extension_lacks_symbols, extension_without_gpu_code, spelled
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.framework_rules import (
    framework_finds_no_cuda,
    framework_needs_torch_first,
    framework_wants_newer_library,
    jax_plugin_of_other_version,
    nvidia_wheels_left_over,
    packages_share_a_folder,
)
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wheel_answers import installed_as
from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Distribution, Requirement
from firstlight.facts.document import replay
from firstlight.facts.extensions import Extension, Strings, TorchSymbols
from firstlight.facts.known import Known, Unknown
from firstlight.facts.torch_install import TorchBuild
from firstlight.plan.option import Keeps
from firstlight.plan.options import Request, rank_options
from firstlight.tables import load
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways.effects import after_all
from firstlight.ways.kinds import InstallWheels, Manner, Package, RemoveDistributions
from tests.diagnosis.cases_companions import files_of, with_files
from tests.diagnosis.rule_case import facts_of, ways_of
from tests.diagnosis.wheels import torches, wheels
from tools.machines.extension_machines_closed import flash_attn_new_abi

TABLES = load()
SITE = "/opt/venv/lib/python3.12/site-packages"


def _with_distributions(facts: Facts, *names: str) -> Facts:
    """The facts with these packages, named as in name==version, added to the selected environment."""
    environment = facts.environment
    assert environment is not None
    pairs = (each.partition("==") for each in names)
    new = tuple(Distribution(name, version, SITE, f"{name}-{version}.dist-info") for name, _, version in pairs)
    more = replace(environment, distributions=(*environment.distributions, *new))
    return replace(facts, python=replace(facts.python, environments=(more,)))


def _file(package: str, version: str, **changed: object) -> Extension:
    [one] = files_of(facts_of("flash-attn-no-blackwell"))
    return replace(one, package=package, version=Known(version, "a test"), **changed)  # type: ignore[arg-type]


def test_the_finding_says_how_many_names_which_one_and_how_both_were_compiled() -> None:
    [seen] = extension_lacks_symbols(Question(facts_of("flash-attn-old-strings"), TABLES))
    assert "torch 2.7.0+cu128 does not have 2 of the 3 names that it asks for, e.g. c10::Error (" in seen.saw
    assert "_GLIBCXX_USE_CXX11_ABI=0), torch with the C++11 strings of GCC (_GLIBCXX_USE_CXX11_ABI=1)" in seen.saw
    assert "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs" in seen.error


def test_a_package_that_is_built_for_each_torch_is_compiled_or_taken_out() -> None:
    [seen] = extension_lacks_symbols(Question(facts_of("flash-attn-old-strings"), TABLES))
    assert ways_of(seen) == [
        (wheels("flash-attn==2.7.4.post1", manner=Manner.COMPILED),),
        (RemoveDistributions(("flash-attn",)),),
    ]


def test_nothing_is_taken_out_of_an_environment_that_may_not_be_changed() -> None:
    facts = facts_of("flash-attn-old-strings")
    environment = facts.environment
    assert environment is not None
    locked = replace(environment, writable=Known(value=False, seen_in="a test"))
    facts = replace(facts, python=replace(facts.python, environments=(locked,)))
    [seen] = extension_lacks_symbols(Question(facts, TABLES))
    assert ways_of(seen) == [(wheels("flash-attn==2.7.4.post1", manner=Manner.COMPILED),)]


def test_a_package_with_a_wheel_for_every_torch_is_installed_for_this_one() -> None:
    facts = facts_of("flash-attn-no-blackwell")
    lacking = Known(TorchSymbols(180, 13, ("_ZNK3c106SymInt6sym_neERKS0_",)), "a test")
    facts = with_files(facts, _file("xformers", "0.0.28.post3", symbols=lacking))
    [seen] = extension_lacks_symbols(Question(facts, TABLES))
    assert ways_of(seen)[0] == (wheels("xformers==0.0.33.post1", cuda="cu128"),)


def test_a_cuda_wheel_beside_a_torch_without_cuda_is_taken_from_the_cpu_index() -> None:
    facts = facts_of("flash-attn-no-blackwell")
    assert isinstance(facts.torch, Known)
    torch = replace(facts.torch.value, build=Known(TorchBuild.CPU, "a test"), wheel_cuda=Unknown("CPU-only"))
    facts = replace(facts, torch=Known(torch, "a test"))
    facts = with_files(facts, _file("torchvision", "0.24.0", lacks_libraries=("libtorch_cuda.so",)))
    [seen] = extension_lacks_symbols(Question(facts, TABLES))
    assert "does not have libtorch_cuda.so, which it needs" in seen.saw
    assert ways_of(seen)[0] == (wheels("torchvision==0.24.0+cpu", cuda="cpu", manner=Manner.AGAIN),)


def test_two_packages_made_for_two_torches_do_not_ask_for_both() -> None:
    facts = facts_of("vllm-torch-2-9")
    lacking = Known(TorchSymbols(9, 1, ("_ZN3c10fEv",)), "a test")
    one = _file("vllm", "0.11.0", symbols=lacking)
    alone = with_files(facts, one)
    [seen] = extension_lacks_symbols(Question(alone, TABLES))
    assert [version.partition("+")[0] for version in torches(seen)] == ["2.8.0"]
    both = with_files(facts, one, replace(one, package="xformers"))
    assert [torches(each) for each in extension_lacks_symbols(Question(both, TABLES))] == [[], []]


@pytest.mark.parametrize(
    ("codes", "fires"),
    [
        (("sm_80", "sm_90"), True),
        (("sm_80", "compute_90"), False),  # PTX is compiled by the driver
        (("sm_90a", "sm_100a"), True),
        (("sm_120",), False),
        (("sm_120a",), False),
        (("compute_90a",), True),
    ],
)
def test_code_counts_by_cudas_rules(codes: tuple[str, ...], *, fires: bool) -> None:
    facts = facts_of("flash-attn-no-blackwell")
    facts = with_files(facts, _file("flash-attn", "2.8.3", gpu_code=Known(codes, "a test")))
    assert bool(list(extension_without_gpu_code(Question(facts, TABLES)))) is fires


def test_one_file_with_code_speaks_for_its_package() -> None:
    """vLLM has parts for Hopper alone beside parts for all: it chooses."""
    facts = facts_of("flash-attn-no-blackwell")
    hopper = _file("vllm", "0.11.0", gpu_code=Known(("sm_90a",), "a test"))
    everywhere = _file("vllm", "0.11.0", gpu_code=Known(("sm_90", "sm_120"), "a test"))
    assert list(extension_without_gpu_code(Question(with_files(facts, hopper, everywhere), TABLES))) == []
    assert len(list(extension_without_gpu_code(Question(with_files(facts, hopper), TABLES)))) == 1


def test_what_was_not_read_is_no_finding() -> None:
    facts = facts_of("flash-attn-no-blackwell")
    unread = Unknown("a test")
    for files in (Known((_file("x", "1", gpu_code=unread, symbols=unread),), "a test"), unread):
        unknown = replace(facts, extensions=replace(facts.extensions, files=files))
        assert list(extension_without_gpu_code(Question(unknown, TABLES))) == []
        assert list(extension_lacks_symbols(Question(unknown, TABLES))) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_ZNK3c106SymInt6sym_neERKS0_", "c10::SymInt::sym_ne (_ZNK3c106SymInt6sym_neERKS0_)"),
        ("_ZTIN3c105ErrorE", "c10::Error (_ZTIN3c105ErrorE)"),
        ("torch_library_impl", "torch_library_impl"),
        ("_ZN9999c", "c (_ZN9999c)"),
    ],
)
def test_a_name_is_spelled_as_people_write_it_and_as_the_loader_prints_it(name: str, said: str) -> None:
    assert spelled(name) == said


@pytest.mark.parametrize(
    ("machine", "way"),
    [
        ("flash-attn-old-strings", wheels("flash-attn==2.7.4.post1", manner=Manner.COMPILED)),
        ("flash-attn-old-strings", RemoveDistributions(("flash-attn",))),
        ("flash-attn-old-strings", wheels("torch==2.9.0+cu128", cuda="cu128")),
        ("flash-attn-no-blackwell", wheels("flash-attn==2.8.3", manner=Manner.COMPILED)),
        ("onnxruntime-of-cuda-12", InstallWheels((Package("onnxruntime-gpu", bounds=">=1.27"),))),
    ],
)
def test_on_paper_a_changed_package_is_no_longer_what_was_read(machine: str, way: InstallWheels) -> None:
    facts = facts_of(machine)
    primary = judge(Question(facts, TABLES), RULES).primary
    assert judge(Question(after_all((way,), facts, TABLES), TABLES), RULES).of(primary) is None


def test_jax_names_the_library_its_bounds_and_torchs_pin() -> None:
    [seen] = framework_wants_newer_library(Question(facts_of("jax-over-torchs-cudnn"), TABLES))
    assert seen.saw == (
        "jax-cuda12-plugin 0.6.0 is built for nvidia-cudnn-cu12<10.0,>=9.8; installed is 9.1.0.70 "
        f"({SITE}); torch requires nvidia-cudnn-cu12==9.1.0.70"
    )
    assert all(version.startswith("2.1") for version in torches(seen))  # 2.10 and later pin cuDNN 9.10
    assert ways_of(seen)[-1] == (RemoveDistributions(("jax-cuda12-pjrt", "jax-cuda12-plugin")),)


def test_taking_a_package_out_is_the_last_of_the_options() -> None:
    for machine in ("flash-attn-old-strings", "flash-attn-no-blackwell", "jax-over-torchs-cudnn"):
        question = Question(facts_of(machine), TABLES)
        options = rank_options(question, judge(question, RULES), Request()).options
        assert [each.keeps for each in options][-1] is Keeps.FEWER, machine
        assert options[0].keeps is not Keeps.FEWER, machine


def test_a_package_that_names_one_torch_is_answered_by_that_torch_and_not_by_a_build() -> None:
    """vLLM's wheels of PyPI are of one CUDA: with torch in that CUDA they load."""
    facts = facts_of("vllm-torch-2-9")
    vllm = next(each for each in facts.companions if each.name == "vllm")
    facts = replace(facts, companions=(replace(vllm, cuda_major=Known(13, "a test")),))
    [seen] = extension_for_other_cuda(Question(facts, TABLES))
    assert torches(seen)
    assert all(
        way.manner is not Manner.COMPILED for ways in ways_of(seen) for way in ways if isinstance(way, InstallWheels)
    )


@pytest.mark.parametrize(
    ("specifier", "installed", "fires"),
    [
        ("==9.3.0.75", "9.1.0.70", True),
        ("==9.3.0.75", "9.10.2.21", False),  # TensorFlow pins one; a newer of the major serves
        (">=9.1,<10", "9.1.0.70", False),
        ("", "9.1.0.70", False),
        (">=9.8", "newest", False),
    ],
)
def test_a_newer_library_serves_and_an_older_one_does_not(specifier: str, installed: str, *, fires: bool) -> None:
    facts = facts_of("jax-over-torchs-cudnn")
    wanted = (Requirement("nvidia-cudnn-cu12", (), specifier, "", "tensorflow"),)
    [plugin] = [each for each in facts.companions if each.gpu_requires]
    facts = replace(
        facts,
        companions=(replace(plugin, name="tensorflow", gpu_requires=wanted),),
        nvidia_wheels=tuple(replace(each, version=installed) for each in facts.nvidia_wheels),
    )
    assert bool(list(framework_wants_newer_library(Question(facts, TABLES)))) is fires


def test_wheels_that_another_package_asks_for_are_not_left_over() -> None:
    facts = facts_of("wheels-left-over")
    [seen] = nvidia_wheels_left_over(Question(facts, TABLES))
    assert "nvidia-cublas-cu12 12.8.4.1 and nvidia-cuda-runtime-cu12 12.8.90" in seen.saw
    [plugin] = [each for each in facts_of("jax-over-torchs-cudnn").companions if each.gpu_requires]
    asked = tuple(Requirement(name, (), "", "", "jax") for name in ("nvidia-cublas-cu12", "nvidia-cuda-runtime-cu12"))
    facts = replace(facts, companions=(*facts.companions, replace(plugin, gpu_requires=asked)))
    assert list(nvidia_wheels_left_over(Question(facts, TABLES))) == []


def test_another_cuda_major_takes_the_wheels_out_first_whose_files_it_writes_over() -> None:
    """nvidia-cudnn-cu12 and -cu13 share a folder: taken out later, pip would delete the files of the other."""
    question = Question(facts_of("jax-over-torchs-cudnn"), TABLES)
    alone = replace(question.facts, companions=())
    wheel = Wheel(TorchVersion.parse("2.11.0"), CudaVersion(13, 0), "")
    first = installed_as(replace(question, facts=alone), wheel)[0]
    assert first == RemoveDistributions(("nvidia-cudnn-cu12",))
    assert all(not isinstance(way, RemoveDistributions) for way in installed_as(question, wheel))  # JAX needs it
    same = Wheel(TorchVersion.parse("2.10.0"), CudaVersion(12, 8), "")
    assert all(not isinstance(way, RemoveDistributions) for way in installed_as(replace(question, facts=alone), same))


def test_jaxs_plugin_follows_jaxlib() -> None:
    [seen] = jax_plugin_of_other_version(Question(facts_of("jax-plugin-newer"), TABLES))
    assert ways_of(seen)[0] == (wheels("jax-cuda12-pjrt==0.9.0.1", "jax-cuda12-plugin==0.9.0.1"),)


def test_of_two_cupys_the_one_of_torchs_cuda_is_kept() -> None:
    facts = _with_distributions(facts_of("flash-attn-no-blackwell"), "cupy-cuda13x==14.2.0", "cupy-cuda12x==13.6.0")
    [seen] = packages_share_a_folder(Question(facts, TABLES))
    again = InstallWheels((Package("cupy-cuda12x", "13.6.0"),), manner=Manner.AGAIN)
    assert ways_of(seen) == [(RemoveDistributions(("cupy-cuda13x",)), again)]


def test_onnxruntime_alone_is_no_finding() -> None:
    facts = _with_distributions(facts_of("flash-attn-no-blackwell"), "onnxruntime==1.23.2")
    assert list(packages_share_a_folder(Question(facts, TABLES))) == []


def test_onnxruntime_of_another_cuda_is_answered_by_the_one_of_torchs() -> None:
    [seen] = framework_finds_no_cuda(Question(facts_of("onnxruntime-of-cuda-12"), TABLES))
    assert ways_of(seen)[0] == (InstallWheels((Package("onnxruntime-gpu", bounds=">=1.27"),)),)
    assert list(framework_needs_torch_first(Question(facts_of("onnxruntime-of-cuda-12"), TABLES))) == []


def test_libraries_that_are_only_in_wheels_are_a_note_without_a_way() -> None:
    diagnosis = judge(Question(facts_of("onnxruntime-before-torch"), TABLES), RULES)
    assert [each.code for each in diagnosis.findings] == ["framework-needs-torch-first"]
    assert diagnosis.primary == ""


def test_another_release_is_offered_whose_own_wheel_has_the_strings_of_this_torch() -> None:
    facts = replay(flash_attn_new_abi().document(), "")
    [seen] = extension_lacks_symbols(Question(facts, TABLES))
    assert ways_of(seen)[0] == (InstallWheels((Package("flash-attn", "2.7.4.post1"),)),)
    other = replace(facts, extensions=replace(facts.extensions, torch_strings=Known(Strings.CXX11, "a test")))
    [seen] = extension_lacks_symbols(Question(other, TABLES))
    assert all("2.7.4.post1" not in str(ways) for ways in ways_of(seen))

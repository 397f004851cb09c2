"""What is said of the packages around torch: which two pins clash, and what is no clash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from firstlight.diagnosis.companion_rules import (
    COMPANION_RULES,
    companion_wants_other_torch,
    companions_disagree,
    duplicate_distributions,
    extension_for_other_cuda,
    extension_for_other_torch,
)
from firstlight.diagnosis.finding import Question, Rule, Seen
from firstlight.diagnosis.project_rules import project_would_undo
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import DuplicateDistribution
from firstlight.facts.extensions import Extension
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.python_environments import EnvironmentKind, ProjectFile
from firstlight.tables import load
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import (
    AskPerson,
    InstallWheels,
    KeepInProject,
    Manner,
    Package,
    RemoveDistributions,
    SetVariables,
    Variable,
    Why,
)
from tests.diagnosis.rule_case import facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known
from tests.diagnosis.wheels import wheels

TABLES = load()
Check = Callable[[Question], Iterator[Seen]]
EXTENSION = Extension(
    package="",
    version=Unknown("x"),
    path="/x/te.so",
    needed=(),
    lacks_libraries=(),
    symbols=Unknown("x"),
    strings=Unknown("x"),
    cuda_major=Unknown("x"),
    gpu_code=Unknown("x"),
)
NEWER = InstallWheels((Package("bitsandbytes", bounds=">2.8.3"),))  # plain, pip would leave the old one
SITE = "/usr/local/lib/python3.12/dist-packages"


def seen(check: Check, facts: Facts) -> list[Seen]:
    return list(check(Question(facts, TABLES)))


def changed(machine: str, *settings: str) -> Facts:
    return override(facts_of(machine), settings)


def twice(facts: Facts, *found: DuplicateDistribution, kind: EnvironmentKind = EnvironmentKind.SYSTEM) -> Facts:
    """The facts with other duplicates in the selected environment."""
    environment = facts.environment
    assert environment is not None
    environments = (replace(environment, duplicates=found, kind=kind), *facts.python.environments[1:])
    return replace(facts, python=replace(facts.python, environments=environments))


def with_lock(facts: Facts, path: str, *torch: str) -> Facts:
    return replace(facts, python=replace(facts.python, project_files=(ProjectFile(path, torch),)))


def test_field_report_000s_set_names_the_pins_that_clash() -> None:
    facts = facts_of("h100-driver-570")
    assert [each.saw for each in seen(companion_wants_other_torch, facts)] == [
        f"torchaudio 2.8.0+cu128 requires torch==2.8.0; installed is 2.9.0+cu130 ({SITE})",
        f"vllm 0.11.0 requires torch==2.8.0; installed is 2.9.0+cu130 ({SITE})",
        f"xformers 0.0.32.post1 requires torch==2.8.0; installed is 2.9.0+cu130 ({SITE})",
    ]
    assert [each.saw for each in seen(companions_disagree, facts)] == [
        f"torch 2.9.0 requires triton==3.5.0; installed is 3.4.0 ({SITE})",
        f"vllm 0.11.0 requires torchvision==0.23.0; installed is 0.24.0+cu130 ({SITE})",
    ]


def test_the_torch_that_all_of_them_want_is_offered_first_and_it_runs_on_driver_570_without_compat() -> None:
    first = seen(companion_wants_other_torch, facts_of("h100-driver-570"))[0]
    torch = ("torch==2.8.0+cu128", "torchvision==0.23.0+cu128", "torchaudio==2.8.0+cu128")
    # and no others for this torch: vLLM's wheels on PyPI are of CUDA 12 and would not load beside cu130
    assert ways_of(first) == [(wheels(*torch, cuda="cu128"),)]


def test_companions_of_the_same_cuda_major_are_all_offered_for_the_torch_that_is_here() -> None:
    first = seen(companion_wants_other_torch, facts_of("vllm-torch-2-9"))[0]
    around = ("torchaudio==2.9.0", "torchvision==0.24.0", "vllm==0.13.0", "xformers==0.0.33.post1")
    assert ways_of(first)[0] == (wheels(*around),)  # it keeps torch, so it comes before the torch of all
    assert len(ways_of(first)) == 2


@pytest.mark.parametrize(
    ("version", "channel", "specifier", "fires"),
    [
        ("2.9.0a0+50eac811a6.nv25.09", "nvidia container or jetson build", "==2.9.0", False),
        ("2.9.0a0+50eac811a6.nv25.09", "nvidia container or jetson build", "==2.8.0", True),
        ("2.12.0a0+gita58677f", "source build", ">=2.12", False),
        ("2.9.0", "release", "==2.9.*", False),
        ("2.9.0", "release", "<2.9", True),
        ("2.10.0.dev20251024+cu130", "nightly", "==2.10.0.dev20251024", False),
        ("2.10.0.dev20251024+cu130", "nightly", "==2.10.0.dev20251023", True),
        ("2.9.0", "release", "@ nonsense", False),
    ],
)
def test_a_requirement_is_met_as_pip_has_it_and_own_builds_count_as_the_release(
    version: str, channel: str, specifier: str, *, fires: bool
) -> None:
    facts = changed("h100-triton-3-4", f"torch.version={version}", f"torch.channel={channel}")
    vllm = next(each for each in facts_of("h100-driver-570").companions if each.name == "vllm")
    wanted = tuple(replace(each, specifier=specifier) for each in vllm.requires if each.name == "torch")
    facts = replace(facts, companions=(replace(vllm, requires=wanted),))
    assert bool(seen(companion_wants_other_torch, facts)) is fires


def test_a_requirement_whose_condition_cannot_be_decided_is_no_clash() -> None:
    facts = facts_of("vllm-torch-2-9")
    companions = tuple(
        replace(each, requires=tuple(replace(one, open_marker="extra == 'x'") for one in each.requires))
        for each in facts.companions
    )
    assert not seen(companion_wants_other_torch, replace(facts, companions=companions))


def test_triton_of_another_torch_is_put_right_by_the_pin() -> None:
    [clash] = seen(companions_disagree, facts_of("h100-triton-3-4"))
    assert clash.saw.startswith("torch 2.9.0 requires triton==3.5.0; installed is 3.4.0")
    assert ways_of(clash) == [(wheels("triton==3.5.0"),)]


def test_flash_attn_for_cuda_12_does_not_load_beside_cu130() -> None:
    [other] = seen(extension_for_other_cuda, facts_of("flash-attn-cu12"))
    record = "/opt/miniconda/envs/comfyui/lib/python3.12/site-packages/flash_attn-2.8.3.dist-info/direct_url.json"
    assert other.saw == (
        f"flash-attn 2.8.3 was built for CUDA 12 ({record}); torch was built with 13.0 "
        "(/opt/miniconda/envs/comfyui/lib/python3.12/site-packages/torch/version.py)"
    )
    assert ways_of(other) == [
        (wheels("flash-attn==2.8.3", manner=Manner.COMPILED),),
        (wheels("torch==2.9.1+cu128", cuda="cu128"),),
        (wheels("torch==2.11.0+cu128", cuda="cu128"),),
    ]
    [torch] = seen(extension_for_other_torch, facts_of("flash-attn-cu12"))
    assert torch.saw == f"flash-attn 2.8.3 was built for torch 2.8 ({record}); installed is 2.9.1+cu130"


def test_cupy_of_another_cuda_major_stands_beside_torch_and_is_no_fault() -> None:
    facts = facts_of("flash-attn-cu12")
    flash = next(each for each in facts.companions if each.name == "flash-attn")
    cupy = replace(
        flash, name="cupy-cuda12x", torch_required=Unknown("does not ask"), built_for_torch=Unknown("names none")
    )
    assert not seen(extension_for_other_cuda, replace(facts, companions=(cupy,)))


def test_bitsandbytes_is_judged_by_the_libraries_it_carries() -> None:
    facts = facts_of("flash-attn-cu12")
    flash = facts.companions[0]
    for majors, fires in (((11, 12), True), ((12, 13), False)):
        carried = replace(flash, name="bitsandbytes", cuda_choices=tuple(CudaVersion(major, 0) for major in majors))
        found = seen(extension_for_other_cuda, replace(facts, companions=(carried,)))
        assert [ways_of(each) for each in found] == ([[(NEWER,)]] if fires else [])


def test_bitsandbytes_wants_the_very_cuda_of_torch() -> None:
    facts = facts_of("flash-attn-cu12")
    assert isinstance(facts.torch, Known)
    torch = replace(facts.torch.value, wheel_cuda=Known(CudaVersion(13, 2), "x"))
    choices = tuple(CudaVersion(*each) for each in ((12, 8), (13, 0), (13, 1), (13, 3)))
    carried = replace(facts.companions[0], name="bitsandbytes", cuda_choices=choices)
    facts = replace(facts, torch=Known(torch, "x"), companions=(carried,))
    [found] = seen(extension_for_other_cuda, facts)
    assert ways_of(found) == [(NEWER,), (SetVariables((Variable("BNB_CUDA_VERSION", "131"),)),)]
    assert "libbitsandbytes_cuda132.so" in found.error


def test_a_package_is_judged_by_its_files_where_its_name_says_nothing_of_cuda() -> None:
    facts = facts_of("flash-attn-cu12")
    flash = facts.companions[0]
    assert isinstance(flash.cuda_major, Known)
    unnamed = replace(flash, name="transformer-engine-torch", cuda_major=Unknown("x"), built_for_cuda=Unknown("x"))
    for needed, major, fires in (
        (("libtorch.so",), 12, True),
        (("libtorch.so",), 13, False),
        (("libc.so.6",), 12, False),
    ):
        file = replace(EXTENSION, package=unnamed.name, needed=needed, cuda_major=Known(major, "te.so"))
        extensions = replace(facts.extensions, files=Known((file,), "x"))
        found = seen(extension_for_other_cuda, replace(facts, companions=(unnamed,), extensions=extensions))
        assert [each.saw.partition(";")[0] for each in found] == (
            [f"{unnamed.name} {unnamed.version} was built for CUDA 12 (te.so)"] if fires else []
        )


def test_the_same_torchvision_in_another_build_is_reinstalled_by_force() -> None:
    facts = facts_of("h100-driver-570")
    vision = next(each for each in facts.companions if each.name == "torchvision")
    other = replace(
        vision, version="0.24.0+cu128", cuda_major=Known(12, "x"), built_for_cuda=Known(CudaVersion(12, 8), "x")
    )
    [found] = seen(extension_for_other_cuda, replace(facts, companions=(other,)))
    assert ways_of(found)[0] == (wheels("torchvision==0.24.0+cu130", cuda="cu130", manner=Manner.AGAIN),)


def test_xformers_own_note_counts_and_a_range_of_its_maker_counts_more() -> None:
    facts = facts_of("vllm-torch-2-9")
    [built] = seen(extension_for_other_torch, facts)
    assert built.saw.startswith("xformers 0.0.32.post1 was built for torch 2.8.0+cu128 (")
    newer = tuple(
        replace(each, torch_required=Known(">=2.8", each.folder)) if each.name == "xformers" else each
        for each in facts.companions
    )
    assert not seen(extension_for_other_torch, replace(facts, companions=newer))


def test_a_patch_release_of_the_same_minor_is_the_same_torch_for_an_extension() -> None:
    assert not seen(extension_for_other_torch, changed("vllm-torch-2-9", "torch.version=2.8.1+cu128"))


def test_two_records_of_torch_in_one_folder_are_named_and_the_one_whose_files_are_there_is_kept() -> None:
    [found] = seen(duplicate_distributions, facts_of("duplicate-torch"))
    site = "/home/user/conda/envs/abj/lib/python3.12/site-packages"
    assert found.saw == f"torch is installed 2 times: 2.6.0 in {site}, 2.8.0 in {site}"
    again = wheels("torch==2.6.0+cu124", "torchvision==0.21.0+cu124", cuda="cu124")
    assert ways_of(found) == [(RemoveDistributions(("torch",), copies=2), again)]


def test_a_package_that_hides_another_as_meant_is_no_duplicate() -> None:
    facts = facts_of("duplicate-torch")
    environment = facts.environment
    assert environment is not None
    own, system = f"{environment.prefix}/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages"
    debian = DuplicateDistribution("numpy", ("2.1.0", "1.26.4"), ("/usr/local/lib/python3.12/dist-packages", system))
    in_venv = DuplicateDistribution("torch", ("2.9.0", "2.8.0"), (own, system))
    same = DuplicateDistribution("torch", ("2.8.0", "2.8.0"), ("/root/.local/lib", system))
    user = DuplicateDistribution("torch", ("2.9.0", "2.8.0"), ("/root/.local/lib", system))
    mixed = DuplicateDistribution("numpy", ("2.1.0", "1.26.4"), (system, system))
    assert not seen(duplicate_distributions, twice(facts, debian, same))
    assert not seen(duplicate_distributions, twice(facts, in_venv, kind=EnvironmentKind.VENV))
    hiding, both = seen(duplicate_distributions, twice(facts, user, mixed))
    theirs = RemoveDistributions(("torch",), folder="/root/.local/lib", version="2.9.0")
    assert ways_of(hiding) == [(theirs,)]  # that of the system stays as it is
    assert ways_of(both) == [(RemoveDistributions(("numpy",), copies=2), wheels("numpy==2.1.0"))]


def test_a_lock_that_holds_another_torch_is_named_with_what_it_holds() -> None:
    [undone] = seen(project_would_undo, facts_of("uv-lock-would-undo"))
    assert undone.saw == (
        "/home/user/sleap-nn/uv.lock fixes torch 2.8.0 or 2.8.0+cpu; installed is torch 2.9.0+cu130 "
        "(/home/user/sleap-nn/.venv/lib/python3.12/site-packages/torch)"
    )
    assert ways_of(undone) == [
        (KeepInProject((Package("torch", "2.9.0+cu130"),), "https://download.pytorch.org/whl/cu130"),),
        (AskPerson("start-programs-with", Why.PROGRAM, of=("uv run --no-sync",)),),
    ]


@pytest.mark.parametrize(
    ("file", "torch", "fires"),
    [
        ("uv.lock", ("2.9.0+cu130",), False),
        ("uv.lock", ("2.9.0", "2.9.0+cu130"), False),  # one entry for each index: uv's own choice
        ("uv.lock", ("2.9.0",), True),  # uv replaces 2.9.0+cu130 by PyPI's 2.9.0
        ("uv.lock", (), True),  # uv sync removes what is not locked
        ("pixi.lock", (), False),
        ("pixi.lock", ("2.9.0 cuda129_py312_h1_300",), False),
        ("pixi.lock", ("2.5.1 cuda126_py312_h1_300",), True),
        ("pyproject.toml", (">=2.8",), False),
        ("pyproject.toml", ("==2.8.0",), True),
        ("pyproject.toml", ("==2.8.0", ">=2.9"), False),
        ("pyproject.toml", (), False),
    ],
)
def test_each_kind_of_project_file_is_read_in_its_own_way(file: str, torch: tuple[str, ...], *, fires: bool) -> None:
    facts = with_lock(facts_of("uv-lock-would-undo"), f"/home/user/sleap-nn/{file}", *torch)
    assert bool(seen(project_would_undo, facts)) is fires


def test_a_lock_of_another_project_does_not_rule_this_environment() -> None:
    facts = facts_of("h100-triton-3-4")
    assert not seen(project_would_undo, with_lock(facts, "/home/user/other/uv.lock", "2.8.0"))


@pytest.mark.parametrize("rule", COMPANION_RULES, ids=lambda rule: rule.code)
def test_a_rule_says_nothing_of_a_machine_of_which_nothing_is_known(rule: Rule) -> None:
    assert not seen(rule.check, nothing_known(facts_of("h100-driver-570")))


@pytest.mark.parametrize("name", ["h100-driver-570", "flash-attn-cu12", "uv-lock-would-undo", "duplicate-torch"])
def test_no_rule_fails_whatever_single_fact_is_missing(name: str) -> None:
    for path, facts in one_less_known(facts_of(name)):
        for rule in COMPANION_RULES:
            for each in seen(rule.check, facts):
                assert "Unknown(" not in each.saw, path
                assert "Unknown(" not in repr(each.answers), path


@pytest.mark.parametrize("name", ["gb10-torch-cu130", "rtx5090-source-build", "h200-compat-stale", "gpu-less"])
def test_a_set_that_fits_has_no_finding(name: str) -> None:
    assert [rule.code for rule in COMPANION_RULES if seen(rule.check, facts_of(name))] == []

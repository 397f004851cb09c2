"""What an option promises, its steps keep: every part of its title, root, and the way back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.ability import Sudo
from firstlight.facts.known import Known, Unknown
from firstlight.plan.extras import Extras
from firstlight.plan.option import Kind, Option, Reversible
from firstlight.plan.options import rank_options
from firstlight.plan.request import Request
from firstlight.plan.step import Step
from firstlight.plan.steps import steps_for
from firstlight.plan.want import parse_want
from firstlight.plan.way_back import index_of
from tests.plan.planning import NAMES, option_of, question_of, ranked_of

_ELSEWHERE = (Kind.MACHINE, Kind.CONTAINER)  # the packages are installed there


def _with_want(machine: str, want: str) -> tuple[Option, ...]:
    question = question_of(machine)
    return rank_options(question, judge(question, RULES), Request(wants=(parse_want(want),))).options


def _typed(steps: tuple[Step, ...]) -> str:
    """Everything that the steps run or write, as one text."""
    commands = (" ".join(argv) for step in steps for argv in step.commands)
    return "\n".join((*commands, *(change.path for step in steps for change in step.files)))


def _keeps(part: str, steps: tuple[Step, ...]) -> bool:
    """Whether steps do what a part of a title says: its packages, folder or variable are in their commands."""
    typed = _typed(steps)
    if part == "remove the second copy":
        return typed.count("uninstall") > 1 or "firstlight doctor" in typed
    if named := re.findall(r"LD_PRELOAD|LD_LIBRARY_PATH|(?<=remove )/\S+|(?<=take )/\S+", part):
        return any(each in typed for each in named)
    if re.match(r"[\w-]+(==|$|,)", part):
        return all(each.partition("==")[0] in typed for each in part.split(", "))
    return any(step.title.startswith(part) for step in steps)


@pytest.mark.parametrize("name", NAMES)
def test_every_and_of_a_title_has_a_step(name: str) -> None:
    question = question_of(name)
    for option in (*ranked_of(name).options, *_with_want(name, "torch==2.9.0+cu130"), *_with_want(name, "torch")):
        steps = steps_for(question, option, Extras())
        for part in (each.partition("; ")[0] for each in option.title.split("; and ")[1:]):
            assert option.kind in _ELSEWHERE or _keeps(part, steps), f"{option.id}: {part}"


def test_a_preloaded_library_is_taken_out_beside_a_compat_library_and_beside_a_wheel() -> None:
    for kind in (Kind.COMPAT, Kind.WHEEL):
        option = next(each for each in ranked_of("h100-spoofed-version").options if each.kind is kind)
        steps = steps_for(question_of("h100-spoofed-version"), option, Extras())
        [unset] = [step for step in steps if ("unset", "LD_PRELOAD") in step.commands]
        assert not unset.needs_root
        assert unset.title.startswith("take the library that is preloaded out of LD_PRELOAD")


def test_both_copies_of_a_package_go_before_another_takes_their_place() -> None:
    [option] = [each for each in _with_want("duplicate-torch", "torch==2.14.1+cu126") if each.kind is Kind.WHEEL]
    [step] = steps_for(question_of("duplicate-torch"), option, Extras())
    assert [argv[3] for argv in step.commands] == ["uninstall", "uninstall", "install"]


def test_a_gpu_whose_log_asks_for_a_reset_is_reset_by_its_number() -> None:
    option = ranked_of("rtx5080-xids").options[0]
    assert option.title.startswith("reset the GPU")
    steps = steps_for(question_of("rtx5080-xids"), option, Extras())
    assert ("sudo", "nvidia-smi", "--gpu-reset", "-i", "0") in [argv for step in steps for argv in step.commands]


def test_where_no_mask_is_set_none_is_unset() -> None:
    [option] = ranked_of("cuda-sees-none").options
    assert option.title == "find out why the driver shows no GPU (by someone who has root here)"
    assert option.needs_root, "reading the kernel's log takes it"


@pytest.mark.parametrize(
    ("name", "root", "reversible"),
    [
        ("wsl2-linux-libcuda", True, Reversible.PARTLY),
        ("container-empty-libcuda", True, Reversible.NO),
        ("cudnn-mix", True, Reversible.PARTLY),
        ("duplicate-torch", False, Reversible.PARTLY),
        ("rtx4090-compat-image", False, Reversible.NO),
        ("h200-compat-stale", False, Reversible.YES),
        ("h100-driver-595-compat-580", True, Reversible.YES),
        ("devices-masked", False, Reversible.YES),
    ],
)
def test_a_removal_says_whether_it_takes_root_and_comes_back(name: str, root: bool, reversible: Reversible) -> None:  # noqa: FBT001 a table of cases
    option = next(each for each in ranked_of(name).options if each.kind is Kind.REMOVE)
    assert (option.needs_root, option.reversible) == (root, reversible)


def test_a_removal_that_takes_root_is_left_to_others_where_there_is_another_way_out_without() -> None:
    question = question_of("container-empty-libcuda")
    ability = replace(question.facts.ability, is_root=False, sudo=Sudo.ABSENT)
    question = replace(question, facts=replace(question.facts, ability=ability))
    ranked = rank_options(question, judge(question, RULES), Request(goal=Goal.INFER))
    [removal] = [each for each in ranked.rejected if each.kind is Kind.REMOVE]
    assert "takes root" in removal.why_not
    [alone] = ranked_of("wsl2-linux-libcuda").options
    assert alone.title.endswith("(by someone who has root here)")


def _install_step(machine: str) -> tuple[Option, Step]:
    option = next(each for each in ranked_of(machine).options if each.kind is Kind.WHEEL)
    [step] = steps_for(question_of(machine), option, Extras())
    return option, step


def test_a_nightly_and_its_triton_come_back_from_the_nightly_index_while_it_has_them() -> None:
    option, step = _install_step("gb10-triton-3-5")
    packages = ("torch==2.10.0.dev20251024+cu130", "pytorch-triton==3.5.0+git7416ffcb")
    index = "https://download.pytorch.org/whl/nightly/cu130"
    assert [argv[3:] for argv in step.undo] == [("install", "--no-deps", *packages, "--index-url", index)]
    assert option.reversible is Reversible.PARTLY
    assert "is a nightly: PyTorch takes those off its index after some weeks" in step.note


def test_a_torch_whose_cuda_is_not_that_of_pypis_wheel_is_not_brought_back_by_pip() -> None:
    option, step = _install_step("centos-7")
    assert [argv[3:] for argv in step.undo] == [("uninstall", "--yes", "torch")]
    assert option.reversible is Reversible.PARTLY
    assert "torch 2.5.1 is there with CUDA 11.8, and PyPI has it with 12.4." in step.note


def test_what_conda_brought_and_what_was_built_elsewhere_comes_from_no_index() -> None:
    question = question_of("h200-compat-stale")
    assert isinstance(question.facts.torch, Known)
    torch = replace(question.facts.torch.value, installer=Known("conda", "INSTALLER"))
    conda = replace(question, facts=replace(question.facts, torch=Known(torch, "test")))
    assert index_of(question, "torch", "2.11.0") == Known("", "no local part")
    assert index_of(conda, "torch", "2.11.0") == Unknown("conda brought torch 2.11.0, and pip has other builds of it")
    built = index_of(question, "torch", "2.10.0a0+b558c986e8.nv25.11")
    assert built == Unknown("torch 2.10.0a0+b558c986e8.nv25.11 is a build of its own, which no index is known to have")


def test_pypis_build_comes_back_after_another_build_of_its_number_is_gone() -> None:
    option = option_of(Kind.WHEEL, "torch==2.11.0+cu128", index="https://download.pytorch.org/whl/cu128")
    [step] = steps_for(question_of("h200-compat-stale"), option, Extras())
    assert step.undo[0][3:] == ("uninstall", "--yes", "torch"), "pip takes 2.11.0+cu128 for 2.11.0 and does nothing"
    assert step.undo[1][3:6] == ("install", "--no-deps", "torch==2.11.0")


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_comes_back_whole_installs_nothing_whose_note_says_otherwise(name: str) -> None:
    lost = re.compile("is a nightly|which no index is known to have|and PyPI has it with|one comes back")
    for option in ranked_of(name).options:
        steps = steps_for(question_of(name), option, Extras())
        assert option.reversible is not Reversible.YES or not any(lost.search(step.note) for step in steps), option.id

"""Plans that our own doctor would reject once they are done, or that contradict each other: none is first any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.plan.option import Kind
from firstlight.plan.options import rank_options
from firstlight.plan.request import Ranked, Request
from firstlight.ways.kinds import (
    BuildModules,
    InstallDriver,
    InstallWheels,
    LoadModules,
    Restart,
    StartKernel,
    UnsetVariables,
    Unwire,
)
from tests.diagnosis.rule_case import facts_of
from tests.plan.planning import TABLES, ranked_of
from tests.plan.retold import faults_of_option, judged_after


def _ranked(facts: Facts) -> tuple[Question, Ranked]:
    question = Question(facts, TABLES)
    return question, rank_options(question, judge(question, RULES), Request())


def _geforce_with_a_compat_library_in_its_path() -> Facts:
    other = ("gpu=NVIDIA GeForce RTX 4090", "brand=5", "capability=8.9", "cuinit=804")
    return override(facts_of("h100-driver-570-compat"), other)


def _v100_with_driver_535() -> Facts:
    return override(facts_of("v100-torch-cu130"), ("driver=535.183.01",))


def _another_torch_by_python_path() -> Facts:
    """A cu130 torch in a folder of PYTHONPATH hides the cu128 one of the environment, which the driver runs."""
    facts = facts_of("h100-driver-570")
    assert isinstance(facts.torch, Known)
    environment = facts.environment
    assert environment is not None
    assert isinstance(facts.python.selected, Known)
    own = tuple(
        replace(each, version="2.9.0+cu128") if each.name == "torch" else each for each in environment.distributions
    )
    environments = list(facts.python.environments)
    environments[facts.python.selected.value] = replace(environment, distributions=own)
    torch = replace(facts.torch.value, found_via="PYTHONPATH", folder="/opt/other/torch")
    python = replace(facts.python, environments=tuple(environments), python_path=("/opt/other",))
    return replace(facts, python=python, torch=replace(facts.torch, value=torch))


@pytest.mark.parametrize(
    "made", [_geforce_with_a_compat_library_in_its_path, _v100_with_driver_535, _another_torch_by_python_path]
)
def test_the_first_plan_is_one_that_doctor_accepts_once_it_is_done(made: object) -> None:
    assert callable(made)
    question, ranked = _ranked(made())
    assert judge(question, RULES).blocked
    first = ranked.options[0]
    left = judged_after(question, first)
    assert left is not None
    assert not left.blocked
    for option in ranked.options:
        assert faults_of_option(question, option) == ()


def test_a_compat_library_that_a_geforce_may_not_use_is_not_kept_beside_another_wheel() -> None:
    _, ranked = _ranked(_geforce_with_a_compat_library_in_its_path())
    first = ranked.options[0]
    assert first.kind is Kind.WHEEL
    assert any(isinstance(way, Unwire) for way in first.ways)
    assert "compat-not-eligible" in first.because
    assert not [option for option in ranked.options if option.kind is Kind.COMPAT]


def test_no_compat_library_is_wired_for_a_torch_without_code_for_the_gpu() -> None:
    _, ranked = _ranked(_v100_with_driver_535())
    first = ranked.options[0]
    assert first.id == "another-wheel:torch-2.9.0+cu126"
    assert [type(way) for way in first.ways] == [InstallWheels]
    assert not [option for option in ranked.options if option.kind is Kind.COMPAT]


def test_a_torch_that_hides_the_good_one_is_taken_away_and_the_good_one_is_left_alone() -> None:
    _, ranked = _ranked(_another_torch_by_python_path())
    assert UnsetVariables(("PYTHONPATH",)) in ranked.options[0].ways
    assert not any(isinstance(way, InstallWheels) and way.package("torch") for way in ranked.options[0].ways)


def test_a_driver_without_modules_gets_them_first_and_another_kernel_or_driver_after_that() -> None:
    first, second, third = ranked_of("a100-no-driver").options
    assert [type(way) for way in first.ways] == [BuildModules, LoadModules]
    assert [type(way) for way in second.ways] == [StartKernel, Restart]
    assert any(isinstance(way, InstallDriver) for way in third.ways)

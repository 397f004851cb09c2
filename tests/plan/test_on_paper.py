"""What options claim, held against the paper: every machine, every option, judged again here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Diagnosis, Goal, Question, Rule, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.known import Known, Unknown
from firstlight.plan.naming import LONGEST_TITLE
from firstlight.plan.option import Option
from firstlight.plan.options import rank_options
from firstlight.plan.paper import MOST_JUDGEMENTS
from firstlight.plan.request import Request
from firstlight.plan.steps import steps_for
from firstlight.ways.effects import after_all
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import BuildFromSource, InstallPackages, InstallWheels, Manner, SetVariables
from firstlight.ways.step import StepKind
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import MACHINES
from tests.plan.planning import NAMES, TABLES, question_of, ranked_of
from tests.plan.retold import faults_of_option, judged_after

ALL = [(name, goal) for name in NAMES for goal in Goal]
both = pytest.mark.parametrize(("name", "goal"), ALL, ids=lambda each: each.value if isinstance(each, Goal) else each)


@both
def test_no_option_claims_what_is_found_again_afterwards(name: str, goal: Goal) -> None:
    question = question_of(name, goal)
    for option in ranked_of(name, goal).options:
        assert faults_of_option(question, option) == (), option.id


def test_the_check_sees_an_option_that_claims_too_much() -> None:
    """A wrong claim, a blocker that is kept quiet, and a finding left out are each found."""
    question = question_of("h100-driver-570")
    wheel = next(each for each in ranked_of("h100-driver-570").options if each.id.startswith("another-wheel"))
    assert wheel.after
    assert faults_of_option(question, replace(wheel, because=(*wheel.because, wheel.after[0])))
    assert faults_of_option(question, replace(wheel, after=wheel.after[1:]))
    assert faults_of_option(question, replace(wheel, ways=(), stays=()))


LACKING = ("cuda-home-unset", "build-tools-missing", "nvcc-major-differs", "toolkit-incomplete", "nvcc-is-wrapper",
           "host-compiler-out-of-range", "glibc-breaks-cuda-headers", "arch-unknown-to-toolkit")  # fmt: skip


@both
def test_what_an_option_compiles_can_be_compiled_when_its_turn_comes_or_it_says_what_lacks(
    name: str, goal: Goal
) -> None:
    """By `doctor --goal build-extensions` on the machine as the ways before the build leave it."""
    question = question_of(name, goal)
    for option in ranked_of(name, goal).options:
        place = next((place for place, way in enumerate(option.ways) if _compiles(way)), None)
        if place is None:
            continue
        facts = after_all(option.ways[:place], question.facts, TABLES)
        if isinstance(option.ways[place], BuildFromSource):  # of torch: the one that is there says nothing of the next
            facts = replace(facts, torch=Unknown("about to be built"))
        lacks = judge(replace(question, facts=facts, goal=Goal.BUILD_EXTENSIONS), RULES)
        found = {code for code in LACKING if (each := lacks.of(code)) and each.severity is Severity.BLOCKS}
        assert found <= set(option.stays), option.id


def _compiles(way: Way) -> bool:
    return isinstance(way, BuildFromSource) or (isinstance(way, InstallWheels) and way.manner is Manner.COMPILED)


@pytest.mark.parametrize("name", ["flash-attn-no-blackwell", "flash-attn-cu12", "flash-attn-old-strings"])
def test_a_toolkit_and_a_compiler_are_brought_before_something_is_compiled(name: str) -> None:
    first = ranked_of(name).options[0]
    assert _compiles(first.ways[-1])
    assert any(isinstance(way, SetVariables) and way.variables[0].name == "CUDA_HOME" for way in first.ways)
    assert InstallPackages(("build-essential",), brings=("/usr/bin/g++",)) in first.ways
    assert isinstance(first.cost.download_bytes, Known)
    assert first.cost.download_bytes.value > 2e8
    steps = steps_for(question_of(name), first, Extras())
    home = next(way.variables[0].value for way in first.ways if isinstance(way, SetVariables))
    assert f"CUDA_HOME={home}" in steps[-1].commands[-1]
    assert not any(step.kind is StepKind.MANUAL for step in steps)


@both
def test_the_first_option_leaves_no_blocker_wherever_any_leaves_none(name: str, goal: Goal) -> None:
    options = ranked_of(name, goal).options
    assert [len(each.stays) for each in options] == sorted(len(each.stays) for each in options)
    if options and options[0].stays:
        assert all(each.stays for each in options)


@both
def test_carried_out_twice_an_option_changes_nothing_the_second_time(name: str, goal: Goal) -> None:
    for option in ranked_of(name, goal).options:
        once = after_all(option.ways, question_of(name, goal).facts, TABLES)
        assert after_all(option.ways, once, TABLES) == once, option.id


@both
def test_once_the_first_option_is_done_the_planner_has_nothing_left_to_block(name: str, goal: Goal) -> None:
    """The same machine on paper is planned for again: what the first option left is all that is left to answer."""
    question = question_of(name, goal)
    for option in ranked_of(name, goal).options[:1]:
        left = judged_after(question, option)
        if left is None or option.by_hand:
            continue
        blocking = {each.code for each in left.findings if each.severity is Severity.BLOCKS and not each.caused_by}
        assert blocking <= set(option.stays), option.id


@pytest.mark.parametrize("name", NAMES)
def test_at_most_200_judgements_are_spent_and_twice_the_same_comes_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = Goal(json.loads((MACHINES / name / "expected.json").read_text())["goal"])
    spent = 0

    def counted(question: Question, rules: tuple[Rule, ...]) -> Diagnosis:
        nonlocal spent
        spent += 1
        return judge(question, rules)

    question = question_of(name, goal)
    diagnosis = judge(question, RULES)
    monkeypatch.setattr("firstlight.plan.paper.judge", counted)
    monkeypatch.setattr("firstlight.plan.compiling.judge", counted)
    again = rank_options(question, diagnosis, Request(goal=goal))
    assert spent <= MOST_JUDGEMENTS
    assert again == ranked_of(name, goal), "planned twice, it is not the same"


@both
def test_nothing_is_left_untried(name: str, goal: Goal) -> None:
    assert ranked_of(name, goal).untried == 0


def test_what_no_judgement_was_left_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstlight.plan.paper.MOST_JUDGEMENTS", 3)
    question = question_of("h100-driver-570")
    ranked = rank_options(question, judge(question, RULES), Request())
    assert ranked.untried > 0
    assert len(ranked.options) <= 3


@both
def test_titles_are_short_orders_without_alternatives_and_no_two_are_the_same(name: str, goal: Goal) -> None:
    titles = [option.title for option in ranked_of(name, goal).options]
    assert len(titles) == len(set(titles))
    for title in titles:
        assert 0 < len(title) <= LONGEST_TITLE
        assert " or " not in title
        assert not title.endswith(".") or title.endswith("...")


def test_each_step_names_the_finding_that_it_answers() -> None:
    question = question_of("v100-torch-cu130", Goal.BUILD_EXTENSIONS)
    option = ranked_of("v100-torch-cu130", Goal.BUILD_EXTENSIONS).options[0]
    steps = steps_for(question, option, Extras())
    told = {step.title: step.because for step in steps}
    assert told["install torch 2.9.0+cu126"] == "arch-not-in-wheel"
    assert told["install build-essential"] == "build-tools-missing"
    assert {step.because for step in steps} == {"arch-not-in-wheel", "cuda-home-unset", "build-tools-missing"}


def _first(name: str) -> Option:
    return ranked_of(name).options[0]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("gh200-torch-pypi", "another-wheel:torch-2.9.0+cu128"),
        ("rocm-torch-on-nvidia", "another-wheel:torch-2.9.0+cu130"),
        ("v100-torch-cu130", "another-wheel:torch-2.9.0+cu126"),
    ],
)
def test_the_release_that_is_installed_is_kept_in_another_build(name: str, first: str) -> None:
    assert _first(name).id == first


def test_what_follows_a_torch_is_not_brought_in_the_release_of_another_before_a_build_of_torch() -> None:
    """A toolkit was told with the newest torch and its torchvision; the torch was left out, the other stayed."""
    question = question_of("orin-torch-pypi")
    beside = question_of("duplicate-torch").facts.companions
    assert [each.name for each in beside] == ["torchvision"]
    [built] = [option for option in _options(replace(question, facts=replace(question.facts, companions=beside)))
               if any(isinstance(way, BuildFromSource) for way in option.ways)]  # fmt: skip
    before = [way for way in built.ways if isinstance(way, InstallWheels)]
    assert not any(way.package("torchvision") for way in before)


def _options(question: Question) -> tuple[Option, ...]:
    return rank_options(question, judge(question, RULES), Request()).options

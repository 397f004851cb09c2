"""The options of every recorded machine: committed, derived anew, the same in whatever order facts come."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.plan.option import Kind
from firstlight.plan.options import Ranked, Request, rank_options
from firstlight.report.layout import plain
from firstlight.report.options_json import options_document
from firstlight.report.options_text import options_list, options_text
from firstlight.ways.platform import platform_of
from tests.diagnosis.rule_case import facts_of
from tests.plan.planning import TABLES, ranked_of
from tools.make_options import NAMES, derived, stored_in

SCHEMAS = Path(__file__).parents[2] / "src" / "firstlight" / "schemas"
SCHEMA = json.loads((SCHEMAS / "options-2.json").read_text())
_FITS = jsonschema.Draft202012Validator(SCHEMA)
T = TypeVar("T")


def _ranked(facts: Facts, goal: Goal = Goal.INFER) -> Ranked:
    question = Question(facts, TABLES, goal)
    return rank_options(question, judge(question, RULES), Request(goal=goal))


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_options_are_what_the_machine_gives(name: str) -> None:
    assert derived(name) == json.loads(stored_in(name).read_text()), "run: python -m tools.generate options"


def test_the_speed_is_told_only_where_minutes_rest_on_it() -> None:
    assert "at a download rate of" in plain(options_list(ranked_of("h100-driver-570"), (), most=9))
    unknown = ranked_of("vgpu-old-host")
    assert all(isinstance(option.cost.minutes, Unknown) for option in unknown.options)
    assert "at a download rate of" not in plain(options_list(unknown, (), most=9))


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_rests_on_and_every_rejection_why(name: str) -> None:
    ranked = ranked_of(name)
    _FITS.validate(options_document(ranked))
    for option in ranked.options:
        assert option.feasible
        assert option.why_not == ""
        assert option.title
        assert option.proof_by, option.id
    for option in ranked.rejected:
        assert not option.feasible
        assert option.why_not, option.id
    ids = [option.id for option in (*ranked.options, *ranked.rejected)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_with_a_fault_has_a_way_out_and_a_healthy_one_is_left_alone(name: str) -> None:
    facts = facts_of(name)
    for goal in Goal:
        ranked = ranked_of(name, goal)
        assert ranked.options, goal
        kinds = [option.kind for option in ranked.options]
        healthy = not judge(Question(facts, TABLES, goal), RULES).primary
        assert (kinds == [Kind.NOTHING]) == healthy, goal
        assert healthy or Kind.NOTHING not in kinds


def _shuffled(items: tuple[T, ...], luck: random.Random) -> tuple[T, ...]:
    return tuple(luck.sample(items, len(items)))


def _in_another_order(facts: Facts, luck: random.Random) -> Facts:
    return replace(
        facts,
        gpus=replace(facts.gpus, devices=_shuffled(facts.gpus.devices, luck), pci=_shuffled(facts.gpus.pci, luck)),
        compat=_shuffled(facts.compat, luck),
        libcuda=replace(
            facts.libcuda,
            candidates=_shuffled(facts.libcuda.candidates, luck),
            devices=_shuffled(facts.libcuda.devices, luck),
            out_of_reach=_shuffled(facts.libcuda.out_of_reach, luck),
        ),
        toolkits=replace(facts.toolkits, toolkits=_shuffled(facts.toolkits.toolkits, luck)),
        companions=_shuffled(facts.companions, luck),
        nvidia_wheels=_shuffled(facts.nvidia_wheels, luck),
        container=replace(facts.container, providers=_shuffled(facts.container.providers, luck)),
        ability=replace(facts.ability, prefixes=_shuffled(facts.ability.prefixes, luck)),
    )


def _essence(ranked: Ranked) -> list[dict[str, Any]]:
    """The options without what lists things in the order in which they were found."""
    return [{**each, "unsure": len(each["unsure"])} for each in options_document(ranked)["options"]]


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(NAMES), goal=st.sampled_from(Goal), luck=st.randoms(use_true_random=False))
def test_the_ranking_does_not_depend_on_the_order_of_facts(name: str, goal: Goal, luck: random.Random) -> None:
    facts = facts_of(name)
    assert _essence(_ranked(_in_another_order(facts, luck), goal)) == _essence(ranked_of(name, goal))


@pytest.mark.parametrize("name", NAMES)
def test_a_driver_that_runs_cuda_13_is_never_given_a_compat_library(name: str) -> None:
    facts = facts_of(name)
    kernel = getattr(facts.driver.kernel_version, "value", None)
    if kernel is not None and kernel.branch >= 580:
        for goal in Goal:
            assert not [each for each in ranked_of(name, goal).options if each.kind is Kind.COMPAT]


@pytest.mark.parametrize("name", NAMES)
def test_an_option_is_one_line_for_doctor_and_everything_is_in_the_long_form(name: str) -> None:
    ranked = ranked_of(name)
    short = plain(options_list(ranked, (), most=99)).strip("\n").splitlines()
    costs = [each.cost for each in ranked.options if isinstance(each.cost.minutes, Known)]
    assert len([line for line in short if "MB/s" in line]) == any(isinstance(c.download_rate, Known) for c in costs)
    numbered = [line for line in short if re.match(r" {1,2}\d{1,2}\. ", line)]
    assert len(numbered) == len(ranked.options)
    assert all(len(line) <= 110 for line in short)
    whole = plain(options_text(ranked, platform_of(facts_of(name))))
    for option in ranked.options:
        assert f"[{option.id}]" in whole
    for option in ranked.rejected:
        assert "".join(option.title.split()) in "".join(whole.split())
    assert ("\norder " in whole) == (len(ranked.options) > 1)


def test_doctors_document_holds_options_in_the_same_form() -> None:
    diagnosis = json.loads((SCHEMAS / "diagnosis-2.json").read_text())
    for part in ("OptionShown", "way", "Amount"):
        assert diagnosis["$defs"][part] == SCHEMA["$defs"][part]

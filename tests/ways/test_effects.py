"""The machine on paper: every way, carried out on every recorded machine, and what it changes."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.tables import load
from firstlight.ways.effects import after
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.ways.samples import SAMPLES, VARIANTS

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))


@pytest.mark.parametrize("name", NAMES)
def test_carried_out_twice_a_way_changes_nothing_the_second_time(name: str) -> None:
    facts = facts_of(name)
    for way in (*SAMPLES, *VARIANTS):
        once = after(way, facts, TABLES)
        assert after(way, once, TABLES) == once, way


@pytest.mark.parametrize("goal", [Goal.INFER, Goal.KERNELS])
@pytest.mark.parametrize("name", NAMES)
def test_so_do_the_ways_that_the_rules_give_on_that_machine(name: str, goal: Goal) -> None:
    facts = facts_of(name)
    findings = judge(Question(facts, TABLES, goal), RULES).findings
    for chain in (answer for finding in findings for answer in finding.answers):
        after_chain = facts
        for way in chain.ways:
            after_chain = after(way, after_chain, TABLES)
            assert after(way, after_chain, TABLES) == after_chain, way

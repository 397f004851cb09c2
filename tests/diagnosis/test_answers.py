"""Every answer of every rule on every machine: of the declared kinds, with short orders and no alternatives in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from firstlight.diagnosis.finding import Goal, Question, Rule, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.tables import load
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson
from firstlight.ways.way import Chain
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.diagnosis.unknown_facts import one_less_known

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
MOST = 70  # characters of an order, so that it stands on one line


@cache
def _answers(name: str) -> tuple[tuple[Rule, Chain], ...]:
    """Every answer on a machine, for every goal, with its rule."""
    return tuple(dict.fromkeys(_each(name)))


def _each(name: str) -> Iterator[tuple[Rule, Chain]]:
    for goal in Goal:
        for rule in RULES:
            for seen in rule.check(Question(facts_of(name), TABLES, goal)):
                yield from ((rule, answer) for answer in seen.answers)


def _asked(name: str) -> Iterator[AskPerson]:
    for _, answer in _answers(name):
        yield from (way for way in answer.ways if isinstance(way, AskPerson))


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_declares_every_kind_of_way_that_it_yields(name: str) -> None:
    for rule, answer in _answers(name):
        for way in answer.ways:
            assert isinstance(way, rule.ways), f"{rule.code} yields {type(way).__name__} and does not declare it"


@pytest.mark.parametrize("name", NAMES)
def test_an_order_is_short_and_holds_no_alternative(name: str) -> None:
    orders = [words_asked(asked) for asked in _asked(name)] + [
        answer.title for _, answer in _answers(name) if answer.title
    ]
    for order in orders:
        assert len(order) <= MOST, order
        assert not order.endswith("."), order
        assert " or " not in f" {order} ", order


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_has_ways_unless_it_says_why_it_cannot_work(name: str) -> None:
    for rule, answer in _answers(name):
        assert bool(answer.ways) is not bool(answer.why_not), rule.code
        assert len(set(answer.ways)) == len(answer.ways), rule.code


@pytest.mark.parametrize("name", NAMES)
def test_what_a_person_types_is_an_argv(name: str) -> None:
    for asked in _asked(name):
        for command in asked.commands:
            assert all(command), command
            assert " " not in command[0], command


@pytest.mark.parametrize("name", NAMES)
def test_what_blocks_has_an_answer(name: str) -> None:
    for finding in judge(Question(facts_of(name), TABLES), RULES).findings:
        if finding.severity is Severity.BLOCKS:
            assert finding.answers, finding.code


@pytest.mark.parametrize("name", ["h200-compat-stale", "h100-driver-570", "secure-boot", "small-pod"])
def test_the_kinds_are_declared_whatever_single_fact_is_missing(name: str) -> None:
    for path, facts in one_less_known(facts_of(name)):
        for rule in RULES:
            answers = (answer for seen in rule.check(Question(facts, TABLES)) for answer in seen.answers)
            assert all(isinstance(way, rule.ways) for answer in answers for way in answer.ways), (rule.code, path)

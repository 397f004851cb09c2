"""What a person is asked to do says whether it takes root, and what it may break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.ability import Sudo
from firstlight.plan.options import rank_options
from firstlight.plan.request import Request
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.traits import reversible, risk
from firstlight.ways.way import Reversible, Risk
from tests.plan.planning import NAMES, question_of, ranked_of


def _asked(question: Question) -> Iterator[AskPerson]:
    for finding in judge(question, RULES).findings:
        for answer in finding.answers:
            yield from (way for way in answer.ways if isinstance(way, AskPerson))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_typed_with_sudo_takes_root_whoever_types_it(name: str) -> None:
    question = question_of(name)
    ability = question.facts.ability
    by_root = replace(question.facts, ability=replace(ability, is_root=True, uid=0))
    by_user = replace(question.facts, ability=replace(ability, is_root=False, uid=1000, sudo=Sudo.ADMIN_GROUP))
    for facts in (by_root, by_user):
        for way in _asked(replace(question, facts=facts)):
            if any("sudo" in argv[:1] for argv in way.commands):
                assert way.as_root, way
    plain = {words_asked(way): way.as_root for way in _asked(replace(question, facts=by_root))}
    for way in _asked(replace(question, facts=by_user)):
        assert plain.get(words_asked(way), way.as_root) == way.as_root


@pytest.mark.parametrize("name", ["a100-mig-empty", "cuda-sees-none", "gpu-fell-off", "docker-lost-gpus"])
def test_an_option_says_root_where_a_command_for_you_takes_it(name: str) -> None:
    asking = [each for each in ranked_of(name).options if any(isinstance(way, AskPerson) for way in each.ways)]
    assert asking
    assert all(option.needs_root for option in asking)


def test_the_root_of_the_host_is_not_missing_here() -> None:
    question = question_of("rtx4090-compat-image")
    ability = replace(question.facts.ability, is_root=False, uid=1000, sudo=Sudo.ABSENT)
    question = replace(question, facts=replace(question.facts, ability=ability))
    ranked = rank_options(question, judge(question, RULES), Request(goal=Goal.INFER))
    by_host = [each for each in ranked.options if any(isinstance(way, AskPerson) for way in each.ways)]
    assert [each.needs_root for each in by_host] == [True]


@pytest.mark.parametrize(
    ("way", "expected", "back"),
    [
        (AskPerson("start-elsewhere", Why.PROGRAM), Risk.NONE, Reversible.YES),
        (AskPerson("look-at-cooling", Why.COOLING), Risk.NONE, Reversible.YES),
        (AskPerson("look-for-empty-libraries", Why.DECISION, cures=False), Risk.NONE, Reversible.YES),
        (AskPerson("edit-by-hand", Why.DECISION, of=("remove what takes the room",)), Risk.MEDIUM, Reversible.NO),
        (AskPerson("edit-by-hand", Why.HARDWARE, of=("power the machine off and on",)), Risk.HIGH, Reversible.NO),
        (AskPerson("turn-secure-boot-off", Why.FIRMWARE), Risk.HIGH, Reversible.NO),
        (AskPerson("edit-by-hand", Why.HOST, of=("give the host another driver",)), Risk.HIGH, Reversible.NO),
        (
            AskPerson("edit-by-hand", Why.HOST, cures=False, of=("link the nodes on the host",)),
            Risk.HIGH,
            Reversible.YES,
        ),
    ],
)
def test_the_risk_of_asking_is_that_of_what_is_asked(way: AskPerson, expected: Risk, back: Reversible) -> None:
    assert risk(way) is expected
    assert reversible(way) is back


@pytest.mark.parametrize("name", ["h100-overheated", "pytorch-checkout-shadows"])
def test_a_look_and_another_start_break_nothing(name: str) -> None:
    first = ranked_of(name).options[0]
    assert (first.risk, first.reversible) == (Risk.NONE, Reversible.YES)

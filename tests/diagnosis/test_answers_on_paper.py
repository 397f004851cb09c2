"""Every answer about driver, place, health and compat that firstlight carries out takes its finding away on paper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstlight.diagnosis.compat_rules import COMPAT_RULES
from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.fleet_rules import FLEET_RULES
from firstlight.diagnosis.health_rules import HEALTH_RULES
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.place_rules import PLACE_RULES
from firstlight.diagnosis.rules import RULES
from firstlight.tables import load
from firstlight.ways.effects import after_all
from firstlight.ways.kinds import AskPerson, OtherMachine, Scope, SetVariables, UseImage
from firstlight.ways.way import Chain, Way
from tests.diagnosis.rule_case import MACHINES, facts_of

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
CODES = {rule.code for rule in (*PLACE_RULES, *FLEET_RULES, *DRIVER_RULES, *COMPAT_RULES, *HEALTH_RULES)}
STAYS = ("mixed-gpus",)  # whatever is set, the GPUs stay of two kinds


def _tried(name: str, goal: Goal) -> Iterator[tuple[Finding, Chain]]:
    """The answers to what stands alone, but for those that a person carries out, elsewhere, or for one program."""
    for finding in judge(Question(facts_of(name), TABLES, goal), RULES).findings:
        if finding.caused_by or finding.code not in CODES.difference(STAYS):
            continue
        for answer in finding.answers:
            if any(map(_acts, answer.ways)) and not any(map(_is_by_hand, answer.ways)):
                yield finding, answer


def _acts(way: Way) -> bool:
    return not isinstance(way, AskPerson)


def _is_by_hand(way: Way) -> bool:
    if isinstance(way, (OtherMachine, UseImage)):
        return True  # another place, of which the paper says nothing
    if isinstance(way, SetVariables):
        return way.scope is Scope.PROGRAM
    return isinstance(way, AskPerson) and way.cures


@pytest.mark.parametrize("goal", [Goal.INFER, Goal.KERNELS], ids=lambda goal: goal.value)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_takes_its_finding_away(name: str, goal: Goal) -> None:
    for finding, answer in _tried(name, goal):
        facts = after_all(answer.ways, facts_of(name), TABLES)
        left = judge(Question(facts, TABLES, goal), RULES)
        assert left.of(finding.code) is None, answer.ways


def test_enough_answers_are_tried() -> None:
    tried = [(finding.code, answer) for name in NAMES for finding, answer in _tried(name, Goal.INFER)]
    assert len(tried) >= 80
    assert len({code for code, _ in tried}) >= 30

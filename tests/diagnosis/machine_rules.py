"""What the rules about place, driver and health find on a machine."""

from __future__ import annotations

from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.health_rules import HEALTH_RULES
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.place_rules import PLACE_RULES
from firstlight.facts.collect import Facts
from firstlight.tables import load
from firstlight.ways.kinds import AskPerson
from firstlight.ways.way import Way

TABLES = load()
RULES = (*PLACE_RULES, *DRIVER_RULES, *HEALTH_RULES)


def finding_on(facts: Facts, code: str, goal: Goal = Goal.INFER) -> Finding:
    finding = judge(Question(facts, TABLES, goal), RULES).of(code)
    assert finding is not None, f"{code} did not fire"
    return finding


def asked_of(ways: tuple[Way, ...]) -> AskPerson:
    asked = ways[0]
    assert isinstance(asked, AskPerson)
    return asked


def codes_on(facts: Facts) -> list[str]:
    return [finding.code for finding in judge(Question(facts, TABLES), RULES).findings]

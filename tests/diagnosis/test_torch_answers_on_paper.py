"""Every answer about torch, its companions, libraries and builds takes its finding away, tried on paper."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.build_rules import BUILD_RULES
from firstlight.diagnosis.companion_rules import COMPANION_RULES
from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.library_rules import LIBRARY_RULES
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.torch_rules import TORCH_RULES
from firstlight.tables import load
from firstlight.ways.effects import after_all
from firstlight.ways.kinds import AskPerson, OtherMachine, UseImage
from firstlight.ways.way import Chain
from tests.diagnosis.all_cases import CASES
from tests.diagnosis.rule_case import MACHINES, RuleCase, facts_of

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
CODES = {rule.code for rule in (*TORCH_RULES, *COMPANION_RULES, *LIBRARY_RULES, *BUILD_RULES)}
ELSEWHERE = (AskPerson, OtherMachine, UseImage)  # nothing of it shows in the facts of this machine


def _tried(finding: Finding) -> list[Chain]:
    here = [each for each in finding.answers if not any(isinstance(way, ELSEWHERE) for way in each.ways)]
    return [each for each in here if not each.why_not]


@pytest.mark.parametrize("goal", [Goal.INFER, Goal.BUILD_EXTENSIONS])
@pytest.mark.parametrize("name", NAMES)
def test_a_finding_is_gone_once_one_of_its_answers_is_carried_out(name: str, goal: Goal) -> None:
    facts = facts_of(name)
    for finding in judge(Question(facts, TABLES, goal), RULES).findings:
        if finding.code not in CODES or finding.caused_by:  # a symptom may stay until its cause is answered
            continue
        for answer in _tried(finding):
            after = judge(Question(after_all(answer.ways, facts, TABLES), TABLES, goal), RULES)
            assert after.of(finding.code) is None, answer


@pytest.mark.parametrize("case", [case for case in CASES if case.code in CODES], ids=lambda case: case.code)
def test_the_machine_that_shows_a_rule_is_rid_of_it_too(case: RuleCase) -> None:
    facts = case.facts()
    finding = judge(Question(facts, TABLES, case.goal, case.wants), RULES).of(case.code)
    assert finding is not None
    for answer in _tried(finding):
        changed = after_all(answer.ways, facts, TABLES)
        assert judge(Question(changed, TABLES, case.goal, case.wants), RULES).of(case.code) is None, answer

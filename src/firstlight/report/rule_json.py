"""A rule, and why it did not fire here, as JSON documents (schemas firstlight.rule/2 and firstlight.why-not/2)."""

from __future__ import annotations

from firstlight import __version__
from firstlight.diagnosis.finding import Diagnosis, Rule
from firstlight.facts.collect import Facts
from firstlight.report.doctor_json import finding_document
from firstlight.report.doctor_text import facts_of_rule
from firstlight.report.documents.making import shown
from firstlight.report.documents.planning import RuleDocument, RuleShown, WhyNotDocument
from firstlight.ways.way import type_name


def rule_document(rule: Rule) -> RuleDocument:
    """When a rule fires and what that means."""
    return {"schema": "firstlight.rule/2", "made_by": f"firstlight {__version__}", **rule_words(rule)}


def why_not_document(rule: Rule, facts: Facts, diagnosis: Diagnosis) -> WhyNotDocument:
    """The condition of a rule beside what this machine has; `finding` is null where it did not fire."""
    fired = diagnosis.of(rule.code)
    return {
        "schema": "firstlight.why-not/2",
        "made_by": f"firstlight {__version__}",
        "collected_at": facts.collected_at,
        "rule": rule_words(rule),
        "fired": fired is not None,
        "finding": None if fired is None else finding_document(fired, diagnosis),
        "here": facts_of_rule(rule, facts),
    }


def rule_words(rule: Rule) -> RuleShown:
    """All that is known of a rule, as JSON."""
    for_goals = {goal.value: severity.value for goal, severity in rule.for_goals}
    return shown(RuleShown, rule, for_goals=for_goals, ways=list(dict.fromkeys(map(type_name, rule.ways))))

"""A rule, and why it did not fire here, as JSON documents (schemas firstlight.rule/1 and firstlight.why-not/1)."""

from __future__ import annotations

from typing import Any

from firstlight import __version__
from firstlight.diagnosis.finding import Diagnosis, Rule
from firstlight.facts.collect import Facts
from firstlight.report.doctor_json import finding_document
from firstlight.report.doctor_text import facts_of_rule


def rule_document(rule: Rule) -> dict[str, Any]:
    """When a rule fires and what that means."""
    return {"schema": "firstlight.rule/1", "made_by": f"firstlight {__version__}", **_words(rule)}


def why_not_document(rule: Rule, facts: Facts, diagnosis: Diagnosis) -> dict[str, Any]:
    """The condition of a rule beside what this machine has; `finding` is null where it did not fire."""
    fired = diagnosis.of(rule.code)
    return {
        "schema": "firstlight.why-not/1",
        "made_by": f"firstlight {__version__}",
        "collected_at": facts.collected_at,
        "rule": _words(rule),
        "fired": fired is not None,
        "finding": None if fired is None else finding_document(fired, diagnosis),
        "here": facts_of_rule(rule, facts),
    }


def _words(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "severity": rule.severity.value,
        "for_goals": {goal.value: severity.value for goal, severity in rule.for_goals},
        "title": rule.title,
        "fires_when": rule.fires_when,
        "means": rule.means,
        "error": rule.error,
        "looks_at": list(rule.looks_at),
        "remedies": list(rule.remedies),
        "source": rule.source,
    }

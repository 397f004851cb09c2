"""Run the rules, fold symptoms under their cause, name the primary finding. Pure."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.answers import combined
from firstlight.diagnosis.finding import WORST_FIRST, Diagnosis, Finding, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import is_wanted


def judge(question: Question, rules: tuple[Rule, ...]) -> Diagnosis:
    """Every finding of the rules on one machine; symptoms carry the code of their cause.

    The primary finding is the first, in rule order, of the worst that no other finding explains; never a note.
    """
    fired = [_finding(rule, question, seen) for rule in rules if (seen := tuple(rule.check(question)))]
    causes = _causes({finding.code for finding in fired}, rules)
    findings = [
        replace(finding, caused_by=causes.get(finding.code, ""), severity=_worst(finding, fired, causes))
        for finding in fired
    ]
    order = {rule.code: (rule.depth, index) for index, rule in enumerate(rules)}
    findings.sort(key=lambda each: (WORST_FIRST.index(each.severity), order[each.code]))
    standing = [each for each in findings if not each.caused_by and each.severity is not Severity.NOTE]
    return Diagnosis(tuple(findings), standing[0].code if standing else "")


def _worst(finding: Finding, fired: list[Finding], causes: dict[str, str]) -> Severity:
    """How bad a finding is: as bad as the worst of its symptoms."""
    symptoms = (each.severity for each in fired if causes.get(each.code) == finding.code)
    return min((finding.severity, *symptoms), key=WORST_FIRST.index)


def _finding(rule: Rule, question: Question, seen: tuple[Seen, ...]) -> Finding:
    usual = rule.severity_for(question)
    return Finding(
        code=rule.code,
        severity=min((each.severity or usual for each in seen), key=WORST_FIRST.index),
        title=rule.wanted_title if rule.wanted_title and is_wanted(question.facts) else rule.title,
        saw=tuple(dict.fromkeys(each.saw for each in seen)),
        means=next((each.means for each in seen if each.means), rule.means),
        error=next((each.error for each in seen if each.error), rule.error),
        answers=combined(rule, seen),
        source=rule.source,
        lines=tuple(dict.fromkeys(line for each in seen for line in each.lines)),
    )


def _causes(fired: set[str], rules: tuple[Rule, ...]) -> dict[str, str]:
    """Symptom -> the top cause that fired; of two rules that explain each other the more basic one stands."""
    direct: dict[str, str] = {}
    for rule in sorted(rules, key=lambda each: each.depth):
        if rule.code not in fired:
            continue
        for symptom in rule.explains:
            if symptom in fired and _top(direct, rule.code) != symptom:
                direct.setdefault(symptom, rule.code)
    return {symptom: _top(direct, symptom) for symptom in direct}


def _top(direct: dict[str, str], code: str) -> str:
    while code in direct:
        code = direct[code]
    return code

"""Which findings of a machine an error text belongs to: the judge's word on it, so that both lead to one way out."""

from __future__ import annotations

from firstlight.diagnosis.explain import Explained, explain_text
from firstlight.diagnosis.finding import Diagnosis, Finding, Rule
from firstlight.diagnosis.observed import container
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Unseen:
    """A check that could not look, and why: Unseen('xid-seen', 'dmesg: not permitted')."""

    code: str
    why: str


def not_looked_at(facts: Facts, rules: tuple[Rule, ...]) -> tuple[Unseen, ...]:
    """Of these rules, those that cannot say whether it is so on this machine."""
    found = (Unseen(rule.code, why) for rule in rules if (why := _why_not_looked(facts, rule)))
    return tuple(found)


def _why_not_looked(facts: Facts, rule: Rule) -> str:
    if any(not _unknown(facts, path) for path in rule.settled_by):
        return ""
    around = container(facts)
    if rule.of_host and around is not None:
        return f"it is the host's, and this is inside {around.value.value}"
    return next((why for path in rule.needs if (why := _unknown(facts, path))), "")


def _unknown(facts: Facts, path: str) -> str:
    """Why a fact is not known, e.g. of 'torch'; '' where it is."""
    at: object = facts
    for name in path.split("."):
        at = getattr(at.value if isinstance(at, Known) else at, name)
        if isinstance(at, Unknown):
            return at.reason
    return ""


def shown_here(explained: Explained, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """The causes on this machine of what a text says, the primary one first; () where nothing of it shows here.

    A finding goes with a text where its row names it, or where the error that the finding leads to is the same one.
    """
    codes = {each.signature.code for each in explained.explanations}
    related = {code for each in explained.explanations for code in each.signature.related}
    found = [each for each in diagnosis.findings if each.code in related or codes & _said_by(each)]
    causes = dict.fromkeys(each.caused_by or each.code for each in found)
    standing = [finding for code in causes if (finding := diagnosis.of(code)) is not None]
    return tuple(sorted(standing, key=lambda each: each.code != diagnosis.primary))


def _said_by(finding: Finding) -> set[str]:
    """The signatures of the error text that a finding leads to."""
    return {each.signature.code for each in explain_text(finding.error).explanations} if finding.error else set()

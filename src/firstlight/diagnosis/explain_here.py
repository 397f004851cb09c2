"""Which findings of a machine an error text belongs to: the judge's word on it, so that both lead to one way out."""

from __future__ import annotations

from firstlight.diagnosis.explain import Explained, explain_text
from firstlight.diagnosis.finding import Diagnosis, Finding


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

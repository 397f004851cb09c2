"""The rules as a list: what `firstlight rules` prints, and its JSON document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.diagnosis.finding import WORST_FIRST, Rule
from firstlight.numerals import counted
from firstlight.report.layout import labelled
from firstlight.report.rule_json import rule_words

if TYPE_CHECKING:
    from firstlight.report.documents.planning import RulesDocument

_GAP = 2


def rules_text(rules: tuple[Rule, ...]) -> str:
    """Code and title of every rule, the worst first and among these the most basic first."""
    widest = max(len(rule.code) for rule in rules) + _GAP
    blocks = []
    for severity in WORST_FIRST:
        mine = sorted((rule for rule in rules if rule.severity is severity), key=lambda rule: rule.depth)
        rows = "".join(labelled(f"  {rule.code}", (rule.title,), label_width=widest + 2) for rule in mine)
        blocks += [f"{severity.value}: {counted(len(mine), 'rule')}, the most basic first\n{rows}"] if mine else []
    return "\n".join(blocks) + "\nWhen one fires, what it means and the error it leads to:\n  firstlight rules CODE\n"


def rules_document(rules: tuple[Rule, ...]) -> RulesDocument:
    """The same with all that is known of each rule (schema firstlight.rules/1)."""
    counts = Counter(rule.severity for rule in rules)
    return {
        "schema": "firstlight.rules/1",
        "made_by": f"firstlight {__version__}",
        "counts": {severity.value: counts[severity] for severity in WORST_FIRST},
        "rules": [rule_words(rule) for rule in rules],
    }

"""Options as JSON (schema firstlight.options/2); doctor's document holds the same form of an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.facts.known import Fact, Known, Origin
from firstlight.plan.option import Option
from firstlight.plan.request import Ranked
from firstlight.records import encode
from firstlight.report.ways_json import way_document

if TYPE_CHECKING:
    from firstlight.report.documents.planning import Amount, OptionsDocument, OptionShown

SCHEMA = "firstlight.options/2"


def options_document(ranked: Ranked) -> OptionsDocument:
    """All options, best first, the rejected ones with their reasons, the rule, and wants that clash."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "rule": ranked.rule,
        "options": [option_document(option) for option in ranked.options],
        "rejected": [option_document(option) for option in ranked.rejected],
        "impossible": ranked.impossible,
        "untried": ranked.untried,
        "refused": encode(ranked.refused),
    }


def option_document(option: Option) -> OptionShown:
    """One option; an amount that is not known is null, with the reason beside it."""
    cost = option.cost
    return {
        "id": option.id,
        "kind": option.kind.value,
        "title": option.title,
        "ways": [way_document(way) for way in option.ways],
        "because": list(option.because),
        "stays": list(option.stays),
        "after": list(option.after),
        "unsure": list(option.unsure),
        "only_for": option.only_for,
        "proof": option.proof.value,
        "proof_by": option.proof_by,
        "keeps": option.keeps.value,
        "satisfies": list(option.satisfies),
        "leaves_out": list(option.leaves_out),
        "minutes": amount_document(cost.minutes),
        "download_bytes": amount_document(cost.download_bytes),
        "disk_bytes": amount_document(cost.disk_bytes),
        "money": amount_document(cost.money),
        "needs_root": option.needs_root,
        "reversible": option.reversible.value,
        "risk": option.risk.value,
        "feasible": option.feasible,
        "why_not": option.why_not,
    }


def amount_document(amount: Fact[int] | Fact[float]) -> Amount:
    """A number with where it is from, or null with the reason; `assumed` where nobody measured or stated it."""
    if isinstance(amount, Known):
        return {"value": amount.value, "from": amount.seen_in, "assumed": amount.origin is not Origin.SEEN}
    return {"value": None, "from": amount.reason, "assumed": False}

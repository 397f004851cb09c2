"""Options as JSON (schema firstlight.options/2); doctor's document holds the same form of an option."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Origin
from firstlight.plan.option import Option
from firstlight.plan.request import Ranked
from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.planning import Amount, OptionsDocument, OptionShown
from firstlight.report.ways_json import way_document

SCHEMA = "firstlight.options/2"


def options_document(ranked: Ranked) -> OptionsDocument:
    """All options, best first, the rejected ones with their reasons, the rule, and wants that clash."""
    return headed(
        OptionsDocument,
        SCHEMA,
        ranked,
        options=[option_document(option) for option in ranked.options],
        rejected=[option_document(option) for option in ranked.rejected],
    )


def option_document(option: Option) -> OptionShown:
    """One option; an amount that is not known is null, with the reason beside it."""
    costs = {
        name: amount_document(getattr(option.cost, name))
        for name in ("minutes", "download_bytes", "disk_bytes", "money")
    }
    return shown(OptionShown, option, ways=[way_document(way) for way in option.ways], **costs)


def amount_document(amount: Fact[int] | Fact[float]) -> Amount:
    """A number with where it is from, or null with the reason; `assumed` where nobody measured or stated it."""
    if isinstance(amount, Known):
        return {"value": amount.value, "from": amount.seen_in, "assumed": amount.origin is not Origin.SEEN}
    return {"value": None, "from": amount.reason, "assumed": False}

"""Options as JSON (schema firstlight.options/1); doctor's document holds the same form of an option."""

from __future__ import annotations

from typing import Any

from firstlight import __version__
from firstlight.facts.known import Fact, Known
from firstlight.plan.option import Option
from firstlight.plan.request import Ranked

SCHEMA = "firstlight.options/1"


def options_document(ranked: Ranked) -> dict[str, Any]:
    """All options, best first, the rejected ones with their reasons, the rule, and wants that clash."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "rule": ranked.rule,
        "options": [option_document(option) for option in ranked.options],
        "rejected": [option_document(option) for option in ranked.rejected],
        "impossible": ranked.impossible,
        "refused": [
            {"first": each.first, "second": each.second, "said_by": each.said_by, "sentence": each.sentence}
            for each in ranked.refused
        ],
    }


def option_document(option: Option) -> dict[str, Any]:
    """One option; an amount that is not known is null, with the reason beside it."""
    cost = option.cost
    return {
        "id": option.id,
        "kind": option.kind.value,
        "title": option.title,
        "because": list(option.because),
        "proof": option.proof.value,
        "proof_by": option.proof_by,
        "satisfies": list(option.satisfies),
        "leaves_out": list(option.leaves_out),
        "minutes": _amount(cost.minutes),
        "download_bytes": _amount(cost.download_bytes),
        "disk_bytes": _amount(cost.disk_bytes),
        "money": _amount(cost.money),
        "needs_root": option.needs_root,
        "reversible": option.reversible.value,
        "risk": option.risk.value,
        "feasible": option.feasible,
        "why_not": option.why_not,
        "brings": list(option.brings),
        "index": option.index,
        "folder": option.folder,
    }


def _amount(amount: Fact[int] | Fact[float]) -> dict[str, Any]:
    if isinstance(amount, Known):
        return {"value": amount.value, "from": amount.seen_in}
    return {"value": None, "from": amount.reason}

"""Ways as JSON: {"type": "install-wheels", "packages": [...]}, made from the types alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight.records import encode
from firstlight.ways.way import Chain, Way, type_name

if TYPE_CHECKING:
    from firstlight.report.documents.planning import AnswerShown


def way_document(way: Way) -> dict[str, Any]:
    """One way with its type and all its arguments."""
    return {"type": type_name(type(way)), **encode(way)}


def chain_document(chain: Chain) -> AnswerShown:
    """One answer to a finding: its ways in order, or why it does not work here."""
    return {
        "ways": [way_document(way) for way in chain.ways],
        "proof": None if chain.proof is None else chain.proof.value,
        "proof_by": chain.proof_by,
        "title": chain.title,
        "why_not": chain.why_not,
    }

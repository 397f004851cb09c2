"""A document of `firstlight verify --json` read back, alone or inside one of `firstlight apply --json`."""

from __future__ import annotations

import json
from typing import Any

from firstlight.errors import BadInput
from firstlight.records import decode, hints
from firstlight.report.apply_json import APPLY
from firstlight.report.handover import CheckRead, Proof
from firstlight.report.verify_json import SCHEMA

_ACCEPTED = "what `firstlight verify --json` or `firstlight apply --json` printed"


def proof_of(text: str, where: str) -> tuple[Proof, dict[str, Any]]:
    """The proof and the document it is in; BadInput says what is wrong with a text that is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: not JSON; accepted: {_ACCEPTED}. Was the file cut short?") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == APPLY:
        document = document.get("verify")
        if document is None:
            raise BadInput(
                f"{where}: that run of apply was not followed by a proof; make one: firstlight verify --json"
            )
        schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        shown = ascii(schema)[:60] if isinstance(schema, str) else "missing"
        raise BadInput(f"{where}: schema is {shown}; accepted: {SCHEMA}, {_ACCEPTED}")
    return decode(Proof, _known(document), where), document


def _known(document: dict[str, Any]) -> dict[str, Any]:
    """The fields that a proof has; those of a later version are passed over."""
    found = {name: document[name] for name in hints(Proof) if name in document}
    results = found.get("results")
    if isinstance(results, list):
        found["results"] = [
            {name: each[name] for name in hints(CheckRead) if name in each} if isinstance(each, dict) else each
            for each in results
        ]
    return found

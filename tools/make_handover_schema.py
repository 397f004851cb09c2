"""The schema handover-1, from the types of the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firstlight.facts.schema import object_of
from firstlight.report.handover import SCHEMA, Handover
from tools.generate import SCHEMAS, as_json


def made() -> dict[Path, str]:
    """The schema with its place."""
    return {SCHEMAS / "handover-1.json": as_json(schema())}


def schema() -> dict[str, Any]:
    """JSON Schema of what `firstlight handover --json` prints."""
    definitions: dict[str, Any] = {}
    top = object_of(Handover, definitions)
    first = {"schema": {"const": SCHEMA}, "made_by": {"type": "string"}, "file": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What is handed over with a machine",
        **top,
        "properties": {**first, **top["properties"]},
        "required": [*first, *top["required"]],
        "$defs": dict(sorted(definitions.items())),
    }

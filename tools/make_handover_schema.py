"""Write the schema handover-1 from the types of the document, or check it (--check)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from firstlight.facts.schema import object_of
from firstlight.report.handover import SCHEMA, Handover

PATH = Path(__file__).parents[1] / "src" / "firstlight" / "schemas" / "handover-1.json"


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


def main() -> int:
    text = json.dumps(schema(), indent=1) + "\n"
    if "--check" not in sys.argv:
        PATH.write_text(text)
        return 0
    if PATH.read_text() == text:
        return 0
    print("handover-1.json: not what the types give; run python -m tools.make_handover_schema")
    return 1


if __name__ == "__main__":
    sys.exit(main())

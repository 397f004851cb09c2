"""Write the schemas lock-1 and check-1 from the types of the documents, or check them (--check)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from firstlight.facts.schema import object_of
from firstlight.lock.stack import LockedClass
from firstlight.lock.writing import SCHEMA as LOCK
from firstlight.report.check import SCHEMA as CHECK
from firstlight.report.check import Check
from firstlight.report.lock_hold_text import HoldShown

FOLDER = Path(__file__).parents[1] / "src" / "firstlight" / "schemas"
_TEXT = {"type": "string"}
DOCUMENTS: dict[str, tuple[str, str, type, tuple[str, ...]]] = {
    "lock-1.json": ("What was locked of a machine", LOCK, LockedClass, ("file", "digest")),
    "check-1.json": ("What has changed since the lock", CHECK, Check, ()),
}


def schema(name: str) -> dict[str, Any]:
    """JSON Schema of what `firstlight lock --json` or `firstlight check --json` prints."""
    title, const, kind, more = DOCUMENTS[name]
    definitions: dict[str, Any] = {}
    top = object_of(kind, definitions)
    first = {"schema": {"const": const}, "made_by": _TEXT, **dict.fromkeys(more, _TEXT)}
    held = {"hold": object_of(HoldShown, definitions)} if kind is LockedClass else {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        "properties": {**first, **top["properties"], **held},
        "required": [*first, *top["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def main() -> int:
    for name in DOCUMENTS:
        text = json.dumps(schema(name), indent=1) + "\n"
        path = FOLDER / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{name}: not what the types give; run python -m tools.make_lock_schemas")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

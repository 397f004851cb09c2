"""The schemas lock-1 and check-1, from the types of the documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firstlight.facts.schema import object_of
from firstlight.lock.stack import LockedClass
from firstlight.lock.writing import SCHEMA as LOCK
from firstlight.report.check import SCHEMA as CHECK
from firstlight.report.check import Check
from firstlight.report.lock_hold_text import HoldShown
from tools.generate import SCHEMAS, as_json

_TEXT = {"type": "string"}
DOCUMENTS: dict[str, tuple[str, str, type, tuple[str, ...]]] = {
    "lock-1.json": ("What was locked of a machine", LOCK, LockedClass, ("file", "digest")),
    "check-1.json": ("What has changed since the lock", CHECK, Check, ()),
}


def made() -> dict[Path, str]:
    """Each schema with its place."""
    return {SCHEMAS / name: as_json(schema(name)) for name in DOCUMENTS}


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

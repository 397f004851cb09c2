"""The schema facts-1, from the types of facts."""

from __future__ import annotations

from pathlib import Path

from firstlight.facts.schema import facts_schema
from tools.generate import SCHEMAS, as_json


def made() -> dict[Path, str]:
    """The schema with its place."""
    return {SCHEMAS / "facts-1.json": as_json(facts_schema())}

"""The JSON Schema of the facts document, made from the fact types."""

from __future__ import annotations

import enum
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin

from firstlight.facts.codec import VERSION_TYPES, fact_type, hints, is_fact
from firstlight.facts.collect import Facts
from firstlight.facts.document import SCHEMA

_SCALARS = {str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"}}


def facts_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `firstlight facts --json` prints."""
    definitions: dict[str, Any] = {}
    top = object_of(Facts, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What a GPU machine is, as seen by firstlight",
        **top,
        "properties": {
            "schema": {"const": SCHEMA},
            "made_by": {"type": "string"},
            **top["properties"],
        },
        "required": ["schema", "made_by", *top["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def object_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a dataclass, with those it holds put into the definitions."""
    properties = {name: schema_of(each, definitions) for name, each in hints(kind).items()}
    out: dict[str, Any] = {"type": "object"}
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        out["description"] = kind.__doc__.strip().partition("\n")[0]
    return {**out, "properties": properties, "required": list(properties), "additionalProperties": False}


def schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type; dataclasses are put into the definitions."""
    if is_fact(kind):
        known = {"value": schema_of(fact_type(kind), definitions), "seen_in": {"type": "string"}}
        return {
            "oneOf": [
                {
                    "type": "object",
                    "properties": known,
                    "required": ["value", "seen_in"],
                    "additionalProperties": False,
                },
                _unknown(definitions),
            ]
        }
    if get_origin(kind) is tuple:
        return {"type": "array", "items": schema_of(get_args(kind)[0], definitions)}
    if kind in VERSION_TYPES:
        return {"type": "string", "description": kind.__doc__.strip().partition("\n")[0]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [item.value for item in kind]}
    if is_dataclass(kind):
        name = kind.__name__ if isinstance(kind, type) else ""
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = object_of(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    return dict(_SCALARS[kind])


def _unknown(definitions: dict[str, Any]) -> dict[str, Any]:
    definitions["Unknown"] = {
        "type": "object",
        "description": "What could not be learned, and why.",
        "properties": {"unknown": {"type": "string"}},
        "required": ["unknown"],
        "additionalProperties": False,
    }
    return {"$ref": "#/$defs/Unknown"}

"""Whether a document of others fits one of our schemas: the part of JSON Schema that they use, and nothing else."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = (
    "$ref",
    "$defs",
    "minimum",
    "type",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "oneOf",
)
KNOWN = frozenset(("$schema", "title", "description", *_WORDS))


@functools.cache
def schema_named(name: str) -> dict[str, Any]:
    """A schema of ours, e.g. "apply-1"."""
    found: dict[str, Any] = json.loads((files("firstlight") / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def faults(
    document: Any, schema: dict[str, Any], where: str = "it", *, whole: dict[str, Any] | None = None
) -> Iterator[str]:
    """What does not fit, e.g. "it.run is no integer"; nothing where all fits. `whole` has the $defs that it names."""
    whole = schema if whole is None else whole
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "const" in schema and document != schema["const"]:
        yield f"{where} is not {schema['const']!a}"
    if "enum" in schema and document not in schema["enum"]:
        yield f"{where} is none of {schema['enum']!a}"
    if "oneOf" in schema and sum(not any(faults(document, each, where, whole=whole)) for each in schema["oneOf"]) != 1:
        yield f"{where} is none of the kinds that are accepted there"
    if "type" in schema and not _is_a(document, schema["type"]):
        yield f"{where} is no {schema['type']}"
    elif "minimum" in schema and isinstance(document, int | float) and not document >= schema["minimum"]:
        yield f"{where} is below {schema['minimum']}"
    elif isinstance(document, dict):
        yield from _in_object(document, schema, where, whole)
    elif isinstance(document, list) and "items" in schema:
        for number, each in enumerate(document):
            yield from faults(each, schema["items"], f"{where}[{number}]", whole=whole)


def _in_object(document: dict[str, Any], schema: dict[str, Any], where: str, whole: dict[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in document:
            yield f"{where} has no {name}"
    for name, value in document.items():
        if name in properties:
            yield from faults(value, properties[name], f"{where}.{name}", whole=whole)
        elif schema.get("additionalProperties") is False:
            yield f"{where} has {name[:40]!a}, which is not accepted"


def _is_a(document: Any, given: str | list[str]) -> bool:
    names = [given] if isinstance(given, str) else given
    if isinstance(document, bool):
        return "boolean" in names
    return any(isinstance(document, _TYPES[name]) for name in names)

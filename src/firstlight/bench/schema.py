"""The JSON Schemas of what bench writes, made from the types of the records."""

from __future__ import annotations

import enum
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin

from firstlight.bench.claim import Remark
from firstlight.bench.codec import field_types, is_pairs, optional_of
from firstlight.bench.compare import Comparison
from firstlight.bench.results import SCHEMA, LimitResult, RunResult
from firstlight.bench.statistics import Change

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS = {str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"}}
_TEXT = {"type": "string"}


def bench_schema() -> dict[str, Any]:
    """JSON Schema of a result file of `firstlight bench`; readers pass over keys they do not know."""
    definitions: dict[str, Any] = {}
    top = _object(RunResult, definitions)
    return _document("One run of firstlight bench", top, {"schema": {"const": SCHEMA}}, definitions)


def compare_schema() -> dict[str, Any]:
    """JSON Schema of what `firstlight bench compare --json` prints."""
    definitions: dict[str, Any] = {}
    top = _object(Comparison, definitions)
    run = {
        "type": "object",
        "properties": {
            "id": _TEXT,
            "started": _TEXT,
            "gpus": {"type": "array", "items": _TEXT},
            "torch": _or_null(_TEXT),
            "driver": _or_null(_TEXT),
            "passes": {"type": "integer"},
        },
        "required": ["id", "started", "gpus", "torch", "driver", "passes"],
    }
    words = [change.value for change in Change]
    first = {
        "schema": {"const": "firstlight.compare/1"},
        "made_by": _TEXT,
        "exit_code": {"enum": [0, 1, 3]},
        "comparable": {"type": "boolean"},
        "counts": {"type": "object", "properties": {word: {"type": "integer"} for word in words}, "required": words},
        "base": run,
        "new": run,
    }
    top["properties"] = {name: each for name, each in top["properties"].items() if name not in first}
    return _document("Two runs of firstlight bench, compared", top, first, definitions)


def claim_schema() -> dict[str, Any]:
    """JSON Schema of what `firstlight bench check-claim --json` prints."""
    definitions: dict[str, Any] = {}
    number, whole, flag = {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
    claim = {
        **dict.fromkeys(("case", "shape", "dtype", "peaks"), _TEXT),
        **dict.fromkeys(("gpu", "link"), _or_null(_TEXT)),
        **dict.fromkeys(("ms", "tflops", "gbps"), _or_null(number)),
        "saturates": flag,
    }
    counted = {
        **dict.fromkeys(("time_s", "tflops", "gbps"), number),
        **dict.fromkeys(("flops", "dense_flops", "bytes"), whole),
        **dict.fromkeys(("flops_model", "bytes_model"), _TEXT),
        "limit": _schema(LimitResult, definitions),
    }
    first = {
        "schema": {"const": "firstlight.claim/1"},
        "made_by": _TEXT,
        "claim": {"type": "object", "properties": claim, "required": list(claim)},
        "can_be_true": _or_null(flag),
        "remarks": {"type": "array", "items": _schema(Remark, definitions)},
        "counted": {"type": "object", "properties": counted, "required": list(counted)},
    }
    return _document("Whether a claimed number can be true", {"properties": {}, "required": []}, first, definitions)


def _document(title: str, top: dict[str, Any], first: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    required = [*first, *(name for name in top["required"] if name not in first)]
    properties = {**first, **top["properties"]}
    return {
        "$schema": _DRAFT,
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _schema(each, definitions) for name, each in field_types(kind).items()}
    required = [field.name for field in fields(kind) if field.default is MISSING]
    description = str(kind.__doc__).strip().partition("\n")[0]
    return {"type": "object", "description": description, "properties": properties, "required": required}


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if (inner := optional_of(kind)) is not None:
        return _or_null(_schema(inner, definitions))
    if is_pairs(kind):
        value = get_args(get_args(kind)[0])[1]
        return {"type": "object", "additionalProperties": _schema(value, definitions)}
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if items[-1] is Ellipsis:
            return {"type": "array", "items": _schema(items[0], definitions)}
        each = [_schema(item, definitions) for item in items]
        return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [item.value for item in kind]}
    if isinstance(kind, type) and is_dataclass(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return dict(_SCALARS[kind])


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}

"""The parts of schemas that are made from types: ways, answers, findings, options and amounts."""

from __future__ import annotations

import enum
import inspect
import json
from pathlib import Path
from typing import Any, get_args

from firstlight.diagnosis.finding import Severity
from firstlight.facts.codec import hints
from firstlight.facts.schema import schema_of
from firstlight.plan.option import Keeps, Kind
from firstlight.ways import kinds
from firstlight.ways.step import Condition, FileChange, Step
from firstlight.ways.way import Proof, Reversible, Risk, Way, type_name
from tools.generate import SCHEMAS, as_json

TYPES = tuple(
    sorted(
        (each for _, each in inspect.getmembers(kinds, inspect.isclass) if issubclass(each, Way) and each is not Way),
        key=type_name,
    )
)
_TEXT, _FLAG = {"type": "string"}, {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}
_AMOUNT = {"$ref": "#/$defs/amount"}
_WAYS = {"type": "array", "items": {"$ref": "#/$defs/way"}}


def made() -> dict[Path, str]:
    """Each schema with its place."""
    return {stored_at(name): as_json(current(name)) for name in HOLDS}


def stored(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((stored_at(name)).read_text())
    return document


def current(name: str) -> dict[str, Any]:
    """The stored schema with the definitions that follow from the types, made anew."""
    document = stored(name)
    made = {
        "way": _way, "way_type": _way_type, "answer": _answer, "finding": _finding, "option": _option,
        "amount": _amount,
    }  # fmt: skip
    own = {key: value for key, value in document.get("$defs", {}).items() if key not in (*made, *_arguments())}
    for key, kind in (("step", Step), ("condition", Condition), ("file", FileChange)):
        if key in own:
            own[key] = _with_fields(own[key], kind)
    shared = {key: make() for key, make in made.items() if key in HOLDS[name]}
    return {**document, "$defs": {**own, **shared, **(_arguments() if "way" in HOLDS[name] else {})}}


NUMBERS = {"lint": 3}  # of the others 2


def stored_at(name: str) -> Path:
    """Where the schema of a document lies."""
    return SCHEMAS / f"{name}-{NUMBERS.get(name, 2)}.json"


HOLDS = {
    "options": ("option", "way", "amount"),
    "diagnosis": ("finding", "answer", "option", "way", "amount"),
    "plan": ("option", "way", "amount"),
    "why-not": ("finding", "answer", "way"),
    "explain": ("way_type", "answer", "way"),
    "lint": ("way",),
}


def _with_fields(stored_one: dict[str, Any], kind: type) -> dict[str, Any]:
    """The definition with every field of the type: what is said of one by hand stays, its kinds are those there are."""
    properties = stored_one["properties"]
    for name, each in hints(kind).items():
        if name in ("back", "awaited"):  # a reader gets the first as `undo`; the other is apply's own
            continue
        if isinstance(each, type) and issubclass(each, enum.Enum):
            properties[name] = _values(each)
        elif name not in properties:
            properties[name] = _argument(each, {})
    return {**stored_one, "properties": properties, "required": list(properties)}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object", **more, "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


def _values(kind: type[enum.Enum]) -> dict[str, Any]:
    return {"enum": [each.value for each in kind]}


def _said(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "description": description}


def _way() -> dict[str, Any]:
    return {"description": "What is done, with its arguments.", "oneOf": [_of_type(kind) for kind in TYPES]}


def _way_type() -> dict[str, Any]:
    return _said("A type of way, without arguments.", {"enum": [type_name(kind) for kind in TYPES]})


def _of_type(kind: type[Way]) -> dict[str, Any]:
    properties = {"type": {"const": type_name(kind)}}
    properties |= {name: _argument(each, {}) for name, each in hints(kind).items()}
    return _object(properties, description=(kind.__doc__ or "").strip().partition("\n")[0])


def _arguments() -> dict[str, Any]:
    """The definitions of what arguments are made of, e.g. Package."""
    found: dict[str, Any] = {}
    for kind in TYPES:
        for each in hints(kind).values():
            _argument(each, found)
    return dict(sorted(found.items()))


def _argument(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    options = get_args(kind)
    if type(None) not in options:
        return schema_of(kind, definitions)
    return {"oneOf": [*(schema_of(each, definitions) for each in options if each is not type(None)), {"type": "null"}]}


def _answer() -> dict[str, Any]:
    return _object(
        {
            "ways": _said("In order; empty where it does not work here.", _WAYS),
            "proof": {"enum": [*(each.value for each in Proof), None]},
            "proof_by": _TEXT,
            "title": _said("Empty where the ways say enough.", _TEXT),
            "why_not": _said("Why it does not work here; empty where it does.", _TEXT),
        }
    )


def _finding() -> dict[str, Any]:
    return _object(
        {
            "code": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)+$"},
            "severity": _values(Severity),
            "primary": _FLAG,
            "caused_by": {"type": ["string", "null"], "description": "Code of the finding it is a symptom of."},
            "title": _TEXT,
            "saw": {**_TEXTS, "minItems": 1},
            "means": _TEXT,
            "error": _said("The text the user meets; empty where nothing fails at once.", _TEXT),
            "answers": {
                "type": "array",
                "items": {"$ref": "#/$defs/answer"},
                "description": "Best first; those that do not work here come last, with the reason.",
            },
            "source": _TEXT,
        }
    )


def _option() -> dict[str, Any]:
    return _object(
        {
            "id": {"type": "string", "pattern": "^[a-z-]+:\\S"},
            "kind": _values(Kind),
            "title": {"type": "string", "minLength": 1, "maxLength": 70},
            "ways": _said("In the order they are carried out.", _WAYS),
            "because": _said("Codes of the findings that are gone afterwards.", _TEXTS),
            "stays": _said("Codes of the findings that still block afterwards.", _TEXTS),
            "after": _said("Codes of everything that is found afterwards, on paper.", _TEXTS),
            "unsure": _said("Paths of the facts that only running it can tell.", _TEXTS),
            "only_for": _said("Whom it reaches, where that is not every program, e.g. login shells.", _TEXT),
            "proof": _values(Proof),
            "proof_by": _TEXT,
            "keeps": _said("How much of what is installed stays.", _values(Keeps)),
            "satisfies": _TEXTS,
            "leaves_out": _said("What does not hold afterwards, each with why.", _TEXTS),
            "minutes": _AMOUNT,
            "download_bytes": _AMOUNT,
            "disk_bytes": _AMOUNT,
            "money": _AMOUNT,
            "needs_root": _FLAG,
            "reversible": _values(Reversible),
            "risk": _values(Risk),
            "feasible": _FLAG,
            "why_not": _TEXT,
        }
    )


def _amount() -> dict[str, Any]:
    return _object(
        {
            "value": {"type": ["number", "null"], "minimum": 0, "description": "null = not known."},
            "from": _said("Where the number is from, or why it is not known.", _TEXT),
            "assumed": _said("Whether it rests on something that nobody measured or stated, e.g. a speed.", _FLAG),
        }
    )

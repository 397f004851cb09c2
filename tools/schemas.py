"""JSON Schema (draft 2020-12) of a document, from its type: a record, a TypedDict, and what they hold.

What is said of a class is the first line of its docstring, what is said of a field the comment behind it.
`Annotated[int, {"minimum": 0}]` adds words of JSON Schema that a type has not; `Annotated[str, Severity]` is the text
of an enum's value.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from firstlight.records import VERSION_TYPES, fact_type, hints, is_fact, is_pairs
from firstlight.ways import kinds
from firstlight.ways.way import Way, type_name

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_BEHIND = re.compile(r"^    (\w+): .*?  # (?!noqa|type:|fmt:)(.+)$", re.MULTILINE)
_BEFORE = re.compile(r"^((?:    # .+\n)+)    (\w+): ", re.MULTILINE)
WAYS = tuple(
    sorted(
        (each for _, each in inspect.getmembers(kinds, inspect.isclass) if issubclass(each, Way) and each is not Way),
        key=type_name,
    )
)


@dataclass(frozen=True, slots=True)
class Into:
    """Where definitions go, and whether a reader passes over keys that it does not know."""

    definitions: dict[str, Any]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """What one command prints: the schema it names, a title, its type, and what stands before and after its fields."""

    schema: str
    title: str
    kind: Any  # a type; a tuple of types where it is one of several
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)  # not there in every one
    is_open: bool = False  # readers pass over keys that they do not know

    @property
    def file(self) -> str:
        """The name of its file, e.g. facts-1."""
        return self.schema.removeprefix("firstlight.").replace("/", "-")


def schema_of_document(document: Document) -> dict[str, Any]:
    """The schema that belongs to a document."""
    into = Into({}, document.is_open)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": document.title}
    if isinstance(document.kind, tuple):  # one of several
        kinds = [{"$ref": f"#/$defs/{each.__name__}"} for each in document.kind]
        for each in document.kind:
            into.definitions[each.__name__] = _object(each, into)
            into.definitions[each.__name__]["properties"]["schema"] = {"const": document.schema}
        return {**head, "oneOf": kinds, "$defs": dict(sorted(into.definitions.items()))}
    top = _object(document.kind, into)
    first = {"schema": {"const": document.schema}}
    first |= {name: schema_of(each, into) for name, each in document.before.items()}
    last = {name: schema_of(each, into) for name, each in document.after.items()}
    return {
        **head,
        **top,
        "properties": {**first, **{name: each for name, each in top["properties"].items() if name != "schema"}, **last},
        "required": [*first, *(name for name in top["required"] if name != "schema")],
        "$defs": dict(sorted(into.definitions.items())),
    }


def schema_of(kind: Any, into: Into) -> dict[str, Any]:
    """The schema of one type; what has a name of its own is put into the definitions."""
    origin, args = get_origin(kind), get_args(kind)
    if is_fact(kind):
        known = _closed({"value": schema_of(fact_type(kind), into), "seen_in": {"type": "string"}})
        into.definitions["Unknown"] = _unknown()
        return {"oneOf": [known, {"$ref": "#/$defs/Unknown"}]}
    if kind == Annotated[str, Way]:
        return _named("way_type", lambda _: {"description": "A type of way.", "enum": list(map(type_name, WAYS))}, into)
    if origin is Annotated:
        return schema_of(args[1], into) if isinstance(args[1], type) else {**schema_of(args[0], into), **args[1]}
    if origin in (Union, types.UnionType):
        return _one_of([schema_of(each, into) for each in args])
    if is_pairs(kind) or origin is dict:
        name, value = get_args(args[0]) if is_pairs(kind) else args
        if get_origin(name) is Annotated:  # one for each value of an enum
            each = schema_of(value, into)
            return _closed({item.value: each for item in get_args(name)[1]})
        return {"type": "object", "additionalProperties": schema_of(value, into)}
    if origin in (tuple, list):
        if origin is list or args[-1] is Ellipsis:
            return {"type": "array", "items": schema_of(args[0], into)}
        items = [schema_of(item, into) for item in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if kind in VERSION_TYPES:
        return {"type": "string", "description": _first_line(kind)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [item.value for item in kind]}
    if kind is Way:
        return _named("way", _a_way, into)
    if is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields"):
        return _named(kind.__name__, functools.partial(_object, kind), into)
    return {} if kind is Any else {"type": _SCALARS[kind]}


def _named(name: str, make: Any, into: Into) -> dict[str, Any]:
    if name not in into.definitions:
        into.definitions[name] = {}
        into.definitions[name] = make(into)
    return {"$ref": f"#/$defs/{name}"}


def _one_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Scalars as a list of their types, e.g. ["string", "null"], else every option by itself."""
    if all(set(each) == {"type"} for each in options):
        return {"type": [each["type"] for each in options]}
    return {"oneOf": options}


def _object(kind: Any, into: Into) -> dict[str, Any]:
    said = _comments(kind)
    properties = {
        name: schema_of(each, into) | ({"description": said[name]} if name in said else {})
        for name, each in _types_of(kind).items()
    }
    head = {"description": text} if (text := _first_line(kind)) else {}
    if not into.open:
        return {**_closed(properties, **head), "required": _required(kind, into)}
    return {"type": "object", **head, "properties": properties, "required": _required(kind, into)}


def _types_of(kind: Any) -> dict[str, Any]:
    if is_dataclass(kind):
        found = get_type_hints(kind, include_extras=True)
        return {name: found[name] for name in hints(kind)}  # type: ignore[arg-type]
    return get_type_hints(kind, include_extras=True)  # of a TypedDict or a NamedTuple


def _required(kind: Any, into: Into) -> list[str]:
    """The fields that a document always has; where others are passed over, a default stands for one that is missing."""
    if not is_dataclass(kind):
        return [name for name in _types_of(kind) if name in getattr(kind, "__required_keys__", (name,))]
    return [each.name for each in fields(kind) if not into.open or each.default is MISSING]


def _comments(kind: Any) -> dict[str, str]:
    """What is said of each field: the comment behind it, or the lines of comment before it."""
    inherited = [_comments(each) for each in getattr(kind, "__orig_bases__", ()) if is_typeddict(each)]
    try:
        source = inspect.getsource(kind)
    except OSError:  # a TypedDict that is made by a call, for names that are words of Python
        return {}
    before = {name: " ".join(re.split(r"\s*# ", lines)[1:]) for lines, name in _BEFORE.findall(source)}
    return {**dict(pair for each in inherited for pair in each.items()), **before, **dict(_BEHIND.findall(source))}


def _first_line(kind: Any) -> str:
    said = (kind.__doc__ or "").strip().partition("\n")[0]
    return "" if said.startswith((f"{kind.__name__}(", "dict(")) else said


def _closed(properties: dict[str, Any], **head: Any) -> dict[str, Any]:
    return {
        "type": "object", **head, "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


def _unknown() -> dict[str, Any]:
    return _closed({"unknown": {"type": "string"}}, description="What could not be learned, and why.")


def _a_way(into: Into) -> dict[str, Any]:
    """Any way: its type by name, and its arguments."""
    return {"description": "What is done, with its arguments.", "oneOf": [_of_type(kind, into) for kind in WAYS]}


def _of_type(kind: type[Way], into: Into) -> dict[str, Any]:
    made = _object(kind, into)
    properties = {"type": {"const": type_name(kind)}, **made["properties"]}
    return {**made, "properties": properties, "required": list(properties)}

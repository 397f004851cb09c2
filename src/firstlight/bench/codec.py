"""Result records to JSON values and back, by their types; a value that does not fit is refused with its place."""

from __future__ import annotations

import enum
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from firstlight.errors import BadInput

T = TypeVar("T")
TEXT_LIMIT = 64 << 10
LIST_LIMIT = 200_000
# Nothing that is counted or measured here is larger or, unless it is 0, smaller: a year of an exaflop has 3e25 FLOP.
# What lies beyond is a slip or malice, and products and quotients of it leave what a double can hold.
LARGEST, SMALLEST = 1e30, 1e-30
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_HINTS: dict[type, dict[str, Any]] = {}


def encode(value: Any) -> Any:
    """A record as JSON values; a tuple of (name, value) pairs becomes an object, None becomes null."""
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        kinds = field_types(type(value))
        return {name: _encode_field(kinds[name], getattr(value, name)) for name in kinds}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a measurement and cannot be written; use None for what is not known")
    return value


def decode(kind: type[T], value: Any, where: str) -> T:
    """The record back from JSON values; keys that are not known here are passed over, for files of later versions."""
    decoded: T = _decode(kind, value, where)
    return decoded


def field_types(kind: type) -> dict[str, Any]:
    """Resolved field types of a record, in order."""
    if kind not in _HINTS:
        found = get_type_hints(kind)
        _HINTS[kind] = {field.name: found[field.name] for field in fields(kind)}
    return _HINTS[kind]


def is_pairs(kind: Any) -> bool:
    """Whether a type is tuple[tuple[str, X], ...], which is an object in JSON."""
    if get_origin(kind) is not tuple or len(get_args(kind)) != 2 or get_args(kind)[1] is not Ellipsis:
        return False
    item = get_args(kind)[0]
    return get_origin(item) is tuple and len(get_args(item)) == 2 and get_args(item)[0] is str


def optional_of(kind: Any) -> Any:
    """X of X | None; None for a type that has no null."""
    if get_origin(kind) not in (Union, types.UnionType) or type(None) not in get_args(kind):
        return None
    return next(arg for arg in get_args(kind) if arg is not type(None))


def _encode_field(kind: Any, value: Any) -> Any:
    if is_pairs(kind):
        return {name: encode(each) for name, each in value}
    return encode(value)


def _decode(kind: Any, value: Any, where: str) -> Any:
    if (inner := optional_of(kind)) is not None:
        return None if value is None else _decode(inner, value, where)
    if is_pairs(kind):
        return _decode_pairs(kind, value, where)
    if get_origin(kind) is tuple:
        return _decode_tuple(get_args(kind), value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        accepted = [item.value for item in kind]
        if value not in accepted:
            raise BadInput(f"{where}: {short(value)} is not one of {', '.join(map(str, accepted))}")
        return kind(value)
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_record(kind, value, where)
    return _decode_scalar(kind, value, where)


def _decode_record(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected an object, found {short(value)}")
    kinds = field_types(kind)
    given: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in value:
            given[field.name] = _decode(kinds[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING:
            raise BadInput(f"{where}.{field.name}: missing; the file is cut short or was edited by hand")
    return kind(**given)


def _decode_pairs(kind: Any, value: Any, where: str) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected an object, found {short(value)}")
    item = get_args(get_args(kind)[0])[1]
    return tuple((_text(name, where), _decode(item, each, f"{where}.{name}")) for name, each in value.items())


def _decode_tuple(args: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{where}: expected a list, found {short(value)}")
    if len(value) > LIST_LIMIT:
        raise BadInput(f"{where}: {len(value)} items; at most {LIST_LIMIT} are accepted")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], each, f"{where}[{index}]") for index, each in enumerate(value))
    if len(value) != len(args):
        raise BadInput(f"{where}: expected {len(args)} items, found {len(value)}")
    return tuple(
        _decode(kind, each, f"{where}[{index}]") for index, (kind, each) in enumerate(zip(args, value, strict=True))
    )


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is str:
        return _text(value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return float(value)
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fits and (kind is not float or math.isfinite(value)):
        if kind in (int, float) and value and not SMALLEST <= abs(value) <= LARGEST:
            raise BadInput(
                f"{where}: {short(value)} is no measurement; accepted: numbers from {SMALLEST:g} to {LARGEST:g}, and 0"
            )
        return value
    raise BadInput(f"{where}: expected {_NAMES.get(kind, str(kind))}, found {short(value)}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{where}: expected text, found {short(value)}")
    if len(value) > TEXT_LIMIT:
        raise BadInput(f"{where}: text of {len(value)} characters; at most {TEXT_LIMIT} are accepted")
    if any(not character.isprintable() and character not in "\n\t" for character in value):
        raise BadInput(f"{where}: holds a control character; nothing was printed from it")
    return value


def short(value: Any) -> str:
    """A value for an error message, at most 60 characters, without control characters."""
    text = ascii(value) if isinstance(value, (str, int, float)) or value is None else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."

"""Records (frozen dataclasses) as JSON values and back, by their types; what does not fit is refused with its place.

A version or a date stands as its text, an enum as its value, a tuple as a list, a tuple of (name, value) pairs as an
object; a fact is {"value", "seen_in"} or {"unknown"}. The schemas are made from the same types: tools/schemas.py.
"""

from __future__ import annotations

import datetime
import enum
import functools
import math
import sys
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from firstlight.errors import BadFactsFile, BadInput
from firstlight.facts.known import PRETENDED_BY, Known, Origin, Unknown
from firstlight.frozen import dataclass
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

T = TypeVar("T")
TEXT_LIMIT = 64 << 10
VERSION_TYPES = (DriverVersion, CudaVersion, TorchVersion, ComputeCapability)
TEXTUAL = (*VERSION_TYPES, datetime.date)  # a date's text is ISO 8601
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_HINTS: dict[type, dict[str, Any]] = {}
_PAIRS: dict[type, frozenset[str]] = {}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a document is read: what is raised, whether it has just the fields of its types, and what is too much."""

    refused: type[BadInput] = BadFactsFile
    exact: bool = True  # False: fields that are not known are passed over
    defaults: bool = False  # a default stands for a field that is missing
    later: frozenset[tuple[str, str]] = frozenset()  # (type, field) that older documents lack: read as not looked for
    list_limit: int = 10_000
    largest: float = sys.float_info.max  # no number is larger or, unless it is 0, smaller
    smallest: float = 0.0


EXACT = Reading()
Reader = Callable[[Any, str, Reading], Any]


def encode(value: Any) -> Any:
    """A record as JSON values; None becomes null."""
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if isinstance(value, Known):
        return {"value": encode(value.value), "seen_in": value.seen_in}
    if isinstance(value, TEXTUAL):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if is_dataclass(value):
        pairs = _pairs_of(type(value))
        return {
            field.name: dict(encode(getattr(value, field.name)))
            if field.name in pairs
            else encode(getattr(value, field.name))
            for field in fields(value)
        }
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be written; use None or Unknown for what is not known")
    return value


def decode(kind: type[T], value: Any, where: str, reading: Reading = EXACT) -> T:
    """The record back from JSON values; what does not fit is refused with the place of the field."""
    decoded: T = reader_of(kind)(value, where, reading)  # type: ignore[arg-type]
    return decoded


def hints(kind: type) -> dict[str, Any]:
    """Resolved field types of a record, in order."""
    if kind not in _HINTS:
        found = get_type_hints(kind)
        _HINTS[kind] = {field.name: found[field.name] for field in fields(kind)}
    return _HINTS[kind]


def is_fact(kind: Any) -> bool:
    """Whether a type is Fact[X], i.e. Known[X] | Unknown."""
    return get_origin(kind) in (Union, types.UnionType) and Unknown in get_args(kind)


def fact_type(kind: Any) -> Any:
    """X of Fact[X]."""
    known = next(arg for arg in get_args(kind) if arg is not Unknown)
    return get_args(known)[0]


def is_pairs(kind: Any) -> bool:
    """Whether a type is tuple[tuple[str, X], ...], which is an object in JSON."""
    if get_origin(kind) is not tuple or len(get_args(kind)) != 2 or get_args(kind)[1] is not Ellipsis:
        return False
    item = get_args(kind)[0]
    args = get_args(item)
    return get_origin(item) is tuple and len(args) == 2 and args[0] is str and args[1] is not Ellipsis


def optional_of(kind: Any) -> Any:
    """X of X | None; None for a type that has no null."""
    if get_origin(kind) not in (Union, types.UnionType) or type(None) not in get_args(kind):
        return None
    return next(arg for arg in get_args(kind) if arg is not type(None))


def short(value: Any) -> str:
    """A value for an error message, at most 60 characters, without control characters."""
    text = ascii(value) if isinstance(value, (str, int, float)) or value is None else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _pairs_of(kind: type) -> frozenset[str]:
    """The fields that are pairs; types are resolved only where one may be, as that is slow at a start."""
    if kind not in _PAIRS:
        may_be = any("tuple[tuple[str, " in str(field.type) for field in fields(kind))
        types_of = hints(kind) if may_be else {}
        _PAIRS[kind] = frozenset(name for name, each in types_of.items() if is_pairs(each))
    return _PAIRS[kind]


@functools.cache
def reader_of(kind: Any) -> Reader:
    """How values of a type are read, worked out once: (value, where, reading) to what it stands for."""
    if is_fact(kind):
        return functools.partial(_fact, reader_of(fact_type(kind)))
    if (inner := optional_of(kind)) is not None:
        read = reader_of(inner)
        return lambda value, where, reading: None if value is None else read(value, where, reading)
    if is_pairs(kind):
        return functools.partial(_named, reader_of(get_args(get_args(kind)[0])[1]))
    if get_origin(kind) is tuple:
        args = get_args(kind)
        if len(args) == 2 and args[1] is Ellipsis:
            return functools.partial(_items, reader_of(args[0]))
        return functools.partial(_exactly, tuple(map(reader_of, args)))
    if kind is datetime.date or hasattr(kind, "parse"):
        parse = kind.fromisoformat if kind is datetime.date else kind.parse
        return functools.partial(_parsed, functools.lru_cache(1024)(parse))  # the same date stands hundreds of times
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return functools.partial(_member, {item.value: item for item in kind})
    if isinstance(kind, type) and is_dataclass(kind):
        return functools.partial(_record, kind)
    return _text if kind is str else functools.partial(_scalar, kind)


def _parsed(parse: Callable[[str], Any], value: Any, where: str, reading: Reading) -> Any:
    text = _text(value, where, reading)
    try:
        return parse(text)
    except (BadInput, ValueError) as error:
        raise reading.refused(f"{where}: {error}") from None


def _member(members: dict[Any, enum.Enum], value: Any, where: str, reading: Reading) -> Any:
    try:
        return members[value]
    except (KeyError, TypeError):  # a list or an object is no key
        raise reading.refused(f"{where}: {short(value)} is not one of {', '.join(map(str, members))}") from None


def _fact(read: Reader, value: Any, where: str, reading: Reading) -> Any:
    if isinstance(value, dict) and set(value) == {"unknown"}:
        return Unknown(_text(value["unknown"], f"{where}.unknown", reading))
    if isinstance(value, dict) and set(value) == {"value", "seen_in"}:
        seen_in = _text(value["seen_in"], f"{where}.seen_in", reading)
        origin = Origin.PRETENDED if seen_in == PRETENDED_BY else Origin.SEEN
        return Known(read(value["value"], f"{where}.value", reading), seen_in, origin)
    raise reading.refused(f'{where}: expected {{"value", "seen_in"}} or {{"unknown"}}, found {short(value)}')


def _record(kind: type, value: Any, where: str, reading: Reading) -> Any:
    named = _object(value, where, reading)
    expected = hints(kind)
    if reading.exact and (others := [name for name in named if name not in expected]):
        raise reading.refused(f"{where}: {short(others[0])} is not a field here; was the file edited by hand?")
    given: dict[str, Any] = {}
    for field in fields(kind):
        name, each = field.name, expected[field.name]
        if name in named:
            given[name] = reader_of(each)(named[name], f"{where}.{name}", reading)
        elif (kind.__name__, name) in reading.later:
            given[name] = _not_looked_for(each)
        elif field.default is MISSING or not reading.defaults:
            raise reading.refused(f"{where}.{name}: missing; was the file cut short, edited, or written long ago?")
    return kind(**given)


def _not_looked_for(kind: Any) -> Any:
    """What stands for a field that the firstlight of the document did not know."""
    if is_fact(kind):
        return Unknown("not in this document, which an older firstlight wrote")
    if get_origin(kind) is tuple:
        return ()
    return kind(**{name: _not_looked_for(each) for name, each in hints(kind).items()})


def _named(read: Reader, value: Any, where: str, reading: Reading) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (_text(name, where, reading), read(each, f"{where}.{name}", reading))
        for name, each in _object(value, where, reading).items()
    )


def _items(read: Reader, value: Any, where: str, reading: Reading) -> tuple[Any, ...]:
    listed = _list(value, where, reading)
    return tuple([read(each, f"{where}[{index}]", reading) for index, each in enumerate(listed)])


def _exactly(readers: tuple[Reader, ...], value: Any, where: str, reading: Reading) -> tuple[Any, ...]:
    if len(_list(value, where, reading)) != len(readers):
        raise reading.refused(f"{where}: expected {len(readers)} items, found {len(value)}")
    return tuple([read(value[index], f"{where}[{index}]", reading) for index, read in enumerate(readers)])


def _list(value: Any, where: str, reading: Reading) -> list[Any]:
    if not isinstance(value, list):
        raise reading.refused(f"{where}: expected a list, found {short(value)}")
    if len(value) > reading.list_limit:
        raise reading.refused(f"{where}: {len(value)} items; at most {reading.list_limit} are accepted")
    return value


def _scalar(kind: Any, value: Any, where: str, reading: Reading) -> Any:
    fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool) is isinstance(value, bool)
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise reading.refused(f"{where}: expected {_NAMES.get(kind, str(kind))}, found {short(value)}")
    if kind is not bool and value and not reading.smallest <= abs(value) <= reading.largest:
        raise reading.refused(
            f"{where}: {short(value)} is not a measurement; accepted: numbers from {reading.smallest:g} to "
            f"{reading.largest:g}, and 0"
        )
    return kind(value)


def _object(value: Any, where: str, reading: Reading) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise reading.refused(f"{where}: expected an object, found {short(value)}")
    return value


def _text(value: Any, where: str, reading: Reading) -> str:
    if type(value) is str and value.isprintable() and len(value) <= TEXT_LIMIT:
        return value
    if not isinstance(value, str):
        raise reading.refused(f"{where}: expected text, found {short(value)}")
    if len(value) > TEXT_LIMIT:
        raise reading.refused(f"{where}: text of {len(value)} characters; at most {TEXT_LIMIT} are accepted")
    if control := next((each for each in value if not each.isprintable() and each not in "\n\t"), ""):
        raise reading.refused(f"{where}: holds the control character {control!a}; nothing was printed from it")
    return value

"""Facts to JSON values and back, by the types of the dataclasses: one description serves writing, reading and --set."""

from __future__ import annotations

import enum
import types
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from firstlight.errors import BadFactsFile, BadVersion
from firstlight.facts.known import PRETENDED_BY, Known, Origin, Unknown
from firstlight.facts.later_fields import LATER
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

T = TypeVar("T")
TEXT_LIMIT = 64 << 10
LIST_LIMIT = 10_000
VERSION_TYPES = (DriverVersion, CudaVersion, TorchVersion, ComputeCapability)
_HINTS: dict[type, dict[str, Any]] = {}


def to_json(value: Any) -> Any:
    """A fact dataclass as JSON values; Known is {"value", "seen_in"}, Unknown is {"unknown": reason}."""
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if isinstance(value, Known):
        return {"value": to_json(value.value), "seen_in": value.seen_in}
    if isinstance(value, VERSION_TYPES):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], value: Any, where: str) -> T:
    """The dataclass back from JSON values; raises BadFactsFile naming the field that does not fit."""
    decoded: T = _decode(kind, value, where)
    return decoded


def hints(kind: type) -> dict[str, Any]:
    """Resolved field types of a dataclass, in order."""
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


def _decode(kind: Any, value: Any, where: str) -> Any:
    if is_fact(kind):
        return _decode_fact(kind, value, where)
    if get_origin(kind) is tuple:
        return _decode_tuple(get_args(kind)[0], value, where)
    if kind in VERSION_TYPES:
        text = _text(value, where)
        try:
            return kind.parse(text)
        except BadVersion as error:
            raise BadFactsFile(f"{where}: {error}") from None
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        accepted = [item.value for item in kind]
        if value not in accepted:
            raise BadFactsFile(f"{where}: {_short(value)} is not one of {', '.join(map(str, accepted))}")
        return kind(value)
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_object(kind, value, where)
    return _decode_scalar(kind, value, where)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is str:
        return _text(value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) and value == value:  # not NaN
        return value
    raise BadFactsFile(f"{where}: expected {_NAMES.get(kind, kind.__name__)}, found {_short(value)}")


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _decode_fact(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, dict) and set(value) == {"unknown"}:
        return Unknown(_text(value["unknown"], f"{where}.unknown"))
    if isinstance(value, dict) and set(value) == {"value", "seen_in"}:
        seen_in = _text(value["seen_in"], f"{where}.seen_in")
        origin = Origin.PRETENDED if seen_in == PRETENDED_BY else Origin.SEEN
        return Known(_decode(fact_type(kind), value["value"], f"{where}.value"), seen_in, origin)
    raise BadFactsFile(f'{where}: expected {{"value", "seen_in"}} or {{"unknown"}}, found {_short(value)}')


def _decode_tuple(item: Any, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadFactsFile(f"{where}: expected a list, found {_short(value)}")
    if len(value) > LIST_LIMIT:
        raise BadFactsFile(f"{where}: {len(value)} items; at most {LIST_LIMIT} are accepted")
    return tuple(_decode(item, each, f"{where}[{index}]") for index, each in enumerate(value))


def _decode_object(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise BadFactsFile(f"{where}: expected an object, found {_short(value)}")
    expected = hints(kind)
    for name in expected:
        if name not in value and (kind.__name__, name) not in LATER:
            raise BadFactsFile(f"{where}.{name}: missing; write the file again with `firstlight facts --json`")
    for name in value:
        if name not in expected:
            raise BadFactsFile(f"{where}: {_short(name)} is not a field here; was the file edited by hand?")
    return kind(**{
        name: _decode(each, value[name], f"{where}.{name}") if name in value else _not_looked_for(each)
        for name, each in expected.items()
    })  # fmt: skip


def _not_looked_for(kind: Any) -> Any:
    """What stands for a field that the firstlight of the document did not know."""
    if is_fact(kind):
        return Unknown("not in this document, which an older firstlight wrote")
    if get_origin(kind) is tuple:
        return ()
    return kind(**{name: _not_looked_for(each) for name, each in hints(kind).items()})


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadFactsFile(f"{where}: expected text, found {_short(value)}")
    if len(value) > TEXT_LIMIT:
        raise BadFactsFile(f"{where}: text of {len(value)} characters; at most {TEXT_LIMIT} are accepted")
    for character in value:
        if not character.isprintable() and character not in "\n\t":
            raise BadFactsFile(f"{where}: holds the control character {character!a}; nothing was printed from it")
    return value


def _short(value: Any) -> str:
    text = ascii(value) if isinstance(value, (str, int, float)) or value is None else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."

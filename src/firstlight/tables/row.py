"""What every row of knowledge carries: where it is from, when it was checked, how it is known."""

import dataclasses
import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from firstlight.errors import BadInput
from firstlight.records import Reader, Reading
from firstlight.specifiers import satisfies
from firstlight.versions import TorchVersion

WRITTEN = Reading(BadInput, defaults=True)  # a field that is not known is refused, a default may stay unwritten

__all__ = ["Confidence", "Pin", "Row", "row_class"]

_PIN = r"(?P<project>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[(?P<extras>[a-z0-9_,-]+)\])?(?P<spec>(?:[<>=!~]\S*)?)"


class Confidence(Enum):
    """How a fact is known: read from the artifact, stated by its maker, or second-hand and inferred."""

    MEASURED = "measured"
    DOCUMENTED = "documented"
    REPORTED = "reported"


if TYPE_CHECKING:
    from dataclasses import dataclass as row_class
else:

    def row_class(**options: bool) -> Callable[[type], type]:
        """`dataclass(frozen=True, slots=True, kw_only=True)` for rows, with one __init__ for all of them.

        The standard decorator compiles six functions for each of thirty classes, which costs more than reading
        the rows. Fields are inherited; `fields` works as usual; type checkers see the standard decorator. The types
        of fields are read at a start, so files of rows do without `from __future__ import annotations`.
        """
        assert options == {"frozen": True, "slots": True, "kw_only": True}, options
        return _define


def _define(cls: type) -> type:
    namespace = dict(cls.__dict__)
    own: dict[str, Field[Any]] = {}
    for name, annotation in cls.__annotations__.items():
        own[name] = field(default=namespace.pop(name, MISSING))
        own[name].name, own[name].type = name, annotation
        own[name]._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
    inherited = getattr(cls.__base__, "__dataclass_fields__", {})
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    besides = namespace.pop("__slots__", ())
    for name in besides:
        del namespace[name]
    slots = (*besides, *own)
    namespace |= {"__slots__": slots, "__dataclass_fields__": {**inherited, **own}}
    return type(cls)(cls.__name__, cls.__bases__, namespace)


@row_class(frozen=True, slots=True, kw_only=True)
class Row:
    """One fact about the outside world, e.g. source 'crt/host_config.h of nvidia-cuda-nvcc 13.0', date 2026-11-15."""

    source: str
    date: datetime.date
    confidence: Confidence
    note: str = ""

    if not TYPE_CHECKING:
        # A start reads two thousand rows and asks for a few fields of each: of a row as it is written, a field is
        # decoded when it is first asked for. (entry, readers); unset where all fields were given.
        __slots__ = ("_written",)

        def __getattr__(self, name: str) -> object:
            field = type(self).__dataclass_fields__.get(name)
            if field is None:
                raise AttributeError(f"{type(self).__name__} has no field {name!r}")
            entry, readers = self._written
            value = readers[name](entry[name], name, WRITTEN) if name in entry else field.default
            object.__setattr__(self, name, value)
            return value

        def __init__(self, **values: object) -> None:
            put = object.__setattr__
            entries = self.__dataclass_fields__
            for name, value in values.items():
                if name not in entries:
                    raise TypeError(f"{type(self).__name__}() has no {name}")
                put(self, name, value)
            if len(values) == len(entries):
                return
            for name, entry in entries.items():
                if name not in values:
                    if entry.default is MISSING:
                        raise TypeError(f"{type(self).__name__}() needs {name}")
                    put(self, name, entry.default)

        def __setattr__(self, name: str, value: object) -> None:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name: str) -> None:
            raise FrozenInstanceError(f"cannot delete field {name!r}")

        def __reduce__(self) -> tuple[object, ...]:
            return _rebuilt, (type(self), {name: getattr(self, name) for name in self.__dataclass_fields__})

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, entry.name) for entry in fields(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Row) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{entry.name}={getattr(self, entry.name)!r}" for entry in fields(self))
        return f"{type(self).__name__}({shown})"


def as_written(kind: type[Row], entry: dict[str, Any], readers: Mapping[str, Reader]) -> Row:
    """A row of an entry that was checked before; its fields are decoded when they are asked for."""
    row = object.__new__(kind)
    object.__setattr__(row, "_written", (entry, readers))
    return row


def _rebuilt(kind: type[Row], values: dict[str, Any]) -> Row:
    return kind(**values)


@dataclass(frozen=True, slots=True)
class Pin:
    """A requirement on a project, e.g. cuda-toolkit[cublas,cudart]==13.0.3; an empty spec takes any version."""

    project: str
    spec: str
    extras: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Pin":
        match = re.fullmatch(_PIN, text)
        if match is None:
            raise BadInput(f"{text!r} is not a requirement; accepted: a project and bounds, e.g. triton==3.5.0.")
        extras = tuple(match["extras"].split(",")) if match["extras"] else ()
        return cls(match["project"], match["spec"], extras)

    @property
    def version(self) -> str:
        """The version of an exact pin, 3.5.0 for ==3.5.0; '' for a range."""
        exact = re.fullmatch(r"==([^,*]+)", self.spec)
        return exact[1] if exact else ""

    def admits(self, version: TorchVersion) -> bool:
        """Whether the spec takes a version, whatever its build: >=2.14.0 takes 2.15.0+cu130."""
        if (met := satisfies(version.public, self.spec)) is None:
            raise BadInput(f"{self.spec!r} is not a version bound; accepted: e.g. ==2.9.0, >=2.14 or ~=3.8.0.")
        return met

    def __str__(self) -> str:
        return self.project + (f"[{','.join(self.extras)}]" if self.extras else "") + self.spec

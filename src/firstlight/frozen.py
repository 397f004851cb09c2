"""`dataclass` with the meaning of the standard one and a twentieth of its cost to define.

The standard decorator compiles six or more functions for each class: about 1.2 ms with frozen and slots on Python 3.11,
85 ms for the classes of the facts, which is more than looking at the machine takes (results/dataclass-cost.json).
This one gives every class the same few functions. `fields`, `replace`, `asdict` and `is_dataclass` work as usual.
Type checkers see the standard decorator. Not supported, because nothing here needs it: init=False, kw_only,
InitVar, __post_init__ and inheritance of fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 the name is re-exported
else:

    def dataclass(*, frozen: bool = False, slots: bool, order: bool = False) -> Callable[[type[T]], type[T]]:
        """A slotted dataclass; slots has no other value than True."""
        assert slots

        def define(cls: type[T]) -> type[T]:
            return _define(cls, {**_COMMON, **(_FROZEN if frozen else _MUTABLE), **(_ORDER if order else {})})

        return define


def _define(cls: type[T], methods: dict[str, Any]) -> type[T]:
    namespace = dict(cls.__dict__)
    found: dict[str, dataclasses.Field[Any]] = {}
    for name, annotation in namespace.get("__annotations__", {}).items():
        if "ClassVar" in annotation:
            continue
        default = namespace.pop(name, dataclasses.MISSING)
        entry: dataclasses.Field[Any] = (
            default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        )
        entry.name, entry.type = name, annotation
        entry._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        found[name] = entry
    names = tuple(found)
    for unwanted in ("__dict__", "__weakref__", *names):
        namespace.pop(unwanted, None)
    for name, method in methods.items():
        namespace.setdefault(name, method)
    if "__hash__" in methods:  # a class body with __eq__ alone sets __hash__ to None
        namespace["__hash__"] = methods["__hash__"]
    compared = tuple(name for name, entry in found.items() if entry.compare)
    namespace |= {
        "__slots__": names,
        "__match_args__": names,
        "__dataclass_fields__": found,
        "__dataclass_params__": None,
        "_compared": _values_of(compared),
        "__doc__": namespace.get("__doc__") or f"{cls.__name__}({', '.join(names)})",
    }
    made: Any = type(cls).__call__(type(cls), cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return cast(type[T], made)


def _values_of(names: tuple[str, ...]) -> staticmethod[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return staticmethod(attrgetter(*names))
    return staticmethod(lambda self: tuple(getattr(self, name) for name in names))


def _init(self: Any, /, *args: Any, **kwargs: Any) -> None:
    cls = type(self)
    entries = cls.__dataclass_fields__
    put = object.__setattr__  # not what the slots have for it, which torch.compile does not follow
    if len(args) == len(entries) and not kwargs:  # most are made so: thousands at a start
        for name, value in zip(entries, args, strict=True):
            put(self, name, value)
        return
    if not args and kwargs.keys() == entries.keys():  # and so by `replace`
        for name, value in kwargs.items():
            put(self, name, value)
        return
    if len(args) > len(entries):
        raise TypeError(f"{cls.__name__}() takes {len(entries)} positional arguments but {len(args)} were given")
    missing = []
    for index, (name, entry) in enumerate(entries.items()):
        if index < len(args):
            if name in kwargs:
                raise TypeError(f"{cls.__name__}() got multiple values for argument {name!r}")
            put(self, name, args[index])
        elif name in kwargs:
            put(self, name, kwargs.pop(name))
        elif entry.default is not dataclasses.MISSING:
            put(self, name, entry.default)
        elif entry.default_factory is not dataclasses.MISSING:
            put(self, name, entry.default_factory())
        else:
            missing.append(name)
    if missing:
        raise TypeError(f"{cls.__name__}() missing required arguments: {', '.join(missing)}")
    if kwargs:
        raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {next(iter(kwargs))!r}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    if self is other:
        return True
    return self._compared(self) == self._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _refuse_setting(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _compare_by(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return getattr(self._compared(self), name)(self._compared(other))

    return compare


_COMMON = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__reduce__": _reduce}
_FROZEN = {"__hash__": _hash, "__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
_MUTABLE = {"__hash__": None}
_ORDER = {name: _compare_by(name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}

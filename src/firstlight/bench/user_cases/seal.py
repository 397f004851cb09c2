"""The instruments as they were before a user's file was read: clocks, events, graphs, comparisons, and this room.

A file of cases is Python and may do anything in this process. A seal says afterwards whether an instrument is still the
one that was there before; it is a guard against tricks that people really use, not a prison.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

from firstlight.frozen import dataclass

ROOM = "firstlight.bench"
# What the stopwatch and the checks use of others. A class is sealed with all that it defines.
TIME = ("perf_counter", "perf_counter_ns", "monotonic", "time", "sleep")
TORCH = ("empty", "linspace", "equal", "isnan", "Generator", "Tensor", "cuda")
CUDA = (
    "Event", "Stream", "CUDAGraph", "graph", "synchronize", "current_stream", "set_device", "_sleep",
    "max_memory_allocated",
)  # fmt: skip
TENSOR = ("double", "norm", "clone", "copy_", "fill_", "normal_", "sub", "__sub__", "__truediv__", "data_ptr", "item")
_CALLED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
_PLAIN = (int, float, str, bytes, bool, tuple, type(None))


@dataclass(frozen=True, slots=True)
class Sealed:
    """One instrument: where it hangs, what it was, and what it does."""

    name: str  # time.perf_counter
    owner: Any
    attribute: str
    value: Any
    inside: Any  # the code of a function, a copy of a dict; None for what cannot change inside


@dataclass(frozen=True, slots=True)
class Seal:
    """Every instrument at one moment."""

    instruments: tuple[Sealed, ...]

    def broken(self) -> tuple[str, ...]:
        """Names of the instruments that are no longer what they were, e.g. ('time.perf_counter',)."""
        return tuple(each.name for each in self.instruments if not _is_whole(each))


def seal() -> Seal:
    """The instruments as they are now; torch and the room are imported already."""
    import statistics
    import time

    import torch

    found = [
        *_of_module(time, TIME),
        *_of_module(statistics, ("median", "fmean")),
        *_of_module(torch, TORCH),
        *_of_module(torch.cuda, CUDA),
        *_of_owner("torch.Tensor", torch.Tensor, TENSOR),
        *_of_room(),
    ]
    return Seal(tuple({(id(each.owner), each.attribute): each for each in found}.values()))


def _of_module(module: types.ModuleType, names: tuple[str, ...]) -> Iterator[Sealed]:
    for name in names:
        value = getattr(module, name, None)
        if value is None:
            continue
        yield _sealed(f"{module.__name__}.{name}", module, name, value)
        if isinstance(value, type) and name != "Tensor":  # of a tensor only the named methods: it has 800
            yield from _of_owner(f"{module.__name__}.{name}", value, tuple(_methods(value)))


def _of_owner(label: str, owner: Any, names: tuple[str, ...]) -> Iterator[Sealed]:
    for name in names:
        if hasattr(owner, name):
            yield _sealed(f"{label}.{name}", owner, name, _plain(owner, name))


def _of_room() -> Iterator[Sealed]:
    """Functions, classes and constants of every module of this room, and the modules that they call by name."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name != ROOM and not module_name.startswith(f"{ROOM}."):
            continue
        for name, value in tuple(vars(module).items()):
            is_constant = isinstance(value, (*_PLAIN, dict)) and name.isupper() and name[0] != "_"
            if not is_constant and not isinstance(value, _CALLED):
                continue
            yield _sealed(f"{module_name}.{name}", module, name, value)
            if isinstance(value, type) and value.__module__ == module_name:
                yield from _of_owner(f"{module_name}.{name}", value, tuple(_methods(value)))


def _methods(kind: type) -> Iterator[str]:
    return (name for name, value in vars(kind).items() if callable(value) or isinstance(value, property))


def _sealed(name: str, owner: Any, attribute: str, value: Any) -> Sealed:
    return Sealed(name, owner, attribute, value, _inside(value))


def _inside(value: Any) -> Any:
    if isinstance(value, types.FunctionType):
        return value.__code__, value.__defaults__
    return dict(value) if isinstance(value, dict) else None


def _plain(owner: Any, name: str) -> Any:
    """The attribute as the class holds it: getattr makes a new bound method each time."""
    for kind in getattr(owner, "__mro__", ()):
        if name in vars(kind):
            return vars(kind)[name]
    return getattr(owner, name, None)


def _is_whole(sealed: Sealed) -> bool:
    now = _plain(sealed.owner, sealed.attribute)
    if isinstance(sealed.value, _PLAIN):
        return type(now) is type(sealed.value) and bool(now == sealed.value)
    return now is sealed.value and _inside(now) == sealed.inside

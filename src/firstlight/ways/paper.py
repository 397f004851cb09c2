"""The machine on paper: how a planned fact is written, and which facts only running can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Origin, Unknown
from firstlight.records import VERSION_TYPES
from firstlight.ways.way import Way
from firstlight.ways.words import words_of

T = TypeVar("T")

ONLY_RUNNING = Unknown("planned: not known until it is done")
NOT_READ = Unknown("planned: not looked at yet")


def planned(value: T, way: Way) -> Known[T]:
    """A value that a way brings about, seen in the words of that way: 'planned: restart the machine'."""
    return Known(value, f"planned: {words_of(way)}", Origin.PLANNED)


def becomes(fact: Fact[T], value: T, way: Way) -> Fact[T]:
    """The fact as it is where it has that value already, else the planned one: done twice, nothing changes."""
    return fact if isinstance(fact, Known) and fact.value == value else planned(value, way)


def opened(fact: Fact[T], *, unless: T) -> Fact[T]:
    """The fact as it is where it is the good value already, else open: whether it gets there only running can tell."""
    return fact if isinstance(fact, Known) and fact.value == unless else ONLY_RUNNING


def open_after(before: Facts, after: Facts) -> tuple[str, ...]:
    """The facts that became such that only running can tell, e.g. ("libcuda.init_code",)."""
    return tuple(_opened(before, after, ""))


def _opened(before: Any, after: Any, path: str) -> Iterator[str]:
    if before is after:
        return
    if after == ONLY_RUNNING:
        if before != ONLY_RUNNING:
            yield path
    elif isinstance(after, Known):
        yield from _opened(before.value if isinstance(before, Known) else None, after.value, path)
    elif isinstance(after, tuple):
        old = before if isinstance(before, tuple) else ()
        for place, item in enumerate(after):
            yield from _opened(old[place] if place < len(old) else None, item, f"{path}.{place}")
    elif is_dataclass(after) and not isinstance(after, (type, *VERSION_TYPES)):
        for each in fields(after):
            inside = f"{path}.{each.name}" if path else each.name
            yield from _opened(getattr(before, each.name, None), getattr(after, each.name), inside)

"""Facts with less known: nothing at all, or one fact fewer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.records import VERSION_TYPES, hints, is_fact

NOT_KNOWN = Unknown("not looked at")


def nothing_known(facts: Facts) -> Facts:
    """The machine of which no fact could be learned: every Fact unknown, every list empty."""
    emptied: Facts = _emptied(facts)
    return emptied


def one_less_known(facts: Facts) -> Iterator[tuple[str, Facts]]:
    """The path of each known fact and the facts without it."""
    yield from _without_one(facts, "")


def _emptied(value: Any) -> Any:
    kinds = hints(type(value))
    changed: dict[str, Any] = {}
    for field in fields(value):
        if is_fact(kinds[field.name]):
            changed[field.name] = NOT_KNOWN
        elif isinstance(getattr(value, field.name), tuple):
            changed[field.name] = ()
        elif is_dataclass(getattr(value, field.name)):
            changed[field.name] = _emptied(getattr(value, field.name))
    return replace(value, **changed)


def _without_one(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Known):
        yield path, NOT_KNOWN
        for place, less in _without_one(value.value, path):
            yield place, Known(less, value.seen_in)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            for place, less in _without_one(item, f"{path}.{index}"):
                yield place, (*value[:index], less, *value[index + 1 :])
    elif is_dataclass(value) and not isinstance(value, (type, *VERSION_TYPES)):
        for field in fields(value):
            for place, less in _without_one(getattr(value, field.name), f"{path}.{field.name}"):
                yield place, replace(value, **{field.name: less})

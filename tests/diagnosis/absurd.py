"""Facts with absurd values: one text, number or version of them at a time, or all of one kind together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.records import VERSION_TYPES
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

_WORST = {
    str: ("", "foo", "-1.x..", "a b;c'\"\n"),
    int: (-1, 10**12),
    float: (-1.0, float("inf")),
    DriverVersion: (DriverVersion.parse("10"), DriverVersion.parse("9999.1")),
    CudaVersion: (CudaVersion.parse("1.0"), CudaVersion.parse("99.99")),
    TorchVersion: (TorchVersion.parse("0.0.1"), TorchVersion.parse("99.0.dev20300101+weird")),
    ComputeCapability: (ComputeCapability.parse("0.1"), ComputeCapability.parse("99.9")),
}
# Not facts but where to look for one: an index into a list that is next to it.
_KEPT = ("selected",)


def absurd_facts(facts: Facts) -> Iterator[tuple[str, Facts]]:
    """What was made absurd, and the facts with it: every text of a group of facts, every number, every version."""
    for field in fields(facts):
        for kind, values in _WORST.items():
            for value in values:
                changed = _changed(getattr(facts, field.name), kind, value)
                if changed != getattr(facts, field.name):
                    yield f"{field.name}: every {kind.__name__} {value!r}", replace(facts, **{field.name: changed})


def _changed(value: Any, kind: type, absurd: Any) -> Any:
    if type(value) is kind:
        return absurd
    if isinstance(value, Known):
        return Known(_changed(value.value, kind, absurd), value.seen_in)
    if isinstance(value, tuple):
        return tuple(_changed(item, kind, absurd) for item in value)
    if is_dataclass(value) and not isinstance(value, (type, *VERSION_TYPES)):
        now = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(
            value, **{name: item if name in _KEPT else _changed(item, kind, absurd) for name, item in now.items()}
        )
    return value

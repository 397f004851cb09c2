"""Facts as text: one screen of what was found, or every fact with where it was seen."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.numerals import counted
from firstlight.records import VERSION_TYPES
from firstlight.report import facts_lines as lines
from firstlight.report.fleet_lines import fleet_lines
from firstlight.report.layout import labelled


class Detail(enum.Enum):
    """How much is printed."""

    FOUND = "found"
    ALL = "all"


# label -> the function that says it; one that yields nothing is left out
SECTIONS = (
    ("machine", lines.machine_lines),
    ("limits", lines.limit_lines),
    ("gpu", lines.gpu_lines),
    ("driver", lines.driver_lines),
    ("libcuda", lines.libcuda_lines),
    ("compat", lines.compat_lines),
    ("python", lines.python_lines),
    ("torch", lines.torch_lines),
    ("companions", lines.companion_lines),
    ("extensions", lines.extension_lines),
    ("toolkits", lines.toolkit_lines),
    ("compilers", lines.compiler_lines),
    ("libraries", lines.library_lines),
    ("container", lines.container_lines),
    ("health", lines.health_lines),
    ("fleet", fleet_lines),
    ("network", lines.network_lines),
    ("you", lines.ability_lines),
)


def facts_text(facts: Facts, detail: Detail) -> str:
    """The facts for a person to read."""
    if detail is Detail.ALL:
        return "".join(f"{line}\n" for line in every_fact(facts, ""))
    out = "".join(labelled(label, found) for label, say in SECTIONS if (found := list(say(facts))))
    unknown = sum(": unknown, " in line for line in every_fact(facts, ""))
    return (
        out + f"\n{counted(unknown, 'more fact')} could not be learned: `firstlight facts --all` says why for each.\n"
    )


def every_fact(value: Any, place: str) -> Iterator[str]:
    """Every fact on a line of its own: 'driver.kernel_version: 570.133.20 (/sys/module/nvidia/version)'."""
    if isinstance(value, Unknown):
        yield f"{place}: unknown, {value.reason}"
    elif isinstance(value, Known):
        if _is_plain(value.value):
            yield f"{place}: {_plain(value.value)} ({value.seen_in})"
        else:
            yield from every_fact(value.value, place)
    elif _is_plain(value):
        yield f"{place}: {_plain(value)}"
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from every_fact(item, f"{place}.{index}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from every_fact(getattr(value, field.name), f"{place}.{field.name}".lstrip("."))


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(item) and not isinstance(item, tuple) for item in value)
    return isinstance(value, (str, int, float, bool, enum.Enum, *VERSION_TYPES))


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_plain(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value.value if isinstance(value, enum.Enum) else value)

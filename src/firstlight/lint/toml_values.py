"""What lies in a TOML or JSON value, whatever its type turns out to be: a file may hold anything at any key."""

from __future__ import annotations

from typing import Any


def table(value: object, *path: str) -> dict[str, Any]:
    """The table below a path of keys; {} where something else lies there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """The tables of a list; [] of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def strings(value: object) -> tuple[str, ...]:
    """The strings of a list; one string is a list of itself."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()

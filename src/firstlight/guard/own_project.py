"""What a project itself asks for, which `pip install .` and `uv sync` bring: pyproject.toml and setup.cfg."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from typing import Any

from firstlight.toml import parse_toml


def of_pyproject(text: str, extras: frozenset[str]) -> tuple[str, ...]:
    """The requirements of a pyproject.toml with those of extras and groups ('*': of all); () where it is no TOML."""
    try:
        found = parse_toml(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(_texts(found, extras))


def _texts(found: dict[str, Any], extras: frozenset[str]) -> Iterator[str]:
    project = _table(found.get("project"))
    lists = [project.get("dependencies")]
    for groups in (_table(project.get("optional-dependencies")), _table(found.get("dependency-groups"))):
        lists += [rows for name, rows in groups.items() if name in extras or "*" in extras]
    for rows in lists:
        yield from (row for row in (rows if isinstance(rows, list) else ()) if isinstance(row, str))
    poetry = _table(_table(found.get("tool")).get("poetry"))
    for name, spec in _table(poetry.get("dependencies")).items():
        if name != "python":
            exact = isinstance(spec, str) and spec[:1] in ("=", "<", ">", "~", "!")
            yield f"{name}{spec}" if exact else name


def _table(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def of_setup_cfg(text: str) -> tuple[str, ...]:
    """The install_requires of a setup.cfg."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        rows = parser.get("options", "install_requires", fallback="")
    except configparser.Error:
        return ()
    return tuple(row.strip() for row in rows.splitlines() if row.strip())

"""Read what poetry and pdm write into pyproject.toml: versions with ^ and ~, sources with priorities."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from firstlight.lint.model import Install, ProjectAsked
from firstlight.lint.reading import Reading, marker_holds
from firstlight.lint.toml_lines import TomlLines
from firstlight.lint.toml_values import strings, table, tables
from firstlight.versions import canonical


def poetry_groups(
    values: dict[str, Any], lines: TomlLines, reading: Reading, *, python: str
) -> dict[str, tuple[ProjectAsked, ...]]:
    """[tool.poetry.dependencies] under '', each [tool.poetry.group.NAME.dependencies] under its name."""
    poetry = ("tool", "poetry")
    paths: dict[str, tuple[str, ...]] = {"": (*poetry, "dependencies"), "dev": (*poetry, "dev-dependencies")}
    paths.update((name, (*poetry, "group", name, "dependencies")) for name in table(values, *poetry, "group"))
    indexes = {
        str(each.get("name", "")): str(each.get("url", "")) for each in tables(table(values, *poetry).get("source"))
    }
    found: dict[str, tuple[ProjectAsked, ...]] = {}
    for group, path in paths.items():
        asked = []
        for name, entry in table(values, *path).items():
            one = None if name == "python" else _requirement(name, entry, indexes, reading.arch, python=python)
            if one is not None:
                asked.append(replace(one, place=reading.place(lines.key(path, name))))
        if asked or not group:
            found[group] = tuple(asked)
    return found


def _requirement(name: str, entry: object, indexes: dict[str, str], arch: str, *, python: str) -> ProjectAsked | None:
    """The first of the entries of a dependency that is for this machine; None where none is."""
    for each in entry if isinstance(entry, list) else [entry]:
        fields = each if isinstance(each, dict) else {"version": each}
        marker, platform = str(fields.get("markers", "")), str(fields.get("platform", "linux"))
        if not marker_holds(marker, arch, python=python) or platform != "linux":
            continue
        address = str(fields.get("url") or fields.get("git") or fields.get("path") or "")
        index = indexes.get(str(fields.get("source", "")), "")
        extras = tuple(canonical(extra) for extra in strings(fields.get("extras")))
        return ProjectAsked(canonical(name), poetry_spec(str(fields.get("version", ""))), address, extras, index)
    return None


def poetry_spec(text: str) -> str:
    """The PEP 440 form of poetry's version: ^2.5 is >=2.5,<3; ~2.5 is >=2.5,<2.6; 2.5.1 is ==2.5.1; * is anything."""
    return ",".join(filter(None, (_clause(each.strip()) for each in text.split(","))))


def _clause(text: str) -> str:
    if text in ("", "*"):
        return ""
    match = re.fullmatch(r"(\^|~)?\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)(.*)", text)
    if match is None or text.startswith("~="):
        return text
    sign, numbers = match.group(1), [int(each) for each in match.group(2).split(".")]
    if sign is None:
        return f"=={text}"
    if sign == "~":
        upper = [*numbers[:1], numbers[1] + 1] if len(numbers) > 1 else [numbers[0] + 1]
    else:
        first = next((index for index, each in enumerate(numbers) if each), len(numbers) - 1)
        upper = [*numbers[:first], numbers[first] + 1]
    return f">={match.group(2)}{match.group(3)},<{'.'.join(map(str, upper))}"


def poetry_searched(values: dict[str, Any], plain: Install) -> Install:
    """Where poetry or pdm look: all their sources but the explicit ones; the best version of all is taken."""
    sources = [
        *tables(table(values, "tool", "poetry").get("source")),
        *tables(table(values, "tool", "pdm").get("source")),
    ]
    listed = [each for each in sources if each.get("priority") != "explicit"]
    return replace(plain, extra_indexes=tuple(str(each.get("url", "")) for each in listed if each.get("url")))

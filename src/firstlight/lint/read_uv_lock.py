"""Read uv.lock: the releases that are pinned for this processor, each with the index that it comes from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from firstlight.errors import BadInput
from firstlight.lint.model import ProjectAsked, Target
from firstlight.lint.reading import Reading, marker_holds
from firstlight.lint.toml_lines import TomlLines, toml_values
from firstlight.lint.toml_values import strings, table, tables
from firstlight.versions import canonical

_PYPI = re.compile(r"https?://pypi\.org(?:/|$)")
# Groups for machines without an NVIDIA GPU are somebody's choice, not a fault.
OTHER_MACHINES = re.compile(
    r"(?i)(?:^|[-_.])(?:cpu|rocm\d*|amd|xpu|intel|mps|metal|mac\w*|osx|windows|win|tpu)(?:$|[-_.])"
)


def read_uv_lock(reading: Reading) -> tuple[Target, ...]:
    """The lock as lists of packages: one, or one for each of the groups that exclude each other."""
    values = toml_values(reading.text, reading.file, reading.syntax.value)
    packages = [each for each in tables(values.get("package")) if isinstance(each.get("name"), str)]
    if not packages:
        raise BadInput(f"{reading.file}: no [[package]] in it; accepted: a uv.lock. Run `uv lock` first.")
    starts = TomlLines(reading.text).blocks("package")
    lines = [starts[index] if index < len(starts) else 1 for index in range(len(packages))]
    python = _python(values.get("requires-python"))
    root = next((each for each in packages if {"virtual", "editable"} & set(table(each, "source"))), {})
    groups = {"": (), **table(root, "optional-dependencies"), **table(root, "dev-dependencies")}
    asked = {name: _asked(root, name, reading.arch, python) for name in groups}
    apart = {name for each in asked.values() for name, version in each if version}
    targets = []
    for group in groups:
        own = asked[group] if not group else asked[group] - asked[""]
        if group and (OTHER_MACHINES.search(group) or not any(version for _, version in own)):
            continue
        extra = _encoded(root, group)
        chosen = tuple(
            _requirement(each, reading, line)
            for each, line in zip(packages, lines, strict=True)
            if _is_for(each, reading.arch, python=python, extra=extra)
            and (each["name"] not in apart or (each["name"], str(each.get("version", ""))) in asked[group])
        )
        install = replace(reading.listed(*chosen), tool="uv", first_index=True, python=python)
        targets.append(reading.packages(install, name=group))
    return tuple(targets)


def _asked(root: dict[str, Any], group: str, arch: str, python: str) -> set[tuple[str, str]]:
    """What the project itself and one of its groups ask for; uv writes the version where the lock has several."""
    listed = tables(root.get("dependencies"))
    for kind in ("optional-dependencies", "dev-dependencies"):
        listed += tables(table(root, kind).get(group))
    extra = _encoded(root, group)
    return {
        (str(each.get("name", "")), str(each.get("version", "")))
        for each in listed
        if marker_holds(str(each.get("marker", "")), arch, python=python, extra=extra)
    }


def _encoded(root: dict[str, Any], group: str) -> str:
    """extra-4-proj-cu124, as uv's markers name the group cu124 of proj where groups exclude each other."""
    name = str(root.get("name", ""))
    return f"extra-{len(name)}-{name}-{group}" if group else ""


def _requirement(package: dict[str, Any], reading: Reading, line: int) -> ProjectAsked:
    source = package.get("source")
    where = source if isinstance(source, dict) else {}
    registry = next((str(where[key]) for key in ("registry", "url", "git") if key in where), "")
    address = registry if "url" in where or "git" in where else ""
    index = "" if address or _PYPI.match(registry) or "://" not in registry else registry
    version = str(package.get("version", ""))
    spec = f"=={version}" if version and not address else ""
    return ProjectAsked(canonical(package["name"]), spec, address, index=index, place=reading.place(line + 1))


def _is_for(package: dict[str, Any], arch: str, *, python: str, extra: str) -> bool:
    markers = _markers(package)
    return not markers or any(marker_holds(each, arch, python=python, extra=extra) for each in markers)


def _markers(package: dict[str, Any]) -> tuple[str, ...]:
    return strings(package.get("resolution-markers"))


def _python(spec: object) -> str:
    return python_fixed(spec) if isinstance(spec, str) else ""


def python_fixed(spec: str) -> str:
    """3.11 of '==3.11.*' or '>=3.11,<3.12'; '' where a spec leaves several."""
    if match := re.fullmatch(r"\s*(?:===?|~=|=)?\s*(3\.\d+)(?:\.[\d*]+)?\s*", spec):
        return match.group(1) if "~" not in spec or spec.count(".") > 1 else ""
    bounds = re.fullmatch(r"\s*>=\s*3\.([0-9]{1,3})(?:\.\d+)?\s*,\s*<\s*3\.([0-9]{1,3})(?:\.0)?\s*", spec)
    return f"3.{bounds.group(1)}" if bounds is not None and int(bounds.group(2)) == int(bounds.group(1)) + 1 else ""

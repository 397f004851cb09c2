"""A run over a fleet as it is handed on: the document of the run's folder with pseudonyms. Pure."""

from __future__ import annotations

from typing import Any

from firstlight.report.host_names import HostNames

_AS_THEY_ARE = ("schema", "made_by", "run", "of", "verb", "at", "end", "digest")


def handed_on(document: dict[str, Any], names: HostNames, *, home: str) -> dict[str, Any]:
    """The same document; hosts, their addresses, whoever called, and the home of that person are not named."""
    renamed: dict[str, Any] = _renamed(document, names, home)
    hosts = [
        {**each, "name": names[real["name"]]} for each, real in zip(renamed["hosts"], document["hosts"], strict=True)
    ]
    return {**renamed, "who": "operator", "hosts": hosts}


def _renamed(value: Any, names: HostNames, home: str) -> Any:
    if isinstance(value, str):
        return names.apply(f"~{value[len(home) :]}" if value.startswith(f"{home}/") else value)
    if isinstance(value, list):
        return [_renamed(each, names, home) for each in value]
    if isinstance(value, dict):
        return {key: each if key in _AS_THEY_ARE else _renamed(each, names, home) for key, each in value.items()}
    return value

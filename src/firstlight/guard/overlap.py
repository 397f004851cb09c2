"""Whether a requirement can bring a banned version, or one that is not kept: by versions at and beside every bound."""

from __future__ import annotations

import re

_VERSION = re.compile(r"\d[\w.!+]*")


def may_bring(spec: str, banned: str) -> bool:
    """Whether some version fits both: True for numpy>=2 and a ban of >=2.3; what cannot be read may bring any."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        asked, ban = SpecifierSet(spec), SpecifierSet(banned)
    except InvalidSpecifier:
        return True
    return any(
        asked.contains(each, prereleases=True) and ban.contains(each, prereleases=True)
        for each in _beside(spec, banned)
    )


def stays_within(spec: str, kept: str) -> bool:
    """Whether every version that a requirement can bring is kept: True for ==2.9.0 and a list that has >=2.9,<3."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        asked, fine = SpecifierSet(spec), SpecifierSet(kept)
    except InvalidSpecifier:
        return False
    return all(
        fine.contains(each, prereleases=True) for each in _beside(spec, kept) if asked.contains(each, prereleases=True)
    )


def _beside(*specs: str) -> list[str]:
    """Versions at, just under and just over every version that is named, and the ends of all."""
    from packaging.version import InvalidVersion, Version

    found = ["0", "0.0.1", "99999"]
    for text in (match.rstrip(".*") for spec in specs for match in _VERSION.findall(spec)):
        found += [text, f"{text}.0", f"{text}.0.1", f"{text}.1", f"{text}.dev0", f"{text}.99999"]
        parts = text.split("+")[0].split(".")
        for at, part in enumerate(parts):
            if part.isdigit():
                found += [
                    ".".join([*parts[:at], str(int(part) + step), *(["0"] if step > 0 else ["99999"])])
                    for step in (1, -1)
                    if int(part) + step >= 0
                ]
    right = []
    for each in found:
        try:
            Version(each)
        except InvalidVersion:
            continue
        right.append(each)
    return list(dict.fromkeys(right))

"""The names of the operating system, from os-release: its own, those of the systems it is made from, its variant."""

from __future__ import annotations

import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_PATHS = ("/etc/os-release", "/usr/lib/os-release")
_LINE = r'(?m)^([A-Z_]{2,30})=["\']?([^"\'\n]{1,120})["\']?[ \t]*$'
# What a derivative says of the release it is made from: Mint 22 has noble here, LMDE 6 bookworm, Rocky 9 platform:el9.
_BASES = ("UBUNTU_CODENAME", "DEBIAN_CODENAME", "PLATFORM_ID")


@dataclass(frozen=True, slots=True)
class OsNames:
    """os-release taken apart, e.g. linuxmint 22, like (ubuntu, debian), made from noble."""

    id: Fact[str]
    version: Fact[str]
    name: Fact[str]
    like: Fact[tuple[str, ...]]  # ID_LIKE, nearest first; () where the system is like no other
    variant: Fact[str]  # VARIANT_ID: silverblue, coreos
    codename: Fact[str]
    base: Fact[str]  # noble, bookworm, el9


def probe_os_names(machine: Machine) -> OsNames:
    """What the release file says; one that cannot be read gives Unknown, never the newest release."""
    for path in _PATHS:
        text = machine.read(path, limit=16 << 10)
        if text is not None:
            return _names({name: value.strip() for name, value in re.findall(_LINE, text)}, path)
    missing = Unknown(f"{_PATHS[0]}: {machine.why_not(_PATHS[0])}")
    return OsNames(missing, missing, missing, missing, missing, missing, missing)


def _names(found: dict[str, str], path: str) -> OsNames:
    def said(name: str) -> Fact[str]:
        return Known(found[name], seen_in=path) if found.get(name) else Unknown(f"{path} has no {name}")

    return OsNames(
        id=said("ID"),
        version=said("VERSION_ID"),
        name=said("PRETTY_NAME"),
        like=Known(tuple(found.get("ID_LIKE", "").split()), seen_in=path),
        variant=said("VARIANT_ID"),
        codename=said("VERSION_CODENAME"),
        base=_base(found, path),
    )


def _base(found: dict[str, str], path: str) -> Fact[str]:
    for name in _BASES:
        if found.get(name):
            return Known(found[name].rpartition(":")[2], seen_in=f"{name} in {path}")
    return Unknown(f"{path} has none of {', '.join(_BASES)}")

"""What hosts are called in what is handed on: one pseudonym for every name and address that leads to a host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from firstlight.facts.pseudonyms import Pseudonyms, is_personal
from firstlight.fleet.ssh import Reached
from firstlight.frozen import dataclass

_NO_NAMES = Pseudonyms((), ())  # addresses, logins and the like, whoever's they are
_ANY_HOST = "host-a"  # what a machine by itself is called
_JUMP = "jump-host"


@dataclass(frozen=True, slots=True)
class HostNames:
    """What each host is called, and the other texts that would tell which it is; none where names are kept."""

    shown: Mapping[str, str]  # node01 -> host-a
    hidden: Mapping[str, str]  # in small letters, as ssh prints names: node01.example.org -> host-a, ann -> user-a
    pattern: re.Pattern[str] | None = None

    def __getitem__(self, host: str) -> str:
        return self.shown[host]

    def apply(self, text: str) -> str:
        """A text of ssh or of a host under these names; as it is where names are kept."""
        if self.pattern is None:
            return text
        return _NO_NAMES.apply(self.pattern.sub(lambda match: self.hidden[match.group(1).lower()], text))

    def of_machine(self, host: str, names: Pseudonyms, value: Any) -> Any:
        """What one host said of itself, a text or a document of texts, under its own names; digests and keys stay."""
        if self.pattern is None:
            return value
        own = ((real, self.shown[host] if stand_in == _ANY_HOST else stand_in) for real, stand_in in names.literals)
        return _renamed(value, replace(names, literals=tuple(own)))


def _renamed(value: Any, names: Pseudonyms) -> Any:
    if isinstance(value, str):
        return names.apply(value)
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if isinstance(value, dict):
        return {key: each if "digest" in key else _renamed(each, names) for key, each in value.items()}
    return value


def real_names(hosts: Iterable[str]) -> HostNames:
    """Every host under its own name, as --identify asks for."""
    return HostNames({host: host for host in hosts}, {})


def pseudonyms_for(hosts: Iterable[str], reached: Iterable[Reached] = ()) -> HostNames:
    """host-a, host-b, ... in the order of the names: one name a host, the same in all files of a run."""
    shown = {name: f"host-{_letters(number)}" for number, name in enumerate(sorted(hosts))}
    hidden: dict[str, str] = {}
    users: dict[str, str] = {}
    for name, pseudonym in shown.items():
        host = name.rpartition("@")[2]
        for part in (host.rpartition(":")[0] if host.count(":") == 1 else host, name):
            hidden[part.lower()] = pseudonym
    for each in reached:
        for part in (each.target.host, each.host, each.key_alias):
            hidden.setdefault(part.lower(), shown[each.target.name])
        for user in (each.target.user, each.user):
            if is_personal(user):
                users.setdefault(user.lower(), f"user-{_letters(len(users))}")
        hidden |= {part.lower(): _JUMP for part in each.jumps if part.lower() not in hidden}
    hidden |= {user: pseudonym for user, pseudonym in users.items() if user not in hidden}
    hidden.pop("", None)
    longest_first = "|".join(re.escape(each) for each in sorted(hidden, key=len, reverse=True))
    # What follows behind a dot is the rest of a name: node01 of node01.example.org
    whole = rf"(?i)(?<![\w.-])({longest_first})(?:\.[a-z][\w-]*)*(?![\w-])"
    return HostNames(shown, hidden, re.compile(whole if hidden else r"(?!)()"))


def _letters(number: int) -> str:
    """a, b, ... z, aa, ab, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text

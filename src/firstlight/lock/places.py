"""Paths as a lock writes them: without names of people and hosts, and folders that differ between machines."""

from __future__ import annotations

import posixpath
import re

from firstlight.facts.collect import Facts
from firstlight.facts.pseudonyms import Pseudonyms
from firstlight.frozen import dataclass

SITE, ENVIRONMENT, HOME = "{site}", "{env}", "~"
_OF_THE_SYSTEM = ("/", "/usr", "/usr/local")
_PATH = re.compile(r"(?<![\w{}~])/[^\s:;,\"'=]*")


@dataclass(frozen=True, slots=True)
class Places:
    """What stands for which folder, longest first: {site} for site-packages, {env} for the environment, ~ for home."""

    stand_ins: tuple[tuple[str, str], ...]
    names: Pseudonyms

    def shown(self, text: str) -> str:
        """A text as the lock has it: '{site}/nvidia/cudnn/lib/libcudnn.so.9'."""
        return self.names.apply(_PATH.sub(lambda match: self._path(match.group(0)), text))

    def _path(self, path: str) -> str:
        plain = posixpath.normpath(path)
        for folder, stand_in in self.stand_ins:
            if plain == folder or plain.startswith(f"{folder}/"):
                return stand_in + plain[len(folder) :]
        return plain

    def real(self, text: str) -> str:
        """The other way round, for this machine: /opt/venv/lib/python3.12/site-packages/..."""
        for folder, stand_in in self.stand_ins:
            text = re.sub(rf"(?<![^:]){re.escape(stand_in)}(?=/|:|$)", folder.replace("\\", r"\\"), text)
        return text


def places_of(facts: Facts, *, home: str, names: Pseudonyms) -> Places:
    """The places of one machine; an environment that is the system's own keeps its paths."""
    found: dict[str, str] = {}
    environment = facts.environment
    if environment is not None:
        found |= dict.fromkeys(environment.site_packages, SITE)
        if environment.prefix not in _OF_THE_SYSTEM:
            found[environment.prefix] = ENVIRONMENT
    if home not in ("", "/"):
        found[home.rstrip("/")] = HOME
    return Places(tuple(sorted(found.items(), key=lambda pair: -len(pair[0]))), names)

"""/etc/ld.so.conf: the folders that ldconfig puts into the cache, read as ldconfig reads them.

The loader itself never reads this: a library in such a folder is found once ldconfig has run. Held against ldconfig in
tests/elf/test_ld_conf.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.machine.interface import Machine

LD_CONF = "/etc/ld.so.conf"

_MOST_INCLUDES = 200  # each may stand inside the one before
_MOST_FOLDERS = 1000  # that the wildcards of one include lead to
_WILDCARDS = "*?["


class ConfiguredFolder(NamedTuple):
    """One line of the configuration, e.g. /usr/local/lib in /etc/ld.so.conf.d/libc.conf."""

    folder: str
    file: str


def configured_folders(machine: Machine, path: str = LD_CONF) -> tuple[str, ...]:
    """Folders that ldconfig puts into the cache, in order, e.g. ('/usr/local/lib', '/lib/x86_64-linux-gnu')."""
    return tuple(dict.fromkeys(each.folder for each in configured(machine, path)))


def configured(machine: Machine, path: str = LD_CONF) -> Iterator[ConfiguredFolder]:
    """Each folder with the file that names it, those of an included file where the include stands."""
    return _of_file(machine, path, seen={path})


def _of_file(machine: Machine, path: str, *, seen: set[str]) -> Iterator[ConfiguredFolder]:
    """Lines of one file; each file is read once. A folder may have blanks in its name, and '=libc6' behind it."""
    for line in (machine.read(path, limit=1 << 16) or "").split("\n"):
        text = line.partition("#")[0].strip()
        word = re.match(r"(include|hwcap)[ \t]+", text)
        if word is None:
            if text.startswith("/"):
                yield ConfiguredFolder(text.partition("=")[0].rstrip().rstrip("/") or "/", path)
        elif word[1] == "include":  # a line of hwcap is for the CPUs of long ago, and ldconfig passes it over
            for pattern in text[word.end() :].split():
                place = pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}"
                for included in _matching(machine, place):
                    if included not in seen and len(seen) < _MOST_INCLUDES:
                        seen.add(included)
                        yield from _of_file(machine, included, seen=seen)


def _matching(machine: Machine, pattern: str) -> list[str]:
    """The paths that a pattern stands for, as glob(3) sorts them; wildcards may stand in every part of it."""
    found = [""]
    for part in pattern.split("/")[1:]:
        if not any(letter in part for letter in _WILDCARDS):
            found = [f"{place}/{part}" for place in found]
            continue
        hidden = part.startswith(".")  # a wildcard does not stand for the dot of a hidden name
        found = [
            f"{place}/{name}"
            for place in found
            for name in machine.list(place or "/", part)
            if hidden or not name.startswith(".")
        ][:_MOST_FOLDERS]
    return sorted(found)

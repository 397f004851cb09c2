"""What a step's commands can have brought: by their words, by what pip, apt and dpkg said, by what packages need."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Set

from firstlight.apply.environments import Environment, Installed
from firstlight.apply.taking import Taking
from firstlight.frozen import dataclass
from firstlight.ways.listed import listed_in
from firstlight.ways.names import normal
from firstlight.ways.step import CheckKind, Step

_READ_LIMIT = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_BY_PIP = re.compile(r"(?m)^Installing collected packages: (.*)$")
_BY_DPKG = re.compile(
    r"(?m)^(?:Selecting previously unselected package|Unpacking|Setting up|Removing|Preparing to unpack \S*/)"
    r" ?([a-z0-9][a-z0-9+.-]*)"
)
_BY_APT = re.compile(r"(?m)^\S.*:\n((?:  .*\n)+)")  # a heading, then names with two blanks before them


@dataclass(frozen=True, slots=True)
class Brought:
    """The names that a step can have brought, and the folders that packages of these names write to."""

    names: frozenset[str]
    folders: frozenset[str] = frozenset()

    def explains(self, path: str) -> bool:
        """Whether a package of these names would write there: by the folder's own name, or by a RECORD."""
        if any(path == each or path.startswith(each + os.sep) for each in self.folders):
            return True
        top = re.split(r"/(?:site|dist)-packages/", path)[-1].split(os.sep)[0]
        return normal(re.sub(r"(\.cpython-.*|\.abi3)?\.(py|pth|so)$", "", top)) in self.names


def brought_packages(taking: Taking) -> Brought:
    """Debian packages that the step's command names, or that apt and dpkg said they were at work on."""
    said = _log(taking)
    names = {word for argv in taking.step.commands if "install" in argv for word in argv[argv.index("install") + 1 :]}
    names |= set(_BY_DPKG.findall(said))
    names |= {word.rstrip("*") for listed in _BY_APT.findall(said) for word in listed.split()}
    return Brought(frozenset(names))


def brought_distributions(taking: Taking, now: Environment) -> Brought:
    """Packages that the step names or that pip said it installs, and all that those need."""
    found = _named(taking.step) | {
        normal(name) for listed in _BY_PIP.findall(_log(taking)) for name in listed.split(", ")
    }
    todo = list(found)
    while todo:
        for each in now.named(todo.pop()):
            new = _needs(each) - found
            found |= new
            todo += new
    return Brought(frozenset(found), _folders(now, found))


def with_folders(brought: Brought, now: Environment) -> Brought:
    """With the folders of what is there now, e.g. after versions of before came back."""
    return Brought(brought.names, brought.folders | _folders(now, brought.names))


def _named(step: Step) -> set[str]:
    words = [word for argv in step.commands if "install" in argv for word in argv[argv.index("install") + 1 :]]
    words += [word for each in step.done_when if each.kind is CheckKind.DISTRIBUTIONS for word in each.expected.split()]
    words += [name for change in step.files for name in listed_in(change.after)]
    found = (_NAME.match(word) for word in words if "/" not in word)
    return {normal(match[0]) for match in found if match}


def _log(taking: Taking) -> str:
    path = f"{taking.acting.folder}/logs/run-{taking.run.number:04d}-{taking.step.id}.log"
    return _text(path).replace("\r", "\n")


def _text(path: str) -> str:
    """What a file says; "" where it cannot be read: it then explains nothing, and what it would have is asked for."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_READ_LIMIT)
    except OSError:
        return ""


def _needs(installed: Installed) -> set[str]:
    head = _text(os.path.join(installed.path, "METADATA")).partition("\n\n")[0]
    found = set()
    for line in head.splitlines():
        key, _, value = line.partition(":")
        if key.lower() == "requires-dist":
            wanted, _, marker = value.strip().partition(";")
            name = _NAME.match(wanted)
            if name and "extra" not in marker:  # what only an extra wants came only where it was asked for
                found.add(normal(name[0]))
    return found


def _folders(now: Environment, names: Set[str]) -> frozenset[str]:
    """The folders of packages by their RECORDs; of one that others share, those in it."""
    ours = [each for each in now.distributions if each.name in names]
    others = [each for each in now.distributions if each.name not in names]
    shared = {top for each in others for top in _tops(each, 1)}
    first = {top for each in ours for top in _tops(each, 1)}
    second = {top for each in ours for top in _tops(each, 2)} if first & shared else set()
    return frozenset(first - shared) | frozenset(each for each in second if os.path.dirname(each) in shared)


def _tops(installed: Installed, depth: int) -> set[str]:
    site = os.path.dirname(installed.path)
    rows = csv.reader(_text(os.path.join(installed.path, "RECORD")).splitlines())
    try:
        parts = [os.path.normpath(row[0]).split(os.sep) for row in rows if row]
    except csv.Error:
        return set()
    return {os.path.join(site, *each[:depth]) for each in parts if len(each) > depth and each[0] != os.pardir}

"""What a plan is given besides the machine and the option: settings, checkouts, texts of files, and where things go."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.ways.back import copy_of
from firstlight.ways.diffs import FileText
from firstlight.ways.step import Step

if TYPE_CHECKING:
    from firstlight.ways.shelf import Shelf  # packaging is slow to import, and most plans have no shelf

_NOT_A_HOME = ("/usr/local", "/opt", "/workspace")  # the other folders that facts.ability looks at


@dataclass(frozen=True, slots=True)
class Setting:
    """One runtime setting that was asked for, e.g. CUDA_MODULE_LOADING=LAZY."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Checkout:
    """A source tree at a commit, e.g. cutlass v4.2.1 at f3fde583..."""

    project: str
    tag: str
    commit: str
    address: str


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """One installed package of the distribution, e.g. libcudnn9-cuda-13 9.23.0.50-1."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Extras:
    """Everything beside the option; "" for a folder: the usual place under the home that the facts show."""

    settings: tuple[Setting, ...] = ()
    checkouts: tuple[Checkout, ...] = ()
    files: tuple[FileText, ...] = ()
    home: str = ""
    state: str = ""
    closing: tuple[Step, ...] | None = None  # what closes the chain of libraries here; None: nobody looked
    taken: tuple[str, ...] = ()  # names that a copy of a file may not have: something lies there already
    unread: tuple[str, ...] = ()  # files that may be there: a saved machine does not have them
    shelf: Shelf | None = None  # of `apply --offline`: wheels come from there and from nowhere else
    packages: tuple[SystemPackage, ...] = ()  # those that dpkg has installed; () where nobody asked it

    def text_of(self, path: str) -> str | None:
        """The text of a file as it is now, None where it was not read."""
        return next((file.text for file in self.files if file.path == path), None)

    def packages_named(self, pattern: str) -> tuple[SystemPackage, ...]:
        """The installed packages that a name or a pattern means, e.g. libcudnn9-*."""
        return tuple(each for each in self.packages if fnmatch.fnmatchcase(each.name, pattern))

    def after(self, step: Step) -> Extras:
        """The texts as a step leaves them, for the steps that follow it."""
        changed = {change.path: change for change in step.files if not change.links_to}
        kept = tuple(file for file in self.files if file.path not in changed)
        written = tuple(FileText(path, change.after) for path, change in changed.items() if not change.removes)
        copies = tuple(path for back in step.back for path in copy_of(back))
        return replace(self, files=(*kept, *written), taken=(*self.taken, *copies))

    def home_for(self, facts: Facts) -> str:
        """The home folder, e.g. /root; guessed from the folders that were looked at where it was not given."""
        if self.home:
            return self.home.rstrip("/")
        seen = (each.path for each in facts.ability.prefixes)
        likely = (path for path in seen if path.startswith(("/home/", "/root")) and path not in _NOT_A_HOME)
        found = next(likely, "/root" if facts.ability.is_root else "/home/user")
        return "/".join(found.split("/")[:3]) if found.startswith("/home/") else "/root"

    def state_for(self, facts: Facts) -> str:
        """Where firstlight keeps what it writes, e.g. /root/.local/state/firstlight."""
        return self.state.rstrip("/") or f"{self.home_for(facts)}/.local/state/firstlight"

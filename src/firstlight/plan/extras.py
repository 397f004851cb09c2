"""What a plan is given besides the machine and the option: settings, checkouts, texts of files, and where things go."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.plan.diffs import FileText
from firstlight.plan.shelf import Shelf

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
class Extras:
    """Everything beside the option; "" for a folder: the usual place under the home that the facts show."""

    settings: tuple[Setting, ...] = ()
    checkouts: tuple[Checkout, ...] = ()
    files: tuple[FileText, ...] = ()
    home: str = ""
    state: str = ""
    shelf: Shelf | None = None  # of `apply --offline`: wheels come from there and from nowhere else

    def text_of(self, path: str) -> str | None:
        """The text of a file as it is now, None where it was not read."""
        return next((file.text for file in self.files if file.path == path), None)

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

"""From the gaps of a chain to steps: what to install, what to link, and what a person has to do."""

from __future__ import annotations

from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.facts.known import Fact, Known
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis, analyse
from firstlight.libraries.closing import Closing, ComesFrom, Loading, Need, close, site_to_change
from firstlight.libraries.local_wheels import LocalWheel
from firstlight.libraries.providers import Brought, Provided
from firstlight.libraries.target import Surroundings, Target
from firstlight.libraries.wheel_machine import Wheel, WheelMachine
from firstlight.specifiers import newest, satisfies
from firstlight.tables import Tables

_MOST_LOOKS = 12


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link that puts a library on a search path."""

    path: str
    leads_to: str


@dataclass(frozen=True, slots=True)
class Pick:
    """A package to install in one version, e.g. nvidia-cudss-cu13 0.8.0.10."""

    project: str
    version: str
    sonames: tuple[str, ...]  # the libraries it is for; () where another package requires it
    paths: tuple[str, ...]  # of these, under site-packages
    bytes: Fact[int]  # of the wheel
    again: bool  # it is installed in that version, and a file of it is gone or damaged
    required_by: str = ""  # of one that is not for a library itself: nvidia-cudss-cu13 requires nvidia-cublas


@dataclass(frozen=True, slots=True)
class Fix:
    """What closes the chain in one go, as far as it can be known beforehand."""

    needs: tuple[Need, ...]  # all that were met, also those of the libraries that come in
    picks: tuple[Pick, ...]
    links: tuple[Link, ...]
    preloads: tuple[str, ...]  # files to open beforehand, each after what it needs itself
    closing: Closing  # the first one: for what was missing to begin with

    @property
    def left(self) -> tuple[Need, ...]:
        """What no package here can bring."""
        return tuple(need for need in self.needs if need.way in (ComesFrom.SYSTEM, ComesFrom.DRIVER, ComesFrom.UNKNOWN))

    @property
    def is_empty(self) -> bool:
        return not self.picks and not self.links and not self.preloads


def work_out(
    around: Surroundings, analysis: Analysis, tables: Tables, *, shelf: tuple[LocalWheel, ...] | None = None
) -> Fix:
    """What to install and link; `shelf` are wheels at hand, else versions are taken as the index has them.

    A wheel at hand is read before it is installed, so that what its libraries need in turn is part of the same fix. Of
    one that is still to be fetched only the names of its libraries are known: where they miss something, another
    fix follows.
    """
    draft = _Draft(around, analysis.target, tables, shelf)
    first = closing = draft.close(analysis)
    for _ in range(_MOST_LOOKS):
        if not draft.take(closing) or draft.fetches:
            break
        analysis = analyse(draft.around, analysis.target)
        closing = draft.close(analysis)
    return Fix(
        needs=tuple(draft.needs.values()),
        picks=tuple(draft.picks.values()),
        links=tuple(Link(path, leads) for path, leads in draft.links.items()),
        preloads=tuple(draft.preloads),
        closing=first,
    )


class _Draft:
    """A fix while it grows, and the machine as it would be with what is in it so far."""

    def __init__(
        self, around: Surroundings, target: Target, tables: Tables, shelf: tuple[LocalWheel, ...] | None
    ) -> None:
        self.around, self._real, self._target, self._tables, self._shelf = around, around, target, tables, shelf
        self.needs: dict[str, Need] = {}
        self.picks: dict[str, Pick] = {}
        self.links: dict[str, str] = {}
        self.preloads: list[str] = []
        self.fetches = False  # something comes from the index: what it needs is not known yet
        self._wheels: dict[str, Wheel] = {}
        self._site = site_to_change(around, target)

    def close(self, analysis: Analysis) -> Closing:
        """Who brings what is missing now; what is picked already counts as installed."""
        closing = close(self.around, analysis, self._tables)
        return replace(closing, needs=tuple(self._as_picked(need) for need in closing.needs))

    def _as_picked(self, need: Need) -> Need:
        """A second library of a wheel that is picked has only to be reached."""
        picked = need.provided and need.provided[0].project in self._wheels
        return replace(need, way=ComesFrom.LINK) if picked and need.way is ComesFrom.INSTALL else need

    def take(self, closing: Closing) -> bool:
        """Add what closes these gaps; False where nothing new came in."""
        before = (len(self.picks), len(self.links), len(self.preloads))
        for need in closing.needs:
            self.needs.setdefault(need.missing.name, need)
            if need.way in (ComesFrom.INSTALL, ComesFrom.REINSTALL):
                self._pick(need.provided[0], again=need.way is ComesFrom.REINSTALL)
            if need.way in (ComesFrom.INSTALL, ComesFrom.LINK, ComesFrom.REINSTALL):
                self._reach(need)
        if any(need.way is ComesFrom.INSTALL for need in closing.needs):
            for each in closing.brought:
                self._bring(each)
        self.around = replace(
            self._real,
            machine=WheelMachine(self._real.machine, self._site, tuple(self._wheels.values()), links=self.links),
            preloads=(*self.preloads, *self._real.preloads),
        )
        return before != (len(self.picks), len(self.links), len(self.preloads))

    def _pick(self, provided: Provided, *, again: bool) -> None:
        known = self.picks.get(provided.project)
        version, size = provided.version, provided.bytes
        if known is not None:
            version, size = known.version, known.bytes
        elif self._shelf is not None and not again:
            version, size = self._from_shelf(provided.project, provided.requirement)
        self.picks[provided.project] = Pick(
            project=provided.project,
            version=version,
            sonames=(*(known.sonames if known is not None else ()), provided.soname),
            paths=(*(known.paths if known is not None else ()), provided.path),
            bytes=size,
            again=again,
        )
        self.fetches = self.fetches or self._shelf is None

    def _bring(self, brought: Brought) -> None:
        """A package that a picked one requires: named with its version, so that it agrees with torch's pins."""
        if brought.project in self.picks or not brought.version:
            return
        project, version, size = brought.project, brought.version, brought.bytes
        if self._shelf is not None:
            project = project.partition("[")[0]
            at_hand = tuple(wheel.name.version for wheel in self._shelf if wheel.name.project == project)
            if not at_hand or project in self.picks:
                return  # pip says what is lacking, before it installs anything
            best = version if version in at_hand else newest(at_hand)
            version, size = self._from_shelf(project, f"{project}=={best}")
        self.picks[project] = Pick(project, version, (), (), size, again=False, required_by=brought.required_by)

    def _from_shelf(self, project: str, requirement: str) -> tuple[str, Fact[int]]:
        """The newest wheel at hand that fits, with its size; it is laid over the machine."""
        assert self._shelf is not None
        wheels = {wheel.name.version: wheel for wheel in self._shelf if wheel.name.project == project}
        spec = requirement.removeprefix(project)
        fitting = {version: wheel for version, wheel in wheels.items() if satisfies(version, spec)}
        if not fitting:
            have = f"it has {', '.join(sorted(wheels))}" if wheels else "it has none of that project"
            raise BadInput(
                f"--find-links: a wheel of {requirement} for {self._target.arch} is needed, and {have}. Put one there, "
                "or leave --find-links out to take it from the index."
            )
        version = newest(tuple(fitting))
        self._wheels[project] = Wheel(fitting[version].path)
        return version, Known(fitting[version].bytes, "sizes of the wheels in the folder")

    def _reach(self, need: Need) -> None:
        leads = f"{self._site}/{need.provided[0].path}"
        if need.loading is Loading.LINK and need.link not in self.links:
            self.links[need.link] = leads
        if need.loading is Loading.PRELOAD and need.way is ComesFrom.LINK and leads not in self.preloads:
            self.preloads.insert(0, leads)  # what is met later is needed by what was met before

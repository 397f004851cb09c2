"""The search behind provider_choice: a version for each project, so that all of them and their requirements agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.specifiers import newest, satisfies
from firstlight.tables import Tables
from firstlight.tables.row import Pin
from firstlight.tables.soname_rows import SonameWheel

_TOOLKIT = "cuda-toolkit"  # requires by extras: [cublas] brings nvidia-cublas
_EXTRAS = {"cudart": "runtime"}  # where the extra is not called as the project is
_MOST_TRIES = 5000  # a real set takes tens; beyond it no agreement is said to exist


@dataclass(frozen=True, slots=True)
class Shelf:
    """What there is to choose from on an arch, what torch pins (nvidia-cublas: ==13.1.0.3) and what is installed."""

    arch: str
    pins: Mapping[str, str]
    installed: Mapping[str, str]
    tables: Tables

    def versions(self, project: str) -> tuple[str, ...]:
        """The releases of a project, oldest first."""
        if plain(project) == _TOOLKIT:
            return tuple(row.release for row in self.tables.toolkit_wheels)
        rows = self.tables.library_releases(project, machine=self.arch)
        return tuple(version for row in rows for version in row.versions)

    def requires(self, project: str, version: str) -> tuple[Pin, ...]:
        """What a release requires of the projects that the tables follow, the toolkit named with its extras."""
        if plain(project) == _TOOLKIT:
            parts = next((row.parts for row in self.tables.toolkit_wheels if row.release == version), ())
            return tuple(part for part in parts if _is_part_of(part.project, project))
        rows = self.tables.library_releases(project, machine=self.arch)
        pins = next((row.requires for row in rows if version in row.versions), ())
        return tuple(replace(pin, project=_with_extras(pin)) for pin in pins if self._is_followed(pin.project))

    def _is_followed(self, project: str) -> bool:
        """Not setuptools and the like, which are small and agree with anything."""
        tables = self.tables
        return bool(self.versions(project)) or tables.placeholder_project(project) is not None

    def size(self, project: str, version: str) -> Fact[int]:
        """The size of a wheel: 80682451 of nvidia-cudss-cu13 0.8.0.10 for x86_64."""
        if plain(project) == _TOOLKIT:
            return Known(0, "a package of some KB that only requires others")
        for row in self.tables.library_releases(project, machine=self.arch):
            if version in row.versions:
                return Known(row.bytes[row.versions.index(version)], f"PyPI's list of files, {row.date}")
        return Unknown(f"the size of {project} {version} is not in the tables")

    def here(self, project: str) -> str:
        """The version that is installed, e.g. 13.1.0.3; '' when none is."""
        return self.installed.get(plain(project), "")

    def elsewhere(self, soname: str) -> tuple[SonameWheel, ...]:
        """The wheels for other machines that have a library."""
        return tuple(row for row in self.tables.soname_wheels if row.soname == soname and row.machine != self.arch)

    def with_library(self, rows: tuple[SonameWheel, ...]) -> tuple[str, ...]:
        """The releases of the rows' project that ship a library, oldest first; with those too new for the tables.

        A version that is pinned or installed and later than every known one is taken to ship what the newest does.
        """
        project = rows[0].project
        known = self.versions(project)
        found = [version for version in known if any(in_run(version, row) for row in rows)]
        if any(row.in_newest for row in rows):
            exact = re.fullmatch(r"==([^,*]+)", self.pins.get(project, ""))
            for version in dict.fromkeys(filter(None, (exact[1] if exact else "", self.installed.get(project, "")))):
                if version not in known and newest((*known, version)) == version:
                    found.append(version)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the search found: a run and a version for each library, what it brings, and what was refused and why."""

    taken: Mapping[str, tuple[SonameWheel, str]]
    overruled: Mapping[str, str]  # project -> what torch pins, where no such release has what torch needs
    brought: Mapping[str, tuple[str, str]]  # project -> version, who requires it
    refused: Mapping[str, str]

    def sonames(self, project: str) -> tuple[SonameWheel, ...]:
        return tuple(row for row, _ in self.taken.values() if row.project == project)


def agreeing_versions(shelf: Shelf, fitting: Mapping[str, tuple[SonameWheel, ...]]) -> Agreed:
    """One version for each project that the libraries need; a library that cannot join the others is refused."""
    wanted: dict[str, dict[str, tuple[SonameWheel, ...]]] = {}
    for soname, rows in fitting.items():
        project = _project_for(shelf, rows, fitting=fitting)
        wanted.setdefault(project, {})[soname] = tuple(row for row in rows if row.project == project)
    overruled = _pins_that_give_way(shelf, wanted)
    shelf = replace(shelf, pins={project: pin for project, pin in shelf.pins.items() if project not in overruled})
    refused: dict[str, str] = {}
    options: dict[str, tuple[str, ...]] = {}
    versions: dict[str, str] = {}
    for project, libraries in wanted.items():
        options[project] = _versions_with_all(shelf, libraries, refused=refused)
        found = _search(shelf, tuple(options), options=options) if options[project] else None
        if found is None:
            del options[project]
            reason = f"no release of {project} that has it agrees with the other packages and with what torch pins"
            refused |= {soname: reason for soname in libraries if soname not in refused}
        else:
            versions = found
    taken = {
        soname: (_row_of(rows, versions[project]), versions[project])
        for project, libraries in wanted.items()
        for soname, rows in libraries.items()
        if project in options and soname not in refused
    }
    brought = {project: version for project, version in versions.items() if project not in options}
    askers = {project: _asker(shelf, project, versions=versions) for project in brought}
    asked_for = {project: (version, askers[project]) for project, version in brought.items()}
    return Agreed(taken, overruled, asked_for, refused)


def _pins_that_give_way(shelf: Shelf, wanted: Mapping[str, Mapping[str, tuple[SonameWheel, ...]]]) -> dict[str, str]:
    """Pins under which nothing that is missing can come, of projects that are not there: what is needed is the truth.

    Where the pinned version is installed it stays: a libcudnn.so.8 for one extension would take torch its own 9.
    """
    found = {}
    for project, libraries in wanted.items():
        pin = shelf.pins.get(project, "")
        have = shelf.installed.get(project, "")
        if not pin or (have and satisfies(have, pin) is not False):
            continue
        offered = [version for rows in libraries.values() for version in shelf.with_library(rows)]
        if not any(satisfies(version, pin) is not False for version in offered):
            found[project] = pin
    return found


def _project_for(shelf: Shelf, rows: tuple[SonameWheel, ...], *, fitting: Mapping[str, tuple[SonameWheel, ...]]) -> str:
    """Of several projects the one that torch pins, else that has most of the libraries, else that is there."""

    def rank(project: str) -> tuple[object, ...]:
        has = sum(any(row.project == project for row in each) for each in fitting.values())
        # nvidia-cudnn-jit-cu13 has libcudnn.so.9 as well, and next to nothing beside it.
        return (
            project not in shelf.pins,
            -has,
            project not in shelf.installed,
            "-jit-" in project,
            len(project),
            project,
        )

    return min({row.project for row in rows}, key=rank)


def _versions_with_all(
    shelf: Shelf, libraries: Mapping[str, tuple[SonameWheel, ...]], *, refused: dict[str, str]
) -> tuple[str, ...]:
    """The releases that have all the libraries of a project and that torch's pin takes; says which cannot join."""
    kept: tuple[str, ...] = ()
    beside = ""
    for soname, rows in libraries.items():
        project, pin = rows[0].project, shelf.pins.get(rows[0].project, "")
        own = shelf.with_library(rows)
        pinned = tuple(version for version in own if satisfies(version, pin) is not False)
        both = tuple(version for version in pinned if version in kept) if beside else pinned
        if both:
            kept, beside = both, beside or soname
        elif not pinned and own:
            refused[soname] = f"{project} has it in {own[0]} to {own[-1]}, and torch pins {project}{pin}"
        elif pinned:
            refused[soname] = f"{project} has it in {pinned[0]} to {pinned[-1]}, and none of these has {beside}"
        else:
            refused[soname] = f"the releases of {project} for {shelf.arch} are not in the tables"
    return kept


def _search(shelf: Shelf, goals: tuple[str, ...], *, options: Mapping[str, tuple[str, ...]]) -> dict[str, str] | None:
    """Versions for the goals and for what they require, newest first; None when no set agrees."""
    tries = 0

    def settle(
        todo: tuple[str, ...], taken: dict[str, str], specs: dict[str, tuple[str, ...]]
    ) -> dict[str, str] | None:
        nonlocal tries
        if not todo:
            return taken
        project = todo[0]
        for version in _in_order(shelf, project, known=options.get(project), specs=specs.get(project, ())):
            tries += 1
            if tries > _MOST_TRIES:
                return None
            asked = () if version == shelf.installed.get(project) else shelf.requires(project, version)
            if any(shelf.tables.placeholder_project(pin.project) for pin in asked):
                continue  # nvidia-cudss-cu13 0.7.1.4 requires nvidia-cublas-cu13, which holds nothing
            if any(satisfies(taken[pin.project], pin.spec) is False for pin in asked if taken.get(pin.project)):
                continue
            more = dict(specs)
            for pin in asked:
                more[pin.project] = (*more.get(pin.project, ()), pin.spec)
            now = {**taken, project: version}
            later = dict.fromkeys((*todo[1:], *(pin.project for pin in asked)))
            found = settle(tuple(name for name in later if name not in now), now, more)
            if found is not None:
                return found
        return None

    return settle(goals, {}, {})


def _in_order(shelf: Shelf, project: str, *, known: tuple[str, ...] | None, specs: tuple[str, ...]) -> tuple[str, ...]:
    """The versions to try: the installed one, then those that leave what is installed alone, each from the newest."""
    versions = shelf.versions(project) if known is None else known
    have, pin = shelf.here(project), shelf.pins.get(plain(project), "")
    exact = re.fullmatch(r"==([^,*]+)", pin)
    if known is None:  # a version that is there or pinned may be too new for the tables
        versions = tuple(dict.fromkeys((*versions, *filter(None, (exact[1] if exact else "", have)))))
    wanted = [spec for spec in (pin, *specs) if spec]
    fine = [version for version in versions if all(satisfies(version, spec) is not False for spec in wanted)]
    fine.reverse()

    def disturbs(version: str) -> tuple[bool, int]:
        asked = () if version == have else shelf.requires(project, version)
        there = ((shelf.here(each.project), each.spec) for each in asked)
        return version != have, sum(1 for here, spec in there if here and satisfies(here, spec) is False)

    return tuple(sorted(fine, key=disturbs))


def plain(project: str) -> str:
    """A project without extras: cuda-toolkit of cuda-toolkit[cublas]."""
    return project.partition("[")[0]


def _with_extras(pin: Pin) -> str:
    extras = pin.extras if pin.project == _TOOLKIT else ()
    return f"{pin.project}[{','.join(extras)}]" if extras else pin.project


def _is_part_of(part: str, toolkit: str) -> bool:
    """Whether an extra of the toolkit brings a part: cuda-toolkit[cudart] brings nvidia-cuda-runtime-cu12."""
    extras = toolkit.partition("[")[2].removesuffix("]").split(",")
    bare = re.sub(r"^nvidia-(cuda-)?|-cu\d\d$", "", part)
    return bare in {_EXTRAS.get(extra, extra) for extra in extras}


def _row_of(rows: tuple[SonameWheel, ...], version: str) -> SonameWheel:
    """The run that a version belongs to; the newest run for a version that is too new for the tables."""
    own = next((row for row in rows if in_run(version, row)), None)
    return own or next(row for row in rows if row.in_newest)


def _asker(shelf: Shelf, project: str, *, versions: Mapping[str, str]) -> str:
    for asker, version in versions.items():
        if any(pin.project == project for pin in shelf.requires(asker, version)):
            return asker
    return ""


def in_run(version: str, row: SonameWheel) -> bool:
    """Whether a version is of a run: 0.8.0.10 is of 0.7.0.20 to 0.8.0.10."""
    return satisfies(version, f">={row.first},<={row.last}") is True


def lower_bound(firsts: tuple[str, ...], version: str) -> str:
    """The highest beginning of several runs that is not above a version: 0.7.0.20."""
    return newest(tuple(first for first in firsts if satisfies(version, f">={first}") is True)) or version

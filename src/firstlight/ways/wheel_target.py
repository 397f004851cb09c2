"""Wheels for another machine: which files it takes, and what is missing among files that shall install there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

MACHINES = ("x86_64", "aarch64")
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}  # by the minor of glibc 2.x
_OLDEST_GLIBC = 5


@dataclass(frozen=True, slots=True)
class Target:
    """What wheels are for, e.g. x86_64, Python 3.12, glibc 2.28 or newer."""

    machine: str
    python: str  # 3.12
    glibc: str  # 2.28

    @property
    def words(self) -> str:
        return f"{self.machine}, Python {self.python}, glibc {self.glibc} or newer"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A wheel by its name, and the Requires-Dist lines inside."""

    name: str  # torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl
    requires: tuple[str, ...]

    @property
    def project(self) -> str:
        return str(_parsed(self.name)[0])

    @property
    def version(self) -> str:
        return str(_parsed(self.name)[1])

    def says(self, project: str, version: str) -> bool:
        """Whether a name and a version, as its metadata have them, are those in the name of the file."""
        try:
            return canonicalize_name(project) == self.project and Version(version) == _parsed(self.name)[1]
        except InvalidVersion:
            return False


def processor_called(text: str) -> str:
    """x86_64 or aarch64 by the name that --platform has, also by those of images: amd64, arm64."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(text, text)
    if machine not in MACHINES:
        raise BadInput(
            f"--platform {text[:40]!a}: accepted: {', '.join(MACHINES)}, or as images call them amd64, arm64."
        )
    return machine


def target_of(machine: str, python: str, glibc: str) -> Target:
    """A target that was asked for; refuses what no wheel is for."""
    machine = processor_called(machine)
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise BadInput(f"--python {python[:40]!a}: accepted is a minor release of Python 3, e.g. 3.12.")
    if not re.fullmatch(r"2\.\d{1,2}", glibc):
        raise BadInput(f"--glibc {glibc[:40]!a}: accepted is a release of glibc 2, e.g. 2.28.")
    return Target(machine, python, glibc)


def platforms(target: Target) -> Iterator[str]:
    """The platform tags that the machine takes, newest glibc first: manylinux_2_28_x86_64 ... linux_x86_64."""
    for minor in range(int(target.glibc.partition(".")[2]), _OLDEST_GLIBC - 1, -1):
        yield f"manylinux_2_{minor}_{target.machine}"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_{target.machine}"
    yield f"linux_{target.machine}"  # earlier wheels on PyTorch's index go by it


def pip_flags(target: Target) -> tuple[str, ...]:
    """What tells `pip download` which machine the wheels are for."""
    tag = "cp" + target.python.replace(".", "")
    flags = ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    flags += [word for abi in (tag, "abi3", "none") for word in ("--abi", abi)]
    return (*flags, *(word for name in platforms(target) for word in ("--platform", name)))


def takes(target: Target, name: str) -> bool:
    """Whether a wheel installs there, by the tags in its name."""
    return not _tags(target).isdisjoint(_parsed(name)[2])


def is_wheel_for(target: Target, name: str) -> bool:
    """The same for any file: one that pip would not take for a wheel by its name is none."""
    try:
        return name.endswith(".whl") and takes(target, name)
    except BadInput:
        return False


def _tags(target: Target) -> set[Tag]:
    version = tuple(int(part) for part in target.python.split("."))
    names = [*platforms(target)]
    interpreter = "cp" + target.python.replace(".", "")
    native = cpython_tags(version, abis=[interpreter], platforms=names)
    return {*native, *compatible_tags(version, interpreter, names)}


def _parsed(name: str) -> tuple[NormalizedName, Version, frozenset[Tag]]:
    try:
        project, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise BadInput(f"{name[:120]!a} is not the name of a wheel: {error}.") from None
    return project, version, tags


def missing(requirements: Iterable[str], wheels: tuple[WheelFile, ...], target: Target) -> tuple[str, ...]:
    """What has to be there too, so that the requirements install from these files alone; () where nothing lacks.

    Markers are read for the target: pip reads them for the machine that downloads, and leaves out what only the other
    one needs.
    """
    bounds: dict[str, SpecifierSet] = {}
    todo = [Requirement(text) for text in requirements]
    lacking: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()
    while todo:
        wanted = todo.pop()
        project = canonicalize_name(wanted.name)
        bounds[project] = bounds.get(project, SpecifierSet()) & wanted.specifier
        key = (project, str(sorted(wanted.extras)) + str(wanted.specifier))
        if key in seen:
            continue
        seen.add(key)
        wheel = best_of(project, wheels, bounds=bounds[project], target=target)
        if wheel is None:
            lacking[project] = None
            continue
        todo += needed_by(wheel, frozenset(wanted.extras), target)
    return tuple(sorted(f"{project}{bounds[project]}" for project in lacking))


def best_of(project: str, wheels: tuple[WheelFile, ...], *, bounds: SpecifierSet, target: Target) -> WheelFile | None:
    """The newest wheel of a project within bounds that the target takes."""
    fitting = [
        wheel
        for wheel in wheels
        if wheel.project == project and takes(target, wheel.name) and bounds.contains(wheel.version, prereleases=True)
    ]
    return max(fitting, key=lambda wheel: Version(wheel.version), default=None)


def needed_by(wheel: WheelFile, extras: frozenset[str], target: Target) -> Iterator[Requirement]:
    """What a wheel requires on the target, with those extras."""
    for text in wheel.requires:
        try:
            requirement = Requirement(text)
            if requirement.marker is None or _holds(requirement.marker, extras, target):
                yield requirement
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            raise BadInput(f"{wheel.name} requires {text[:120]!a}, which is not a requirement. Take it out.") from None


def _holds(marker: Marker, extras: frozenset[str], target: Target) -> bool:
    there = {
        "implementation_name": "cpython",
        "implementation_version": f"{target.python}.0",
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
    }
    return any(marker.evaluate({**there, "extra": extra}) for extra in ("", *extras))

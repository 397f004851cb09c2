"""Wheels in a folder, each with its digest: which of them a step takes, as pip and uv read it from a file. Pure."""

from __future__ import annotations

import hashlib

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.ways.wheel_target import Target, WheelFile, best_of, needed_by, takes

_MOST_ROUNDS = 1000  # of bounds that grow while wheels are chosen; each round adds one or is the last


@dataclass(frozen=True, slots=True)
class ListedWheel:
    """A file that may be installed from, e.g. torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl."""

    wheel: WheelFile
    sha256: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder, and the files in it that may be reached: nothing else that lies there is."""

    folder: str
    wheels: tuple[ListedWheel, ...]
    target: Target  # the machine that they are installed on
    lists: str  # the folder for the files that name them to pip and uv, e.g. /root/.local/state/firstlight/wheels
    installed: tuple[str, ...] = ()  # name==version of all that is in the environment already

    def version_before(self, project: str) -> str:
        """The version that is installed, "" where there is none."""
        return dict(each.split("==", 1) for each in self.installed).get(project, "")

    def taken_for(self, requirements: tuple[str, ...]) -> tuple[WheelFile, ...]:
        """The wheels that bring the requirements and what they need; what is installed and will do stays.

        One that lacks is refused here, before anything is begun: pip is told to look for nothing beside the list.
        """
        wheels = tuple(each.wheel for each in self.wheels if takes(self.target, each.wheel.name))
        bounds: dict[str, SpecifierSet] = {}
        chosen: dict[str, WheelFile] = {}
        asked = [_requirement(text) for text in requirements]
        named = {str(canonicalize_name(each.name)) for each in asked}
        todo, seen = list(asked), set[tuple[str, str]]()
        for _ in range(_MOST_ROUNDS):
            if not todo:
                break
            wanted = todo.pop()
            project = str(canonicalize_name(wanted.name))
            key = (project, f"{sorted(wanted.extras)}{wanted.specifier}")
            if key in seen:
                continue
            seen.add(key)
            bounds[project] = bounds.get(project, SpecifierSet()) & wanted.specifier
            if project not in named and _will_do(self.version_before(project), bounds[project]):
                continue
            wheel = best_of(project, wheels, bounds=bounds[project], target=self.target)
            if wheel is None:
                raise BadInput(self._lacks(project, bounds[project]))
            chosen[project] = wheel
            todo += needed_by(wheel, frozenset(wanted.extras), self.target)
        return tuple(chosen[project] for project in sorted(chosen))

    def taken_alone(self, requirements: tuple[str, ...]) -> tuple[WheelFile, ...]:
        """The wheels of the requirements themselves, without what they need."""
        wheels = tuple(each.wheel for each in self.wheels)
        found: list[WheelFile] = []
        for wanted in map(_requirement, requirements):
            project = str(canonicalize_name(wanted.name))
            wheel = best_of(project, wheels, bounds=wanted.specifier, target=self.target)
            if wheel is None:
                raise BadInput(self._lacks(project, wanted.specifier))
            found.append(wheel)
        return tuple(found)

    def _lacks(self, project: str, bounds: SpecifierSet) -> str:
        have = ", ".join(sorted(each.wheel.name for each in self.wheels if each.wheel.project == project))
        return (
            f"{self.folder}: a wheel of {project}{bounds} for {self.target.words} is needed, and it has "
            f"{have or 'none of that project'}. Put one there, or make the folder with `firstlight bundle`."
        )

    def line(self, project: str, version: str) -> str:
        """torch==2.9.0 --hash=sha256:...; "" where no file of that version fits this machine."""
        digests = [
            each.sha256
            for each in self.wheels
            if (each.wheel.project, each.wheel.version) == (project, version) and takes(self.target, each.wheel.name)
        ]
        return " ".join((f"{project}=={version}", *(f"--hash=sha256:{each}" for each in digests))) if digests else ""

    def file_for(self, lines: tuple[str, ...]) -> tuple[str, str]:
        """Where such lines are written, and the text; the same lines have the same name."""
        text = "".join(f"{line}\n" for line in lines)
        return f"{self.lists}/{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt", text


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise BadInput(f"{text[:120]!a} is not a package with a version; accepted: e.g. torch==2.9.0.") from None


def _will_do(version: str, bounds: SpecifierSet) -> bool:
    try:
        return bool(version) and bounds.contains(version, prereleases=True)
    except InvalidVersion:
        return False

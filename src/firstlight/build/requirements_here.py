"""What a wheel requires, held against the environment as it is now."""

from __future__ import annotations

import os
import zipfile

from packaging.version import InvalidVersion, Version

from firstlight.build.runtime_needs import RuntimeGaps, gaps_in, requirements_of_metadata
from firstlight.build.spec import BuildSpec
from firstlight.build.tools import InstalledProject, installed_projects
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.machine import which
from firstlight.machine.live import LiveMachine

KEPT = "kept.txt"  # what is installed before, as constraints: nothing of it is replaced by the way


def requirements_met(spec: BuildSpec) -> bool:
    """Whether everything that a step was to bring is there; not, where the environment does not answer."""
    found = _installed(spec)
    if isinstance(found, Unknown):
        return False
    gaps = gaps_in(spec.requires, found.value, python="", by_program=())
    return not gaps.missing and not gaps.unfit


def unmet_by_wheel(spec: BuildSpec, wheel: str) -> Fact[RuntimeGaps]:
    """What the metadata of a wheel requires and its environment does not have."""
    with zipfile.ZipFile(wheel) as file:
        name = next(each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        stated = requirements_of_metadata(file.read(name).decode("utf-8", "replace"))
    found = _installed(spec)
    if isinstance(found, Unknown):
        return found
    programs = tuple(name for name in ("cmake", "ninja") if which(LiveMachine(), name) is not None)
    return Known(gaps_in(stated, found.value, python="", by_program=programs), seen_in=found.seen_in)


def keep_what_is_installed(spec: BuildSpec) -> None:
    """Write down the versions that are there, for pip: what it brings has to go with them, or is refused."""
    if not spec.requires:
        return
    found = _installed(spec)
    lines = [] if isinstance(found, Unknown) else [f"{each.name}=={each.version}" for each in found.value if _is(each)]
    with open(os.path.join(spec.folder, KEPT), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in sorted(set(lines))))


def _installed(spec: BuildSpec) -> Fact[tuple[InstalledProject, ...]]:
    return installed_projects(LiveMachine(), Known(spec.python, seen_in="build"))


def _is(project: InstalledProject) -> bool:
    """Whether pip takes it as a constraint; versions of long ago it does not."""
    try:
        Version(project.version)
    except InvalidVersion:
        return False
    return True

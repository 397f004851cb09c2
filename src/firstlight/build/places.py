"""Where builds live: one folder each below the state folder, or where --build-dir says."""

from __future__ import annotations

import os
import shutil

from firstlight.apply.place import ready_place, state_folder
from firstlight.build.spec import BuildSpec, SourceSpec, read_source_spec, read_spec
from firstlight.errors import BadInput, NotOurs
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.owned import our_folder


@dataclass(frozen=True, slots=True)
class KeptBuild:
    """A build that has a folder: its source, and its spec once the tree was read."""

    folder: str
    source: SourceSpec
    spec: BuildSpec | None


def folder_for(machine: Machine, build_id: str, given: str) -> str:
    """The folder of a build; a pod's volume before a disk that goes with it."""
    if given:
        if " " in given:
            raise BadInput(
                f"--build-dir {given!a} has a space in it, at which some build systems split it. Name another folder."
            )
        return os.path.abspath(given)
    place = f"{ready_place(machine).path}/builds/{build_id}"
    return os.path.realpath(place) if os.path.islink(place) else place  # it was begun elsewhere


def require_same_target(folder: str, spec: SourceSpec) -> None:
    """BadInput where a folder belongs to another target; NotOurs where it is another user's."""
    kept = read_source_spec(folder)
    if kept is not None and (kept.id, kept.source.target) != (spec.id, spec.source.target):
        raise BadInput(
            f"{folder} belongs to the build of {kept.source.target} ({kept.id}). Name another folder with "
            f"--build-dir, or remove that build with `firstlight build --clean {kept.id}`."
        )
    if kept is None and os.path.isdir(folder) and os.listdir(folder):
        raise BadInput(f"--build-dir {folder}: it is not empty and belongs to no build. Name an empty or a new folder.")


def require_one_folder(machine: Machine, build_id: str, folder: str) -> None:
    """BadInput where the same build is kept in another folder than the one asked for."""
    kept = os.path.realpath(f"{builds_folder(machine)}/{build_id}")
    if os.path.isdir(kept) and kept != os.path.realpath(folder):
        raise BadInput(
            f"--build-dir {folder}: this build is kept in {kept}. Leave --build-dir out to continue there, or "
            f"remove it first with `firstlight build --clean {build_id}`."
        )


def builds_folder(machine: Machine) -> str:
    return f"{state_folder(machine)}/builds"


def kept_builds(machine: Machine) -> tuple[KeptBuild, ...]:
    """Every build below the state folder, and those elsewhere that it knows by a link."""
    folder = builds_folder(machine)
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.realpath(os.path.join(folder, name))
        try:
            source = read_source_spec(path)
            if source is not None:
                found.append(KeptBuild(path, source, read_spec(path)))
        except (BadInput, NotOurs, OSError):
            continue  # another user's, or of a later firstlight: not ours to list
    return tuple(found)


def remember(machine: Machine, build_id: str, folder: str) -> None:
    """A build elsewhere is listed all the same."""
    place = f"{builds_folder(machine)}/{build_id}"
    if os.path.realpath(place) == os.path.realpath(folder):
        return
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        if os.path.islink(place):
            os.unlink(place)
        os.symlink(folder, place)
    except OSError as error:  # the journal of the build could not be written there either
        raise BadInput(
            f"{place}: the build cannot be noted there ({error.strerror}). Set FIRSTLIGHT_STATE_DIR to a folder "
            "that you can write to."
        ) from None


def forget(machine: Machine, build_id: str, folder: str) -> None:
    """Remove a build's folder, and the link by which one elsewhere is listed."""
    with our_folder(folder):
        pass
    shutil.rmtree(folder)
    link = f"{builds_folder(machine)}/{build_id}"
    if os.path.islink(link):
        os.unlink(link)


def size_of(folder: str) -> int:
    """The bytes of all files in a folder."""
    total = 0
    for base, _, files in os.walk(folder):
        total += sum(
            os.lstat(os.path.join(base, each)).st_size for each in files if os.path.lexists(os.path.join(base, each))
        )
    return total

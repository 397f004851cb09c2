"""Room on a disk before anything is installed there: what fills the disk has to go first, or it goes elsewhere."""

from __future__ import annotations

import shlex
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.facts.resources import DiskSpace
from firstlight.plan.request import Request
from firstlight.ways import kinds
from firstlight.ways.building import environment_to_change, installed_versions
from firstlight.ways.costs import bytes_of
from firstlight.ways.way import Chain, Way
from firstlight.ways.words import fitted

_LEAST_BYTES = 256 << 20  # a driver and its modules take more, and so does every wheel of torch
_TO_THE_SYSTEM = (kinds.InstallDriver, kinds.InstallPackages, kinds.BuildModules)
# The wheels of torch 2.10.0 for x86_64, 4.11 GB with those it pins, hold 7.02 GB (their lists of files, 2026-11-19).
_UNPACKED = 1.71
_TEMPORARY = "/tmp"  # noqa: S108 where pip keeps what it fetched until all of it is installed


def with_room(question: Question, request: Request, chain: Chain) -> tuple[Chain, ...]:
    """The answer as it is; on a disk without room for what it installs, behind making some, and elsewhere first."""
    for way in chain.ways:
        disk = _disk_of(question.facts, _target(question.facts, way))
        if disk is not None and disk.free_bytes < _needed(question, request, way, disk):
            return (*_elsewhere(question, request, chain), replace(chain, ways=(_made(disk), *chain.ways)))
    return (chain,)


def _target(facts: Facts, way: Way) -> str:
    """Where a way writes most: / for packages of the system, the environment for wheels; "" of other ways."""
    if isinstance(way, _TO_THE_SYSTEM):
        return "/"
    environment = environment_to_change(facts)
    return environment.prefix if isinstance(way, kinds.InstallWheels) and environment is not None else ""


def _needed(question: Question, request: Request, way: Way, disk: DiskSpace) -> int:
    """What has to be free at the least: for a first torch what its wheels hold, and those themselves beside it."""
    size = bytes_of(way, question.facts, question.tables, request.sizes)
    fetched = 0 if isinstance(size, Unknown) else size.value
    environment = environment_to_change(question.facts)
    if not isinstance(way, kinds.InstallWheels) or "torch" in installed_versions(environment):
        return max(_LEAST_BYTES, fetched)  # another torch takes the room of the one that goes
    by_pip = environment is None or environment.kind is not EnvironmentKind.UV_VENV
    beside = by_pip and _disk_of(question.facts, _TEMPORARY) == disk
    return max(_LEAST_BYTES, int(fetched * (_UNPACKED + (1 if beside else 0))))


def _elsewhere(question: Question, request: Request, chain: Chain) -> tuple[Chain, ...]:
    """A first torch in an environment of ours on a volume that outlives the container and has room for it."""
    facts, ways = question.facts, chain.ways
    volume = facts.resources.persistent_volume
    if isinstance(volume, Unknown) or not all(isinstance(way, kinds.InstallWheels) for way in ways):
        return ()
    disk = _disk_of(facts, volume.value)
    environment = environment_to_change(facts)
    if disk is None or _point(disk) != volume.value or "torch" in installed_versions(environment):
        return ()
    if any(disk.free_bytes < 2 * _needed(question, request, way, disk) for way in ways):
        return ()
    folder, scratch = f"{volume.value}/firstlight-venv", f"{volume.value}/firstlight-fetched"
    moved = tuple(replace(way, scratch=scratch) for way in ways if isinstance(way, kinds.InstallWheels))
    first = moved[0].packages[0]
    title = fitted(f"install {first.project} {first.version}".rstrip() + f" into a new environment in {volume.value}")
    return (replace(chain, ways=(kinds.MakeEnvironment(folder, no_room=True), *moved), title=title),)


def _disk_of(facts: Facts, path: str) -> DiskSpace | None:
    """The disk that a path lies on, by the longest mount point that was looked at."""
    holding = [each for each in facts.resources.disks if path and _is_under(path, _point(each))]
    return max(holding, key=lambda each: len(_point(each)), default=None)


def _point(disk: DiskSpace) -> str:
    return disk.mount.value.point if isinstance(disk.mount, Known) else disk.path


def _is_under(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


def _made(disk: DiskSpace) -> kinds.AskPerson:
    largest = ("sh", "-c", f"du -xh --max-depth=2 {shlex.quote(disk.path)} | sort -h | tail")
    of = (disk.path, str(disk.free_bytes >> 20))
    return kinds.AskPerson("make-room", kinds.Why.DECISION, (largest,), as_root=True, cures=False, of=of)

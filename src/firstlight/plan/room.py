"""Room on a disk before anything is installed there: what fills the disk has to go first."""

from __future__ import annotations

import shlex
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.resources import DiskSpace
from firstlight.ways import kinds
from firstlight.ways.building import environment_to_change
from firstlight.ways.way import Chain, Way

_LEAST_BYTES = 256 << 20  # a driver and its modules take more, and so does every wheel of torch
_TO_THE_SYSTEM = (kinds.InstallDriver, kinds.InstallPackages, kinds.BuildModules)


def with_room(question: Question, chain: Chain) -> Chain:
    """The answer as it is; on a disk without room for what it installs, behind making some."""
    for way in chain.ways:
        disk = _disk_of(question.facts, _target(question.facts, way))
        if disk is not None and disk.free_bytes < _LEAST_BYTES:
            return replace(chain, ways=(_made(disk), *chain.ways))
    return chain


def _target(facts: Facts, way: Way) -> str:
    """Where a way writes most: / for packages of the system, the environment for wheels; "" of other ways."""
    if isinstance(way, _TO_THE_SYSTEM):
        return "/"
    environment = environment_to_change(facts)
    return environment.prefix if isinstance(way, kinds.InstallWheels) and environment is not None else ""


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

"""What dkms and akmods can build the nvidia modules from, and for which kernels they tried and failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.errors import BadVersion
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import DriverVersion

_SOURCES = "/usr/src"
_AKMODS = "/usr/src/akmods"
_DKMS_TREE = "/var/lib/dkms"
_AKMODS_LOGS = "/var/cache/akmods/nvidia"
_NUMBER = r"(\d{3}\.\d+(?:\.\d+)?)"
# dkms 3 writes "make.log for nvidia/575.57.08 for kernel 5.14...", dkms 2 "nvidia-535.54.03"; a build that ends well
# takes the folder `build` away with it.
_LOG = r"make\.log for (nvidia[a-z-]*)[/-]" + _NUMBER + r" for kernel (\S+)"
_MOST = 20


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A source of the modules, e.g. ModuleSource("dkms", "nvidia-current", 550.163.01)."""

    builder: str  # dkms or akmods
    name: str
    version: DriverVersion


@dataclass(frozen=True, slots=True)
class FailedBuild:
    """A build that did not come to its end: of what, for which kernel, and where its log is."""

    version: DriverVersion
    kernel: str
    log: str


@dataclass(frozen=True, slots=True)
class ModuleBuilds:
    """Looked for where the running kernel has no module, or one that does not fit the libraries."""

    sources: tuple[ModuleSource, ...]
    failed: tuple[FailedBuild, ...]


def probe_module_builds(machine: Machine) -> Known[ModuleBuilds]:
    """By the files of both programs; nothing is run."""
    sources = (*_dkms_sources(machine), *_akmods_sources(machine))
    failed = (*_failed_by_dkms(machine), *_failed_by_akmods(machine))
    return Known(ModuleBuilds(sources, failed), seen_in=f"{_SOURCES}, {_DKMS_TREE}, {_AKMODS_LOGS}")


def _version(text: str) -> DriverVersion | None:
    try:
        return DriverVersion.parse(text)
    except BadVersion:
        return None


def _dkms_sources(machine: Machine) -> Iterator[ModuleSource]:
    for folder in machine.list(_SOURCES, "nvidia*")[:_MOST]:
        match = re.fullmatch(rf"(nvidia[a-z-]*)-{_NUMBER}", folder)
        version = None if match is None else _version(match[2])
        if match is not None and version is not None and machine.stat(f"{_SOURCES}/{folder}/dkms.conf") is not None:
            yield ModuleSource("dkms", match[1], version)


def _akmods_sources(machine: Machine) -> Iterator[ModuleSource]:
    for file in machine.list(_AKMODS, "nvidia*.src.rpm")[:_MOST]:
        match = re.match(rf"(nvidia[a-z0-9-]*-kmod)-{_NUMBER}-", file)
        version = None if match is None else _version(match[2])
        if match is not None and version is not None:
            yield ModuleSource("akmods", match[1], version)


def _failed_by_dkms(machine: Machine) -> Iterator[FailedBuild]:
    for name in machine.list(_DKMS_TREE, "nvidia*")[:_MOST]:
        for number in machine.list(f"{_DKMS_TREE}/{name}", "[0-9]*")[:_MOST]:
            log = f"{_DKMS_TREE}/{name}/{number}/build/make.log"
            match = re.search(_LOG, machine.read(log, limit=512) or "")
            version = None if match is None else _version(match[2])
            if match is not None and version is not None:
                yield FailedBuild(version, match[3], log)


def _failed_by_akmods(machine: Machine) -> Iterator[FailedBuild]:
    for file in machine.list(_AKMODS_LOGS, "*.failed.log")[:_MOST]:
        match = re.fullmatch(rf"{_NUMBER}-\S+-for-(\S+)\.failed\.log", file)
        version = None if match is None else _version(match[1])
        if match is not None and version is not None:
            yield FailedBuild(version, match[2], f"{_AKMODS_LOGS}/{file}")

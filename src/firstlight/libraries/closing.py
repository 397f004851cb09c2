"""What closes each gap in a chain: a wheel to install, a link for one that is not searched, or who else has to act."""

from __future__ import annotations

import enum
import posixpath

from firstlight.diagnosis.provider_choice import TORCHS_OWN, total_bytes
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.torch_install import TorchBuild
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis, Missing, Whose, cuda_major_of
from firstlight.libraries.providers import (
    Brought,
    Provided,
    Providers,
    SystemPackage,
    choose_providers,
    system_packages,
)
from firstlight.libraries.target import Surroundings, Target, TargetKind
from firstlight.tables import Tables

_PARTS_OF_BUILDS = (("_cuda", TorchBuild.CUDA), ("_hip", TorchBuild.ROCM), ("_xpu", TorchBuild.XPU))
_BUILD_NAMES = {TorchBuild.CUDA: "CUDA", TorchBuild.CPU: "the CPU", TorchBuild.ROCM: "ROCm", TorchBuild.XPU: "XPU"}
_SYSTEM = ("/usr/", "/lib", "/bin", "/sbin", "/etc")  # what a package manager fills


class ComesFrom(enum.Enum):
    """Where a missing library comes from."""

    INSTALL = "install"
    LINK = "link"  # its package is installed, in a folder that is not searched
    REINSTALL = "reinstall"  # its package is installed, and the file is gone or damaged
    COMES_WITH = "comes with it"  # a wheel's own requirements bring it
    SYSTEM = "system package"
    DRIVER = "driver"
    UNKNOWN = "unknown"


class Loading(enum.Enum):
    """How the loader gets to a provided library."""

    REACHED = "on the search path"
    LINK = "by a link"
    PRELOAD = "opened beforehand"


@dataclass(frozen=True, slots=True)
class Need:
    """One missing library and what brings it, e.g. libcudss.so.0 from nvidia-cudss-cu13 0.8.0.10."""

    missing: Missing
    way: ComesFrom
    provided: tuple[Provided, ...]  # one for INSTALL, LINK, REINSTALL and COMES_WITH
    loading: Loading
    link: str  # the link to make where loading is LINK, else ""
    package: str  # of the system, for SYSTEM
    reason: str  # for UNKNOWN; for SYSTEM whose package it is


@dataclass(frozen=True, slots=True)
class Closing:
    """What closes the chain: one need for each missing library, in load order, and what the wheels bring along."""

    needs: tuple[Need, ...]
    brought: tuple[Brought, ...]
    elsewhere: tuple[SystemPackage, ...]  # NVIDIA's own channels have the same, Debian what is not judged
    download_bytes: Fact[int]
    cuda_major: Fact[int]

    def by(self, *ways: ComesFrom) -> tuple[Need, ...]:
        """The needs of some ways."""
        return tuple(need for need in self.needs if need.way in ways)


def close(around: Surroundings, analysis: Analysis, tables: Tables) -> Closing:
    """Who brings each missing library here, so that all of them agree with each other and with torch's pins."""
    target = analysis.target
    providers = choose_providers(
        tuple(each.name for each in analysis.missing),
        arch=target.arch,
        cuda_major=cuda_major_of(around, analysis),
        pins=pins_of(around, target),
        installed=installed_in(around),
        tables=tables,
    )
    needs = tuple(_need(around, target, each, providers) for each in analysis.missing)
    elsewhere = (*providers.nvidia, *system_packages(analysis.not_judged, tables))
    return Closing(needs, providers.brought, elsewhere, _to_fetch(needs, providers), providers.cuda_major)


def _to_fetch(needs: tuple[Need, ...], providers: Providers) -> Fact[int]:
    """What installing all of it fetches, each project once; Unknown where one size is not on record."""
    fetched = [need for need in needs if need.way in (ComesFrom.INSTALL, ComesFrom.REINSTALL)]
    wheels = {each.project: each.bytes for need in fetched for each in need.provided}
    if wheels:
        wheels |= {each.project: each.bytes for each in providers.brought}
    return total_bytes(wheels.values())


def installed_in(around: Surroundings) -> dict[str, str]:
    """Project -> version of what the environment holds of interest here."""
    found: dict[str, str] = {}
    for each in around.environment[0].distributions if around.environment else ():
        found.setdefault(each.name, each.version)
    return found


def pins_of(around: Surroundings, target: Target) -> dict[str, str]:
    """Project -> what torch, or the target itself, asks of it: ==9.19.0.56; of a wheel what its own metadata asks."""
    torch = around.torch
    asked = target.requires
    if isinstance(torch, Known) and target.kind is not TargetKind.WHEEL:
        asked += value_or(torch.value.requires, ())
    return {each.name: each.specifier for each in reversed(asked) if each.specifier.startswith("==")}


def _need(around: Surroundings, target: Target, missing: Missing, providers: Providers) -> Need:
    if missing.whose is Whose.DRIVER or missing.name in providers.driver:
        return Need(missing, ComesFrom.DRIVER, (), Loading.REACHED, "", "", "")
    found = next((each for each in providers.chosen if each.soname == missing.name), None)
    if found is None:
        for package in providers.debian:
            if package.soname == missing.name:
                return Need(missing, ComesFrom.SYSTEM, (), Loading.REACHED, "", package.package, package.origin)
        reasons = {each.soname: each.reason for each in providers.unknown}
        reason = _of_another_torch(around, missing) or reasons.get(missing.name, "nothing has it")
        return Need(missing, ComesFrom.UNKNOWN, (), Loading.REACHED, "", "", reason)
    if target.kind is TargetKind.WHEEL and _is_asked_for(target, found.project):
        return Need(missing, ComesFrom.COMES_WITH, (found,), Loading.REACHED, "", "", "")
    site = site_to_change(around, target)
    file = f"{site}/{found.path}"
    loading, link = _loading(around, missing, file=file)
    way = ComesFrom.INSTALL
    if found.is_installed:
        there = around.machine.stat(file) is not None and not missing.damaged
        way = ComesFrom.LINK if there else ComesFrom.REINSTALL
    return Need(missing, way, (found,), loading, link, "", "")


def _of_another_torch(around: Surroundings, missing: Missing) -> str:
    """What is told of a part of torch that the torch here does not have by design; "" for everything else."""
    if not missing.name.startswith(TORCHS_OWN) or missing.damaged:
        return ""
    torch = around.torch
    if isinstance(torch, Unknown):
        return f"it is a part of torch, and there is none here: {torch.reason}. Install torch first"
    build = torch.value.build
    wanted = next((kind for part, kind in _PARTS_OF_BUILDS if part in missing.name), None)
    if wanted is None or isinstance(build, Unknown) or build.value is wanted:
        return ""
    version = torch.value.version
    named = f"torch {version.value}" if isinstance(version, Known) else "the torch here"
    return (
        f"it is a part of torch for {_BUILD_NAMES[wanted]}, and {named} is built for {_BUILD_NAMES[build.value]}. "
        f"Install a torch for {_BUILD_NAMES[wanted]}, or a build of this for {_BUILD_NAMES[build.value]}"
    )


def _is_asked_for(target: Target, project: str) -> bool:
    """Whether the wheel's own metadata brings a project, itself or through cuda-toolkit."""
    names = {each.name for each in target.requires}
    return project in names or ("cuda-toolkit" in names and project.startswith("nvidia-") and "-cu" not in project)


def site_to_change(around: Surroundings, target: Target) -> str:
    """The site-packages that wheels go into: the target's own, else the environment's first."""
    return target.site or (around.sites[0] if around.sites else "/site-packages")


def _loading(around: Surroundings, missing: Missing, *, file: str) -> tuple[Loading, str]:
    """Whether the one who asks searches the file's folder; else the folder of its search path that takes a link.

    $ORIGIN first: that folder belongs to whoever asks, and is there.
    """
    folder = posixpath.normpath(posixpath.dirname(file))
    if missing.damaged or folder in missing.reach:
        return Loading.REACHED, ""
    own = posixpath.normpath(posixpath.dirname(missing.requested_by[0]))
    ranked = sorted(missing.reach, key=lambda each: each != own)
    for each in ranked:
        seen = around.machine.stat(each)
        if seen is not None and seen.kind == "folder" and seen.writable and not each.startswith(_SYSTEM):
            return Loading.LINK, f"{each}/{missing.name}"
    return Loading.PRELOAD, ""

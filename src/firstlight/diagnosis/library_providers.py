"""Who provides a missing library here: a wheel with bounds, for this CUDA major and processor, or a Debian package."""

from __future__ import annotations

import posixpath
import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.provider_choice import DRIVERS_OWN, Providers, choose_providers
from firstlight.diagnosis.provider_search import in_run
from firstlight.facts.collect import Facts
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.known import Known
from firstlight.facts.torch_install import TorchInstall
from firstlight.frozen import dataclass
from firstlight.ways.kinds import Package

__all__ = [
    "DRIVERS_OWN", "PRELOADED", "Provider", "cuda_major", "installed_wheel", "provider", "providers_here",
    "search_path_of_torch", "site_packages", "stem", "wheel_with", "wheels_for",
]  # fmt: skip
# What torch opens by path before its own libraries, from whichever site-packages has it (torch/__init__.py, 2.1 on).
PRELOADED = (
    "libcublasLt", "libcublas", "libcudnn", "libnvrtc", "libcudart", "libcupti", "libcufft", "libcurand",
    "libnvJitLink", "libcusparse", "libcusparseLt", "libcusolver", "libnccl", "libnvshmem_host", "libcufile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Provider:
    """A wheel that ships a library, e.g. libcudss.so.0: nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10 in nvidia/cu13/lib."""

    soname: str
    project: str
    requirement: str
    folder: str  # under site-packages
    installed: str  # the version that is installed, "" when none is
    installed_fits: bool  # and has the library


def provider(question: Question, soname: str) -> Provider | None:
    """The wheel to take for a library on this machine, chosen together with those for all that torch misses."""
    facts = question.facts
    others = facts.torch_libraries.value.missing if isinstance(facts.torch_libraries, Known) else ()
    found = providers_here(question, (*(each.name for each in others), soname))
    chosen = next((each for each in found.chosen if each.soname == soname), None)
    if chosen is None:
        return None
    runs = question.tables.wheels_with(soname, machine=facts.place.arch)
    return Provider(
        soname=soname,
        project=chosen.project,
        requirement=chosen.requirement,
        folder=chosen.folder,
        installed=chosen.installed,
        installed_fits=any(run.project == chosen.project and in_run(chosen.installed, run) for run in runs),
    )


def providers_here(question: Question, missing: tuple[str, ...]) -> Providers:
    """Who brings missing libraries on this machine, one version of each project, with the versions that torch pins."""
    facts, torch = question.facts, question.facts.torch
    asked = torch.value.requires if isinstance(torch, Known) else torch
    pins = {each.name: each.specifier for each in asked.value} if isinstance(asked, Known) else {}
    return choose_providers(
        missing,
        arch=facts.place.arch,
        cuda_major=cuda_major(facts),
        pins=pins,
        installed={wheel.name: wheel.version for wheel in facts.nvidia_wheels},
        tables=question.tables,
    )


def wheels_for(question: Question, names: tuple[str, ...]) -> tuple[Package, ...]:
    """What is fetched for missing libraries: the wheels that ship them, and those that these require in turn."""
    libraries = question.facts.torch_libraries
    damaged = {each.name for each in libraries.value.missing if each.damaged} if isinstance(libraries, Known) else set()
    found = providers_here(question, names)
    chosen = {each.project: each.version for each in found.chosen if not each.is_installed or each.soname in damaged}
    brought = {each.project.partition("[")[0]: each.version for each in found.brought if chosen and each.version}
    return tuple(Package(project, version) for project, version in {**brought, **chosen}.items())


def installed_wheel(facts: Facts, project: str) -> NvidiaWheel | None:
    return next((wheel for wheel in facts.nvidia_wheels if wheel.name == project), None)


def wheel_with(question: Question, soname: str) -> NvidiaWheel | None:
    """The installed wheel that ships a library, e.g. nvidia-nvjitlink-cu12 12.4.127 for libnvJitLink.so.12."""
    for row in question.tables.wheels_with(soname, machine=question.facts.place.arch):
        wheel = installed_wheel(question.facts, row.project)
        if wheel is not None and in_run(wheel.version, row):
            return wheel
    return None


def cuda_major(facts: Facts) -> int | None:
    """The CUDA major torch is built for, as its version file has it, else by the libcudart it asks for."""
    if isinstance(facts.torch, Known) and isinstance(facts.torch.value.wheel_cuda, Known):
        return facts.torch.value.wheel_cuda.value.major
    links = facts.torch.value.libraries if isinstance(facts.torch, Known) else ()
    for name in (name for link in links for name in link.needed):
        if match := re.fullmatch(r"libcudart\.so\.(\d+)(?:\.\d+)*", name):
            return int(match.group(1))
    return None


def search_path_of_torch(torch: TorchInstall) -> set[str]:
    """The folders that the RPATH or RUNPATH of torch's own libraries lead to."""
    found = set()
    for link in torch.libraries:
        here = posixpath.dirname(link.file)
        for entry in (*link.rpath, *link.runpath):
            folder = entry.replace("${ORIGIN}", here).replace("$ORIGIN", here)
            found.add(posixpath.normpath(folder) if folder else "")
    return found


def site_packages(torch: TorchInstall) -> str:
    return posixpath.dirname(torch.folder)


def stem(soname: str) -> str:
    """libcublasLt of libcublasLt.so.13."""
    return soname.partition(".so")[0]

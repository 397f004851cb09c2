"""Where this system gets a driver from: the packages of the tables' rows, with what has to come before them."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_packages import branch_on_disk, branch_to_have, why_not_branch
from firstlight.diagnosis.finding import Question
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import value_or
from firstlight.tables.system_rows import Family, Role, RowKind, SystemName
from firstlight.ways import kinds
from firstlight.ways.nvidia_repository import DEBIAN_NONFREE, EPEL, NVIDIA, RPM_FUSION
from firstlight.ways.platform import ModuleBuilder, Platform, platform_of
from firstlight.ways.system_names import (
    filled,
    headers_row,
    kernel_kind,
    name_row,
    names_for,
    other_kernel,
    rows_for,
    version_of,
)
from firstlight.ways.way import Chain, Proof, Way, chain

_BY_GUIDE = "docs.nvidia.com/datacenter/tesla/driver-installation-guide"
_FLOORS = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_AUR = "aur"  # its packages are built by hand
_PROOFS = {"measured": Proof.DOCUMENTED, "documented": Proof.DOCUMENTED, "reported": Proof.REPORTED}


def driver_chains(question: Question, branch: int, flavour: kinds.Flavour, *, floor: int = 0) -> tuple[Chain, ...]:
    """A driver from each source that this system has one in, best first; by a person where the tables have none.

    `branch` is taken where the source has it, else the one supported longest from `floor` on that drives these GPUs.
    """
    platform = platform_of(question.facts)
    if platform.is_image_based or platform.family in (Family.NIXOS, Family.OSTREE, Family.IMAGE):
        return (_with_the_image(question, platform, branch, flavour),)
    if kind := other_kernel(platform):
        by = f"the {kind} kernel of this system: the tables have no headers and no modules for it"
        return (
            chain(
                kinds.AskPerson("start-plain-kernel", kinds.Why.DECISION, of=(str(branch),)),
                kinds.Restart(),
                proof=Proof.GUESSED,
                by=by,
            ),
        )
    rows = rows_for(Role.DRIVER, platform, question.tables, flavour=flavour.value, of=kernel_kind(platform))
    found = []
    for row in (each for each in rows if _goes_with_what_is_here(each, platform)):
        if number := _branch_from(question, row, branch=branch, floor=floor):
            found.append(_from(question, row, branch=number, flavour=flavour))
    if found:
        return tuple(found)
    if not platform.distribution:  # a machine of which only GPU and driver were named
        return (chain(kinds.InstallDriver(branch, flavour), kinds.Restart(), proof=Proof.DOCUMENTED, by=_FLOORS),)
    by = f"{_FLOORS}; which packages bring it on {platform.distribution} {platform.release} is not known"
    return (chain(kinds.InstallDriver(branch, flavour), kinds.Restart(), proof=Proof.GUESSED, by=by),)


def _goes_with_what_is_here(row: SystemName, platform: Platform) -> bool:
    """Whether a source is the one that modules come from already: akmods are RPM Fusion's, dkms NVIDIA's.

    Packages of both on one Fedora part the libraries from the module.
    """
    builders = [each for each in platform.module_builders if each is not ModuleBuilder.WEAK_UPDATES]
    if platform.family is not Family.FEDORA or len(builders) != 1:
        return True
    return (row.from_repository == RPM_FUSION) is (builders[0] is ModuleBuilder.AKMODS)


def _branch_from(question: Question, row: SystemName, *, branch: int, floor: int) -> int:
    """The branch to take from a source; 0: it has none that will do."""
    for wanted in (branch, branch_to_have(question, floor)):
        if wanted and (not row.numbers or wanted in row.numbers):
            return wanted
    will_do = [each for each in row.numbers if each >= floor and not why_not_branch(question, each)]
    return max(will_do, key=lambda each: (_supported_until(question, each), each), default=0)


def _supported_until(question: Question, branch: int) -> str:
    """2027-03 of 595; "" where that is past, or NVIDIA's page of supported branches does not have it."""
    life = question.tables.branch_life(branch)
    return life.supported_until if life is not None and life.supported_until >= question.facts.collected_at[:7] else ""


def _from(question: Question, row: SystemName, *, branch: int, flavour: kinds.Flavour) -> Chain:
    platform, tables = platform_of(question.facts), question.tables
    signed = _signed(question, row, branch=branch, flavour=flavour)
    packages = signed or filled(row, platform, branch=str(branch))
    if row.from_repository == _AUR:
        by_hand = kinds.AskPerson("build-from-aur", kinds.Why.DECISION, of=(" and ".join(packages),))
        return chain(by_hand, kinds.Restart(), proof=Proof.REPORTED, by=row.source)
    streams = names_for(Role.MODULE_STREAM, platform, tables, flavour=flavour.value, branch=str(branch))
    driver = kinds.InstallDriver(
        branch,
        flavour,
        packages,
        version=version_of(row, platform, branch=str(branch)),
        stream=streams[0] if streams and row.from_repository == NVIDIA else "",
    )
    proof = _PROOFS[row.confidence.value]
    by = row.source if row.confidence.value == "reported" else _BY_GUIDE
    before = (
        way for way in _before(question, row, branch=branch) if not signed or isinstance(way, kinds.SetUpRepository)
    )
    return chain(*before, driver, kinds.Restart(), proof=proof, by=by)


def _signed(question: Question, row: SystemName, *, branch: int, flavour: kinds.Flavour) -> tuple[str, ...]:
    """Under Secure Boot the modules that SUSE built and signed, in place of those that are built here; else ()."""
    platform = platform_of(question.facts)
    if platform.family is not Family.SUSE or not value_or(question.facts.health.secure_boot, default=False):
        return ()
    slots = {"flavour": flavour.value, "branch": str(branch)}
    signed = names_for(Role.SIGNED_MODULES, platform, question.tables, number=branch, **slots)
    return (*signed, *filled(row, platform, branch=str(branch))[1:]) if signed else ()


def _before(question: Question, row: SystemName, *, branch: int) -> Iterator[Way]:
    """Repositories, the headers that modules are built with, and what keeps the branch."""
    platform, tables = platform_of(question.facts), question.tables
    yield from _newer_taken_out(question, row, branch=branch)
    for name in _repositories(row, platform):
        yield kinds.SetUpRepository(name)
    if platform.family is Family.UBUNTU:
        return  # its kernels' packages bring the headers along, and its archive keeps every branch
    lock: tuple[str, ...] = ()
    if row.from_repository == NVIDIA:
        lock = names_for(Role.BRANCH_LOCK, platform, tables, number=branch, branch=str(branch))
    headers = headers_row(platform, tables)
    built_here = platform.family is not Family.ARCH or any(each.endswith("-dkms") for each in row.names)
    names = filled(headers, platform) if headers is not None and built_here else ()
    if names:
        yield kinds.InstallPackages(names, version=version_of(headers, platform) if headers is not None else "")
    if lock:
        yield kinds.InstallPackages(lock)


def _newer_taken_out(question: Question, row: SystemName, *, branch: int) -> Iterator[Way]:
    """A newer driver of NVIDIA's repository, and that repository: apt would keep to it before Debian's own."""
    if row.from_repository != DEBIAN_NONFREE or branch_on_disk(question.facts) <= branch:
        return
    platform, tables = platform_of(question.facts), question.tables
    libraries = names_for(Role.DRIVER_LIBRARIES, platform, tables)
    key = names_for(Role.REPOSITORY_KEY, platform, tables, of="installed")
    packages = (*value_or(question.facts.driver.packages, ()), *libraries, *key)
    yield kinds.RemovePackages(tuple(dict.fromkeys(packages)), purge=True)  # the list of a repository is a setting


def _repositories(row: SystemName, platform: Platform) -> tuple[str, ...]:
    if not row.from_repository:
        return ()
    if row.from_repository == NVIDIA and platform.family is Family.DEBIAN:
        return DEBIAN_NONFREE, NVIDIA  # NVIDIA's packages ask for some of contrib
    if row.from_repository == NVIDIA and platform.family is Family.RHEL:
        return (NVIDIA,) if ModuleBuilder.DKMS in platform.module_builders else (EPEL, NVIDIA)
    return (row.from_repository,)


def _with_the_image(question: Question, platform: Platform, branch: int, flavour: kinds.Flavour) -> Chain:
    """Nothing is installed into such a system step by step: its image or its configuration brings the driver."""
    of = "transactional" if platform.image_based is ImageSystem.TRANSACTIONAL else platform.image_based.value
    row = name_row(Role.IMAGE_DRIVER, platform, question.tables, flavour=flavour.value, of=of)
    if row is None:
        return chain(
            kinds.AskPerson("take-image-with-driver", kinds.Why.IMAGE, of=(str(branch), flavour.value)),
            kinds.Restart(),
            proof=Proof.GUESSED,
        )
    names = filled(row, platform, branch=str(branch))
    if row.kind is RowKind.COMMAND:
        asked = kinds.AskPerson("install-as-system-does", kinds.Why.IMAGE, (names,), as_root=True)
    else:
        asked = kinds.AskPerson(
            "as-the-system-says", kinds.Why.IMAGE, (names[1:],) if names[1:] else (), as_root=True, of=names[:1]
        )
    return chain(asked, kinds.Restart(), proof=Proof.REPORTED, by=row.source)

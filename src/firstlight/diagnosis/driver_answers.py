"""Another driver as an answer."""

from __future__ import annotations

from firstlight.diagnosis.driver_packages import (
    LTS_BRANCH,
    branch_on_disk,
    branch_to_have,
    flavour_of,
    why_no_flavour,
    why_not_branch,
)
from firstlight.diagnosis.driver_sources import driver_chains
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import NO_ROOT, container, may_become_root
from firstlight.facts.known import Known, Unknown
from firstlight.versions import CudaVersion
from firstlight.ways import kinds
from firstlight.ways.platform import GuestKind, platform_of
from firstlight.ways.way import Chain, Proof, Way, cannot, chain

DRIVER_WAYS: tuple[type[Way], ...] = (
    kinds.SetUpRepository, kinds.InstallPackages, kinds.RemovePackages, kinds.InstallDriver, kinds.Restart,
    kinds.AskPerson,
)  # fmt: skip
_FLOORS = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_VGPU = "docs.nvidia.com/vgpu: guest drivers and the host releases they go with"


def driver_answers(question: Question, cuda: CudaVersion | None) -> tuple[Chain, ...]:
    """A driver that runs a CUDA (None: any that drives these GPUs), where it can be changed; else why not."""
    facts, tables = question.facts, question.tables
    oldest = None if cuda is None else tables.oldest_driver(cuda)
    floor = 0 if oldest is None else oldest.branch
    branch = _to_keep(question, floor) or branch_to_have(question, floor) or LTS_BRANCH
    why_not = why_not_branch(question, branch)
    if container(facts) is not None:
        why_not = "a container cannot change the driver of the host below it"
    missing = isinstance(facts.driver.kernel_version, Unknown)  # then somebody with root has to put it right
    guest = platform_of(facts).guest
    if guest not in (GuestKind.WSL1, GuestKind.WSL2) and not may_become_root(facts) and not missing:
        why_not = why_not or NO_ROOT
    if why_not:
        return (cannot(f"driver >= {floor}" if floor else f"driver {branch}", why_not),)
    if asked := of_somebody_else(question, branch, cuda):
        return (asked,)
    if neither := why_no_flavour(question):
        return (cannot("one driver for all GPUs here", neither), *_for_a_part(question, branch, floor))
    return driver_chains(question, branch, flavour_of(question), floor=floor)


def _to_keep(question: Question, floor: int) -> int:
    """The branch that is installed and only lacks its module, where it will do: no other is put in its place."""
    if isinstance(question.facts.driver.kernel_version, Known):
        return 0
    here = branch_on_disk(question.facts)
    life = question.tables.branch_life(here)
    supported = life is not None and life.supported_until >= question.facts.collected_at[:7]
    return here if supported and here >= floor and not why_not_branch(question, here) else 0


def of_somebody_else(question: Question, branch: int, cuda: CudaVersion | None = None) -> Chain | None:
    """The driver where it is not this system's to install: Windows', a board's, a vGPU host's; None: it is."""
    guest = platform_of(question.facts).guest
    if guest in (GuestKind.WSL1, GuestKind.WSL2):
        return chain(
            kinds.AskPerson("update-windows-driver", kinds.Why.WINDOWS, of=(str(branch),)),
            proof=Proof.DOCUMENTED,
            by=_FLOORS,
        )
    if guest is GuestKind.JETSON:
        release = "a newer driver" if cuda is None else f"CUDA {cuda.major}"
        return chain(
            kinds.AskPerson("update-jetpack", kinds.Why.BOARD, of=(release,)), proof=Proof.DOCUMENTED, by=_FLOORS
        )
    if guest is GuestKind.VGPU:
        return chain(
            kinds.AskPerson("install-guest-driver", kinds.Why.PORTAL), kinds.Restart(), proof=Proof.DOCUMENTED, by=_VGPU
        )
    return None


def _for_a_part(question: Question, branch: int, floor: int) -> tuple[Chain, ...]:
    """Where no module drives all GPUs: the one for the newer GPUs, and the one for the older."""
    return tuple(
        one
        for flavour in (kinds.Flavour.OPEN, kinds.Flavour.PROPRIETARY)
        for one in driver_chains(question, branch, flavour, floor=floor)[:1]
    )


def installed(question: Question, branch: int, flavour: kinds.Flavour) -> Chain:
    """A branch of the driver by this system's packages, and the restart after which it runs."""
    return of_somebody_else(question, branch) or driver_chains(question, branch, flavour)[0]

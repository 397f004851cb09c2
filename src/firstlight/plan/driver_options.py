"""A newer driver as an option, where a driver can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.driver_packages import branch_to_have, driver_package, why_not_branch
from firstlight.diagnosis.observed import container, platform
from firstlight.facts.place import Platform
from firstlight.plan.costs import not_known
from firstlight.plan.option import Kind, Option, Proof, Reversible, Risk
from firstlight.plan.rights import NO_ROOT, may_become_root
from firstlight.plan.situation import Situation
from firstlight.plan.with_set import with_set

_IN_WINDOWS = (Platform.WSL1, Platform.WSL2)


def driver_options(situation: Situation) -> Iterator[Option]:
    """A newer driver, or one at all; rejected in a container, without root, and where it does not help."""
    facts = situation.facts
    branch = _branch(situation)
    option = replace(
        situation.blank(Kind.DRIVER, str(branch) if branch else "any"),
        title=_title(situation, branch),
        cost=not_known(situation.request, "how long a driver and a reboot take here is not known"),
        needs_root=platform(facts) not in _IN_WINDOWS,
        reversible=Reversible.PARTLY,
        risk=Risk.HIGH,
        proof=Proof.DOCUMENTED,
        proof_by="docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        brings=tuple(_brings(situation, branch)),
    )
    why_not = _why_not(situation, branch)
    yield replace(option, feasible=False, why_not=why_not) if why_not else with_set(situation, option)


def _why_not(situation: Situation, branch: int) -> str:
    facts = situation.facts
    if not situation.answered_by(Kind.DRIVER):
        return _is_fine(situation)
    if situation.kernel is not None and situation.needs is None and not _is_the_fault(situation):
        return _is_fine(situation)
    if container(facts) is not None:
        return "a container cannot change the driver of the host below it"
    if platform(facts) not in _IN_WINDOWS and not may_become_root(facts) and not _is_the_fault(situation):
        return NO_ROOT
    return why_not_branch(situation.question, branch)


def _is_the_fault(situation: Situation) -> bool:
    """Whether the driver itself is what is missing or wrong, so that somebody with root has to put it right."""
    return situation.is_primary("driver-not-loaded", "blackwell-needs-open-module")


def _branch(situation: Situation) -> int:
    """The branch to have: the one supported longest of those that run what is needed and drive these GPUs; 0: none."""
    tables = situation.question.tables
    cuda = situation.needs or situation.torch_cuda
    row = None if cuda is None else tables.cuda_major(cuda.major)
    floor = 0 if row is None else row.min_driver_same_major.branch
    if situation.is_primary("blackwell-needs-open-module") and situation.kernel is not None:
        return situation.kernel.branch
    return branch_to_have(situation.question, floor)


def _title(situation: Situation, branch: int) -> str:
    kind = platform(situation.facts)
    if kind in _IN_WINDOWS:
        return f"the NVIDIA driver in Windows, {branch} or newer"
    if kind is Platform.JETSON:
        return "a JetPack with a newer driver"
    if situation.is_primary("blackwell-needs-open-module"):
        return f"driver {branch} with its open kernel modules, then a reboot"
    return f"driver {branch or 'of NVIDIA'}, then a reboot"


def _brings(situation: Situation, branch: int) -> Iterator[str]:
    """The package; on a Jetson the driver comes with JetPack alone, and below WSL it is in Windows."""
    kind, needs = platform(situation.facts), situation.needs
    if kind is Platform.JETSON:
        yield "a JetPack release with a newer driver" if needs is None else f"a JetPack release with CUDA {needs.major}"
    elif branch and kind not in _IN_WINDOWS:
        yield driver_package(situation.question, branch)


def _is_fine(situation: Situation) -> str:
    cuda = situation.torch_cuda
    if situation.kernel is None:
        return f"it does not answer {situation.diagnosis.primary}"
    runs = f" and runs CUDA {cuda.major}" if cuda is not None and situation.needs is None else ""
    return f"driver {situation.kernel} is loaded{runs}; a newer one does not answer {situation.diagnosis.primary}"

"""Ways out of a driver that is too old, as commands for this machine: compat library, other wheel, other driver."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import NVIDIAS, all_eligible, cuda_of, ineligible_gpus, takes_branch
from firstlight.diagnosis.driver_packages import branch_in_words, branch_to_have, driver_package
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import as_root, at, container, install, is_wanted, platform
from firstlight.diagnosis.wheel_choice import (
    INDEX,
    best_wheel,
    cuda_major_in_reach,
    install_wheel,
    python_of,
    unproved_wheel,
)
from firstlight.diagnosis.wheel_choice import install as install_packages
from firstlight.facts.containers import Provider
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import CudaVersion, DriverVersion, TorchVersion


def compat_way(question: Question, needed: CudaVersion, *, driver: DriverVersion, program: str = "") -> str:
    """The forward-compat library for the one process that needs it; '' where this machine may not use one."""
    facts = question.facts
    program = program or f"{python_of(facts)} your_script.py"
    for library in facts.compat:
        cuda = cuda_of(question, library)
        serves = (
            cuda is not None and cuda.major == needed.major and takes_branch(question, library, branch=driver.branch)
        )
        newer = isinstance(library.version, Known) and library.version.value > driver
        if serves and newer and all_eligible(question, library):
            return f"LD_LIBRARY_PATH={shlex.quote(library.folder)} {program} (that compat library is here already)"
    if platform(facts) is Platform.JETSON or not _may_use_a_package(question):
        return ""
    accepted = {row.cuda: row for row in question.tables.compat_packages_for(driver.branch)}
    fitting = [cuda for cuda in accepted if cuda.major == needed.major]
    if not fitting:
        return ""
    cuda = needed.release if needed.release in fitting else max(fitting)
    command = as_root(facts, install(facts, accepted[cuda].package))
    return f"{command}, then LD_LIBRARY_PATH=/usr/local/cuda-{cuda}/compat {program}{NVIDIAS}"


def install_wanted(question: Question) -> str:
    """The command that installs a torch that is only wanted (--want); '' for one that is here."""
    torch = question.facts.torch
    if not is_wanted(question.facts) or isinstance(torch, Unknown):
        return ""
    version, cuda = torch.value.version, torch.value.wheel_cuda
    if isinstance(version, Unknown) or isinstance(cuda, Unknown):
        return ""
    index = INDEX + cuda.value.release.tag if version.value.cuda is not None else ""
    return install_packages(question.facts, f"torch=={version.value}", index=index)


def wheel_way(question: Question, torch: TorchVersion) -> str:
    """The same torch, or the nearest, built for a CUDA that this driver runs; '' where PyTorch has none."""
    wheel = best_wheel(question, torch)
    return "" if wheel is None else install_wheel(question, wheel)


def where_no_wheel_runs(question: Question) -> Iterator[str]:
    """What is left where no official wheel is known to run here: a newer driver, a wheel to try, or a build."""
    newest, reach = question.tables.newest_torch(question.facts.place.arch), cuda_major_in_reach(question)
    cuda = None if newest is None else newest.wheel_cuda
    floor = None if cuda is None else question.tables.cuda_major(cuda.major)
    ways = []
    if cuda is not None and floor is not None and reach is not None and reach < cuda.major:
        ways.append(driver_way(question, branch=floor.min_driver_same_major.branch, cuda=CudaVersion(cuda.major, 0)))
    wheel = unproved_wheel(question)
    if wheel is not None:
        ways.append(install_wheel(question, wheel, remark="whether it has code for this GPU is not known"))
    ways.append("build torch from source for this GPU: github.com/pytorch/pytorch#from-source")
    for number, way in enumerate(ways):
        yield f"or {way}" if number else way


def driver_way(question: Question, *, branch: int, cuda: CudaVersion) -> str:
    """A newer driver, or a machine that has one where the driver cannot be changed from here."""
    facts = question.facts
    if platform(facts) is Platform.WSL2:
        words = branch_in_words(question, branch)
        return f"update the NVIDIA driver in Windows to {words}; nothing is installed inside WSL"
    if platform(facts) is Platform.JETSON:
        return f"update JetPack to a release with CUDA {cuda}"
    if at(facts, Provider.RUNPOD):
        return f"rent a pod on a host with driver {branch} or newer: runpodctl pod create --min-cuda-version {cuda}"
    if container(facts) is not None:
        return f"ask for a host with driver {branch} or newer; a container cannot change the driver below it"
    if isinstance(facts.place.os_id, Known) and facts.place.os_id.value == "ubuntu":
        package = driver_package(question, branch_to_have(question, branch))
        return f"{as_root(facts, install(facts, package))}, then reboot"
    guide = "docs.nvidia.com/datacenter/tesla/driver-installation-guide"
    return f"install driver {branch_in_words(question, branch)} ({guide}), then reboot"


def _may_use_a_package(question: Question) -> bool:
    """Whether every GPU is of a kind that NVIDIA's packages list: by NVML brand, else by the name of a product line."""
    gpus = question.facts.gpus.devices
    if not gpus or any(ineligible_gpus(question)):
        return False
    for gpu in gpus:
        if isinstance(gpu.brand, Known) and gpu.brand.value != 0:
            continue  # its brand is listed
        model = question.tables.gpu_named(gpu.name.value) if isinstance(gpu.name, Known) else None
        if model is None or model.kind is not GpuKind.DATA_CENTER:
            return False
    return True

"""Ways out of a driver that is too old, as exact commands for this machine: compat library, other wheel, other driver."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import as_root, at, container, install, platform
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.containers import Provider
from firstlight.facts.gpus import Gpu
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform
from firstlight.facts.torch_install import TorchInstall
from firstlight.tables.gpu_rows import GpuKind, Runs
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion


def compat_way(question: Question, wheel_cuda: CudaVersion, driver: DriverVersion) -> str:
    """The forward-compat library for the one process that needs it; '' where this machine may not use one."""
    if not _all_eligible(question):
        return ""
    for library in question.facts.compat:
        if _serves(library, wheel_cuda, driver):
            return f"{_for_one_process(question, library.folder)}: the compat library is here already"
    accepted = [
        row.cuda for row in question.tables.compat_packages_for(driver.branch) if row.cuda.major == wheel_cuda.major
    ]
    if not accepted:
        return ""
    cuda = wheel_cuda.release if wheel_cuda.release in accepted else max(accepted)
    package = question.tables.compat_package(cuda)
    if package is None:
        return ""
    command = as_root(question.facts, install(question.facts, package.package))
    return f"{command}, then {_for_one_process(question, f'/usr/local/cuda-{cuda}/compat')}"


def may_use_compat(question: Question, wheel_cuda: CudaVersion, driver: DriverVersion) -> bool:
    return bool(compat_way(question, wheel_cuda, driver))


def wheel_way(question: Question, torch: TorchInstall, *, cuda_major: int) -> str:
    """The same torch built for a CUDA major that this driver runs; '' where PyTorch has none for these GPUs."""
    if isinstance(torch.version, Unknown) or question.facts.place.arch != "x86_64":
        return ""
    version = TorchVersion.parse(".".join(str(part) for part in torch.version.value.release))
    variants = [
        row.wheel_cuda for row in question.tables.torch_variants(version) if row.wheel_cuda.major <= cuda_major
    ]
    for cuda in sorted(variants, reverse=True):
        if _compiled_for_all(question, version, cuda):
            return (
                f'{_python(question)} -m pip install "torch=={version}" '
                f"--index-url https://download.pytorch.org/whl/{cuda.tag}"
            )
    return ""


def driver_way(question: Question, *, branch: int, cuda: CudaVersion) -> str:
    """A newer driver, or a machine that has one where the driver cannot be changed from here."""
    facts = question.facts
    if platform(facts) is Platform.WSL2:
        return f"update the NVIDIA driver in Windows to {branch} or newer; nothing is installed inside WSL"
    if platform(facts) is Platform.JETSON:
        return f"update JetPack to a release with CUDA {cuda}"
    if at(facts, Provider.RUNPOD):
        return (
            f"rent a pod on a host with driver {branch} or newer: runpodctl pod create --min-cuda-version {cuda.release}"
        )
    if container(facts) is not None:
        return f"ask for a host with driver {branch} or newer; a container cannot change the driver below it"
    if isinstance(facts.place.os_id, Known) and facts.place.os_id.value == "ubuntu":
        return f"{as_root(facts, install(facts, f'nvidia-driver-{branch}-server-open'))}, then reboot"
    return f"install driver {branch} or newer (docs.nvidia.com/datacenter/tesla/driver-installation-guide), then reboot"


def _python(question: Question) -> str:
    environment = question.facts.environment
    if environment is not None and isinstance(environment.interpreter, Known):
        return environment.interpreter.value
    return "python3"


def _for_one_process(question: Question, folder: str) -> str:
    return f"LD_LIBRARY_PATH={folder} {_python(question)} your_script.py"


def _all_eligible(question: Question) -> bool:
    gpus = question.facts.gpus.devices
    return bool(gpus) and all(_eligible(question, gpu) for gpu in gpus)


def _eligible(question: Question, gpu: Gpu) -> bool:
    """By NVML brand, else by the product line its name belongs to."""
    if isinstance(gpu.brand, Known):
        row = question.tables.compat_brand(gpu.brand.value)
        return row is not None and row.listed
    model = question.tables.gpu_named(gpu.name.value) if isinstance(gpu.name, Known) else None
    return model is not None and model.kind is GpuKind.DATA_CENTER


def _serves(library: CompatLibrary, wheel_cuda: CudaVersion, driver: DriverVersion) -> bool:
    if isinstance(library.version, Unknown) or isinstance(library.note, Unknown):
        return False
    note = library.note.value
    return (
        note.cuda.major == wheel_cuda.major
        and library.version.value > driver
        and driver.branch in note.driver_branches
    )


def _compiled_for_all(question: Question, version: TorchVersion, cuda: CudaVersion) -> bool:
    """Whether no GPU here is known to be left out of that variant."""
    tables, arch = question.tables, question.facts.place.arch
    row = tables.variant_targets(version, cuda, machine=arch)
    release = tables.torch_release(version, arch)
    codes: tuple[ComputeCapability, ...] = () if row is None else row.compiled_for
    if not codes and release is not None and release.wheel_cuda == cuda:
        codes = release.compiled_for
    capabilities = [gpu.capability.value for gpu in question.facts.gpus.devices if isinstance(gpu.capability, Known)]
    return all(tables.any_runs_on(codes, each, torch_cuda=cuda) is not Runs.NO for each in capabilities)

"""What was observed of the GPUs, the driver and the place: the questions that several rules ask of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from firstlight.diagnosis.finding import Question
from firstlight.facts.ability import Sudo
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.gpus import Gpu, PciDevice, PciKind
from firstlight.facts.known import Known, Origin, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.versions import CudaVersion, TorchVersion

T = TypeVar("T")
NO_ROOT = "it takes root, and this user has neither root nor sudo"


def shown(fact: Known[T]) -> str:
    """A value with where it was seen: '570.133.20 (/sys/module/nvidia/version)'."""
    return f"{fact.value} ({fact.seen_in})"


def listed(items: Iterable[str]) -> str:
    """'gpu-0, gpu-1 and gpu-2'."""
    names = list(items)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def counted_gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def cuda_starts(facts: Facts) -> bool:
    """Whether cuInit was seen to return 0: proof that outranks every static rule about the driver."""
    code = facts.libcuda.init_code
    return isinstance(code, Known) and code.value == 0


def observed_cuda(facts: Facts) -> CudaVersion | None:
    """The CUDA of a libcuda that was seen to start, a compat library's included; on paper that of the one to come.

    None where none started, and where another driver is pretended (--set driver=...): what was seen then tells nothing.
    """
    offered, driver = facts.libcuda.driver_cuda, facts.driver.kernel_version
    if isinstance(offered, Unknown):
        return None
    to_come = offered.origin is Origin.PLANNED and isinstance(facts.libcuda.init_code, Unknown)
    if not cuda_starts(facts) and not to_come:
        return None
    pretended = isinstance(driver, Known) and is_pretended(driver) and offered.origin is Origin.SEEN
    return None if pretended else offered.value


def is_wanted(facts: Facts) -> bool:
    """Whether the torch that is judged is only wanted (--want torch==...): it is not installed."""
    return isinstance(facts.torch, Known) and facts.torch.origin is Origin.WANTED


def wanted_version(facts: Facts) -> TorchVersion | None:
    """The version of a torch that is only wanted; None for one that is here."""
    if not is_wanted(facts) or isinstance(facts.torch, Unknown) or isinstance(facts.torch.value.version, Unknown):
        return None
    return facts.torch.value.version.value


def is_pretended(fact: Known[T]) -> bool:
    """Whether a value comes from --set: a what-if, not something this machine showed."""
    return fact.origin is Origin.PRETENDED


def cuda_works(facts: Facts) -> bool:
    """Whether cuInit returned 0 and listed a device."""
    count = facts.libcuda.device_count
    return cuda_starts(facts) and isinstance(count, Known) and count.value > 0


def init_error(question: Question) -> str:
    """What cuInit gave when it failed: '999 CUDA_ERROR_UNKNOWN (unknown error)'; '' when it did not.

    Where libcuda did not name its code, cuda.h does.
    """
    libcuda = question.facts.libcuda
    code = libcuda.init_code
    if not isinstance(code, Known) or code.value == 0:
        return ""
    row = question.tables.error(code.value)
    name = value_or(libcuda.init_name, "" if row is None else row.name)
    text = value_or(libcuda.init_text, "" if row is None else row.text)
    return f"{code.value}{' ' if name else ''}{name}" + (f" ({text})" if text else "")


def init_code(facts: Facts) -> int:
    """The code cuInit returned, 0 included; -1 stands for one that was not observed."""
    code = facts.libcuda.init_code
    return code.value if isinstance(code, Known) else -1


def pci_gpus(facts: Facts) -> tuple[PciDevice, ...]:
    """NVIDIA GPUs on the PCI bus, driver or not."""
    return tuple(device for device in facts.gpus.pci if device.kind is PciKind.GPU)


def has_nvidia_gpu(facts: Facts) -> bool:
    """Whether anything on this machine is an NVIDIA GPU: on the bus, in the chip, behind a node, counted by CUDA."""
    nodes = any(node.kind == "device" and _is_gpu_node(node.path) for node in facts.driver.nodes)
    on_bus = pci_gpus(facts) or facts.gpus.devices or isinstance(facts.gpus.tegra_chip, Known)
    return bool(on_bus or nodes or cuda_works(facts))


def kernel_unseen(facts: Facts) -> bool:
    """Whether nothing can be told of the host's driver and GPUs: a chroot into which no /sys was mounted."""
    kind = facts.container.kind
    chroot = isinstance(kind, Known) and kind.value is ContainerKind.CHROOT
    return chroot and isinstance(facts.driver.uvm_loaded, Unknown) and not facts.gpus.pci


def while_nvml_works(facts: Facts) -> str:
    """', although nvidia-smi works' where NVML was seen to start; '' where it was not."""
    works = isinstance(facts.driver.nvml_code, Known) and facts.driver.nvml_code.value == 0
    return ", although nvidia-smi works" if works else ""


def has_device_nodes(facts: Facts) -> bool:
    """Whether /dev/nvidiactl or a numbered node is there, i.e. this place was given a GPU."""
    paths = [node.path for node in facts.driver.nodes if node.kind == "device"]
    return any(path == "/dev/nvidiactl" or is_numbered(path) for path in paths)


def has_numbered_node(facts: Facts) -> bool:
    return any(is_numbered(node.path) for node in facts.driver.nodes if node.kind == "device")


def _is_gpu_node(path: str) -> bool:
    return path == "/dev/dxg" or is_numbered(path)


def is_numbered(path: str) -> bool:
    """Whether a path is the node of one GPU: /dev/nvidia0."""
    return path.removeprefix("/dev/nvidia").isdecimal()


def platform(facts: Facts) -> Platform | None:
    kind = facts.place.platform
    return kind.value if isinstance(kind, Known) else None


def has_own_kernel_driver(facts: Facts) -> bool:
    """Whether the GPU hangs on the nvidia module of a Linux kernel: not under Windows, not in a Jetson's chip."""
    return platform(facts) not in (Platform.WSL2, Platform.WSL1, Platform.JETSON)


def container(facts: Facts) -> Known[ContainerKind] | None:
    """The container around us, None on a plain machine."""
    kind = facts.container.kind
    return kind if isinstance(kind, Known) and kind.value is not ContainerKind.NONE else None


def kernel_is_gone(facts: Facts) -> bool:
    """Whether the kernel was upgraded under us: no module can be loaded or built for the one that runs."""
    return container(facts) is None and value_or(facts.driver.kernel_replaced, default=False)


def at(facts: Facts, provider: Provider) -> bool:
    return any(seen.provider is provider for seen in facts.container.providers)


def may_become_root(facts: Facts) -> bool:
    """Whether root is in reach: already root, or sudo is there and the kernel does not refuse it."""
    if facts.ability.is_root:
        return True
    refused = facts.ability.no_new_privileges
    return facts.ability.sudo is not Sudo.ABSENT and not (isinstance(refused, Known) and refused.value)


def typed(facts: Facts, *argv: str) -> tuple[str, ...]:
    """A command that takes root, as this user types it: as steps have it, through sudo where there is one."""
    return argv if facts.ability.is_root or facts.ability.sudo is Sudo.ABSENT else ("sudo", *argv)


def kernel_log(facts: Facts) -> tuple[str, ...]:
    """The command that shows what the driver said."""
    return typed(facts, "sh", "-c", "dmesg | grep -E 'NVRM|Xid'")


def gpu_label(gpu: Gpu) -> str:
    """'gpu-0 NVIDIA H200'."""
    return gpu.id if isinstance(gpu.name, Unknown) else f"{gpu.id} {gpu.name.value}"

"""What was observed of the GPUs, the driver and the place: the questions that several rules ask of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.gpus import Gpu, PciDevice, PciKind
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform

T = TypeVar("T")
_RPM = ("rhel", "centos", "rocky", "almalinux", "fedora", "amzn", "ol")


def shown(fact: Known[T]) -> str:
    """A value with where it was seen: '570.133.20 (/sys/module/nvidia/version)'."""
    return f"{fact.value} ({fact.seen_in})"


def listed(items: Iterable[str]) -> str:
    """'gpu-0, gpu-1 and gpu-2'."""
    names = list(items)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def cuda_starts(facts: Facts) -> bool:
    """Whether cuInit was seen to return 0: proof that outranks every static rule about the driver."""
    code = facts.libcuda.init_code
    return isinstance(code, Known) and code.value == 0


def cuda_works(facts: Facts) -> bool:
    """Whether cuInit returned 0 and listed a device."""
    count = facts.libcuda.device_count
    return cuda_starts(facts) and isinstance(count, Known) and count.value > 0


def init_error(facts: Facts) -> str:
    """What cuInit gave when it failed: '999 CUDA_ERROR_UNKNOWN (unknown error)'; '' when it did not."""
    code, name, text = facts.libcuda.init_code, facts.libcuda.init_name, facts.libcuda.init_text
    if not isinstance(code, Known) or code.value == 0:
        return ""
    words = f" {name.value}" if isinstance(name, Known) else ""
    return f"{code.value}{words}" + (f" ({text.value})" if isinstance(text, Known) else "")


def init_code(facts: Facts) -> int:
    """The code cuInit returned, 0 included; -1 stands for one that was not observed."""
    code = facts.libcuda.init_code
    return code.value if isinstance(code, Known) else -1


def pci_gpus(facts: Facts) -> tuple[PciDevice, ...]:
    """NVIDIA GPUs on the PCI bus, driver or not."""
    return tuple(device for device in facts.gpus.pci if device.kind is PciKind.GPU)


def answering_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """GPUs that NVML or nvidia-smi speaks of, those that are lost included."""
    return facts.gpus.devices


def has_nvidia_gpu(facts: Facts) -> bool:
    """Whether anything on this machine is an NVIDIA GPU: on the bus, in the chip, behind a node or behind Windows."""
    nodes = any(node.kind == "device" and _is_gpu_node(node.path) for node in facts.driver.nodes)
    return bool(
        pci_gpus(facts) or facts.gpus.devices or nodes or isinstance(facts.gpus.tegra_chip, Known)
    )


def has_device_nodes(facts: Facts) -> bool:
    """Whether /dev/nvidiactl or a numbered node is there, i.e. this place was given a GPU."""
    paths = [node.path for node in facts.driver.nodes if node.kind == "device"]
    return any(path == "/dev/nvidiactl" or _is_numbered(path) for path in paths)


def has_numbered_node(facts: Facts) -> bool:
    return any(_is_numbered(node.path) for node in facts.driver.nodes if node.kind == "device")


def _is_gpu_node(path: str) -> bool:
    return path == "/dev/dxg" or _is_numbered(path)


def _is_numbered(path: str) -> bool:
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


def at(facts: Facts, provider: Provider) -> bool:
    return any(seen.provider is provider for seen in facts.container.providers)


def as_root(facts: Facts, command: str) -> str:
    """The command as this user has to type it: with sudo unless root."""
    return command if facts.ability.is_root else f"sudo {command}"


def on_the_host(facts: Facts, command: str) -> str:
    """The command, or who has to run it: a container cannot change the kernel driver below it."""
    return f"on the host, not in this container: sudo {command}" if container(facts) else as_root(facts, command)


def install(facts: Facts, package: str) -> str:
    """How the system's package manager installs a package."""
    name = facts.place.os_id
    manager = "dnf install --assumeyes" if isinstance(name, Known) and name.value in _RPM else "apt-get install --yes"
    return f"{manager} {package}"


def gpu_label(gpu: Gpu) -> str:
    """'gpu-0 NVIDIA H200'."""
    return gpu.id if isinstance(gpu.name, Unknown) else f"{gpu.id} {gpu.name.value}"

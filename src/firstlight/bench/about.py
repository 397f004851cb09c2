"""What a result says of the machine and its software: from the facts (with their pseudonyms) and from torch itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from firstlight.bench.place import Device
from firstlight.bench.results import GpuResult, HostResult, SoftwareResult
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known
from firstlight.frozen import dataclass
from firstlight.machine import Machine


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of the tree a run was started in; None outside of one."""

    name: str | None
    dirty: bool | None


def commit_of(machine: Machine) -> Commit:
    """What git says of the current folder, e.g. 336676c..., not dirty."""
    head = machine.run(("git", "rev-parse", "HEAD"))
    if not head.ok:
        return Commit(None, None)
    status = machine.run(("git", "status", "--porcelain", "--untracked-files=no"))
    return Commit(head.first_line, bool(status.stdout.strip()) if status.ok else None)


def host_of(facts: Facts) -> HostResult:
    """The host, e.g. host-a with Ubuntu 24.04 in docker."""
    import platform

    return HostResult(
        name="host-a",
        os=_text(facts.place.os_name),
        machine=facts.place.arch,
        cpu=_text(facts.resources.processor_model),
        container=_value(facts.container.kind),
        python=platform.python_version(),  # the one that ran, which need not be the selected environment's
    )


def software_of(facts: Facts, torch: Any) -> SoftwareResult:
    """Versions of what ran: the driver by the facts, the rest by the torch that was imported."""
    return SoftwareResult(
        driver=_text(facts.driver.kernel_version),
        cuda=torch.version.cuda,
        torch=str(torch.__version__),
        cudnn=_cudnn(torch),
        nccl=_nccl(torch),
        triton=_installed("triton"),
    )


def gpu_of(device: Device, facts: Facts) -> GpuResult | None:
    """The GPU under the name that the facts give it, matched by its PCI address."""
    if device.gpu is None:
        return None
    address = device.pci_address.lower()[-12:]
    for known in facts.gpus.devices:
        if address and isinstance(known.pci_address, Known) and known.pci_address.value == address:
            return replace(device.gpu, uuid=known.id)
    return device.gpu


def _text(fact: Fact[Any]) -> str | None:
    return str(fact.value) if isinstance(fact, Known) else None


def _value(fact: Fact[Any]) -> str | None:
    return str(fact.value.value) if isinstance(fact, Known) else None


def _cudnn(torch: Any) -> str | None:
    number = torch.backends.cudnn.version() if torch.version.cuda is not None else None
    if number is None:
        return None
    major, rest = divmod(number, 10_000) if number >= 90_000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _nccl(torch: Any) -> str | None:
    if torch.version.cuda is None or not torch.distributed.is_nccl_available():
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _installed(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
